"""List the licence of every pinned package that is installed here, as a table.

    python scripts/licences.py [constraints.txt]

Licences come from the packages' own metadata. Packages of the list that are not installed are named at the end.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent


def licence_of(package: metadata.PackageMetadata) -> str:
    """What a package says about its licence: an expression, classifiers, or the first line of a text."""
    if expression := package.get("License-Expression"):
        return expression
    classifiers = [c.split(" :: ")[-1] for c in package.get_all("Classifier") or [] if c.startswith("License ::")]
    named = [name for name in classifiers if name != "OSI Approved"]
    text = (package.get("License") or "").strip().splitlines()
    return ", ".join(named) or (text[0][:60] if text else "not said")


def main() -> None:
    """Print the table."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "constraints.txt"
    lines = [line.strip() for line in source.read_text("utf-8").splitlines()]
    pinned = [line.partition("==")[0] for line in lines if "==" in line and not line.startswith("#")]
    missing = []
    print("| package | version | licence |\n| --- | --- | --- |")
    for name in sorted(pinned, key=str.lower):
        try:
            found = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        print(f"| {found['Name']} | {found['Version']} | {licence_of(found)} |")
    if missing:
        print(f"\nNot installed here: {', '.join(missing)}.")


if __name__ == "__main__":
    main()
