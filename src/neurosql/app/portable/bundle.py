"""The explorer's modules as one script, for a page that is one file.

The modules keep to the form that `web/static/source.js` describes, so that no parser is needed. Each becomes a function
of its own, whose result is what it exports.
"""

from __future__ import annotations

import re
from pathlib import Path

import neurosql

STATIC = Path(neurosql.__file__).parent / "web" / "static"
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?function\*?|class|const|let) (\w+)", re.MULTILINE)
STRAY = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b).*$|\bimport\s*\(", re.MULTILINE)


def script(entry: str) -> str:
    """The module `entry` and all that it imports, in an order in which each comes after what it needs."""
    done: dict[str, str] = {}
    _add(entry, done, ())
    return '"use strict";\n' + "\n".join(done.values())


def _add(name: str, done: dict[str, str], above: tuple[str, ...]) -> None:
    if name in done:
        return
    if name in above:
        raise RuntimeError(f"modules import each other: {' -> '.join((*above, name))}")
    source = (STATIC / f"{name}.js").read_text("utf-8")
    for imported in IMPORT.finditer(source):
        _add(imported[2], done, (*above, name))
    done[name] = module(name, source)


def module(name: str, source: str) -> str:
    """One module as a constant that holds what it exports."""
    exported = [found[2] for found in EXPORT.finditer(source)]
    body = EXPORT.sub(r"\1 \2", IMPORT.sub(_destructured, source))
    if stray := STRAY.search(body):
        raise RuntimeError(f"{name}.js has an import or export of an unknown form: {stray[0].strip()}")
    if re.search(r"</script|<!--", body, re.IGNORECASE):
        raise RuntimeError(f"{name}.js would end the script that it is embedded in")
    return f"const {_constant(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _destructured(found: re.Match[str]) -> str:
    names = [name.strip().replace(" as ", ": ") for name in found[1].split(",") if name.strip()]
    return f"const {{ {', '.join(names)} }} = {_constant(found[2])};"


def _constant(name: str) -> str:
    return "module_" + name.replace("-", "_")
