"""Build the source distribution and a wheel, install each into an environment of its own, and try it as users do.

    python scripts/check_wheel.py [--python python3.12] [--out dist] [--only wheel|sdist]

Packages are those of constraints.txt. The commands are those of the README's section on the command line, with smaller
numbers. The exit status is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
TOOLS = ("scikit-build-core", "nanobind", "cmake", "ninja")
SHORTER = {"--limit 500": "--limit 60", "--epochs 20": "--epochs 1", "--samples 256": "--samples 32"}
TRY = """
import numpy as np
from neurosql import NeuroSQL, engine
x = np.random.default_rng(0).random((40, 8, 8))
model = NeuroSQL(generator="mlp", width=8, epochs=1).fit(x)
assert model.sample(3, random_state=0).shape == (3, 8, 8)
print(engine.describe())
"""


def run(*words: str | Path, cwd: Path) -> str:
    """Run a command and return what it prints; stop here, with all that it printed, if it fails."""
    print("$", *words, flush=True)
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=clean, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\nexit status {done.returncode}")
    return done.stdout


def environment(python: str, folder: Path) -> Path:
    """A new virtual environment; the path of its programs."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def build(python: str, scratch: Path, out: Path) -> dict[str, Path]:
    """The source distribution, and the wheel that is built from it, as an index builds it."""
    programs = environment(python, scratch / "tools")
    run(programs / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, *TOOLS, cwd=scratch)
    make = "import sys, scikit_build_core.build as backend; print(backend.build_sdist(sys.argv[1]))"
    source = out / run(programs / "python", "-c", make, out, cwd=ROOT).strip().splitlines()[-1]
    options = ("--no-deps", "--no-build-isolation", "-q", "-w", scratch)
    run(programs / "python", "-m", "pip", "wheel", *options, source, cwd=scratch)
    (wheel,) = scratch.glob("*.whl")
    return {"sdist": source, "wheel": wheel.replace(out / wheel.name)}


def version() -> str:
    """The version that the package states, in its only place."""
    text = (ROOT / "src" / "neurosql" / "__init__.py").read_text("utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)[0]


def look_inside(wheel: Path) -> None:
    """Refuse a wheel that lacks something, or has what users don't need."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    needed = ("neurosql/py.typed", "neurosql/data/mnist_sample.npz", "neurosql/bench/printed.csv")
    missing = [name for name in needed if name not in names]
    strange = [name for name in names if not name.startswith(("neurosql/", f"neurosql_torch-{version()}.dist-info/"))]
    if missing or strange:
        sys.exit(f"{wheel.name} lacks {missing} and has {strange}")
    native = [name for name in names if "_native" in name]
    print(f"{wheel.name}: {len(names)} files, extension {native or 'none'}")


def commands() -> list[list[str]]:
    """The commands of the README's section on the command line, made shorter."""
    section = (ROOT / "README.md").read_text("utf-8").partition("## From the command line")[2]
    block = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]
    for long, short in SHORTER.items():
        block = block.replace(long, short)
    return [shlex.split(line) for line in block.splitlines()]


def tried(python: str, name: str, package: Path, scratch: Path) -> None:
    """Install a distribution and try it, far from the source tree."""
    programs = environment(python, scratch / name)
    run(programs / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, package, cwd=scratch)
    place = scratch / f"{name}-tried"
    place.mkdir()
    said = run(programs / "neurosql", "--version", cwd=place).strip()
    if version() not in said:
        sys.exit(f"{said!r} is not version {version()}")
    print(run(programs / "python", "-c", TRY, cwd=place).strip())
    for words in commands():
        run(programs / words[0], *words[1:], cwd=place)
    if not (place / "runs" / "first" / "report.html").exists():
        sys.exit("there is no report.html")
    print(f"{name}: all commands work")


def main() -> None:
    """Build and try both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python to use")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where to leave the distributions")
    parser.add_argument("--only", choices=("wheel", "sdist"), help="install only one of them")
    given = parser.parse_args()
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = build(given.python, Path(scratch), out)
        look_inside(made["wheel"])
        for name, package in made.items():
            if given.only in (None, name):
                tried(given.python, name, package, Path(scratch))


if __name__ == "__main__":
    main()
