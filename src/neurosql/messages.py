"""What the command line says when something is in the way, in the words that people type."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import fields

from neurosql.errors import Obstacles
from neurosql.settings import METHODS, DataSettings, as_flags, former, section_classes


def present(arguments: list[str]) -> list[str]:
    """The arguments with the current names of renamed flags; prints a notice for each."""
    known = {"train": former.RENAMED, "tune": former.RENAMED, "evaluate": {"pairs": "image_pairs"}}
    old = known.get(arguments[0] if arguments else "", {})
    found: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in old:
            found.append(argument)
            continue
        value = value if equals else next(rest, "")
        new, now = (old[name], value) if arguments[0] == "evaluate" else former.renamed(name, value)
        print(
            f"note       {flag} has been renamed to --{new.replace('_', '-')}: the old name will be removed",
            file=sys.stderr,
        )
        found += [f"--{new.replace('_', '-')}", now]
    return found


def with_flags(sentence: str) -> str:
    """A message with the names of settings as they are typed on the command line."""
    kinds = [kind for method in METHODS for kind in section_classes(method).values()]
    names = {f.name for kind in (*kinds, DataSettings) for f in fields(kind)}

    def typed(word: re.Match[str]) -> str:
        # A name of one word is a setting only where a value follows it.
        name, value = word["name"], word["value"]
        return _flag(name) if name in names and ("_" in name or value) else word[0]

    return re.sub(r"(?<![\w/.-])(?P<name>[a-z]\w*)(?P<value>=True)?(?![\w/=])", typed, sentence)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def sentences(error: Obstacles, arguments: list[str]) -> str:
    """All that is in the way; if that is more than one thing, one line for each and the command that settles them."""
    found = [with_flags(sentence) for sentence in error.found]
    if len(found) == 1:
        return found[0]
    lines = [
        f"{len(found)} things are in the way:",
        *(f"  {number}. {sentence}" for number, sentence in enumerate(found, 1)),
    ]
    if error.settled_by and arguments[0] in ("train", "tune"):
        settled = shlex.join(["neurosql", *arguments, *as_flags(error.settled_by)])
        lines.append(f"  with the flags that settle them: {settled}")
    return "\n".join(lines)
