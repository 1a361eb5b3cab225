"""Packages as pip would install them, and processes that know them."""

import os
import subprocess

from neurosql import children

COMMANDS = """
import shlex, sys
from neurosql import cli
for line in sys.argv[1:]:
    program, *arguments = shlex.split(line)
    assert program == "neurosql"
    if status := cli.main(arguments):
        sys.exit(status)
"""


def install(folder, name, files, points, version="1.0"):
    """A package in `folder`: its files by path, and its entry points, `{group: {name: place}}`."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{entry} = {place}\n" for entry, place in entries.items())
        for group, entries in points.items()
    )
    (about / "entry_points.txt").write_text("\n".join(groups))
    return folder


def ran(folder, *arguments, cwd=None):
    """What a process printed that imports from `folder` before anything else."""
    environment = children.environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), environment["PYTHONPATH"]])
    done = subprocess.run(children.command(*arguments), env=environment, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commanded(folder, *lines, cwd=None):
    """What command lines printed, one after another in one process that imports from `folder`."""
    return ran(folder, "-c", COMMANDS, *lines, cwd=cwd)
