"""Install the package with the oldest or the newest dependencies that it allows, and run a smoke part of its tests.

    python scripts/check_versions.py oldest [--python python3.12] [--constraints FILE] [--keep FOLDER]
    python scripts/check_versions.py newest

`oldest` pins each dependency of pyproject.toml to its lower bound; `newest` pins nothing. A constraints file comes on
top, for packages of which only one version can be had: its pins replace lower bounds. The exit status is that of pip or
of the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMOKE = (
    *("tests/test_old_runs.py", "tests/test_estimator.py", "tests/test_divergence.py", "tests/test_degenerate.py"),
    *("tests/test_prior.py", "tests/test_cost.py", "tests/test_density.py", "tests/test_training.py"),
    *("tests/data/test_imageset.py", "tests/metrics/test_metrics.py", "tests/report/test_pictures.py"),
)
NEEDED = ("pytest", "hypothesis", "scikit-image", "POT", "torchmetrics", "pandas", "nibabel")
"""Packages of the tests; they are not pinned."""


def lower_bounds() -> dict[str, str]:
    """The lower bound of each dependency in pyproject.toml, by its name."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    found = (re.fullmatch(r"([\w.-]+)>=([\w.]+).*", line) for line in declared)
    return {match[1].lower(): match[2] for match in found if match}


def pins(which: str, constraints: Path | None) -> list[str]:
    """Requirements of the environment."""
    bounds = lower_bounds() if which == "oldest" else {}
    if constraints is not None:
        for line in constraints.read_text("utf-8").splitlines():
            name, equals, version = line.strip().partition("==")
            if equals and not name.startswith("#"):
                bounds[name.lower()] = version
    return [f"{name}=={version}" for name, version in bounds.items()]


def main() -> int:
    """Make the environment and run the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=("oldest", "newest"))
    parser.add_argument("--python", default=sys.executable, help="the Python to use")
    parser.add_argument("--constraints", type=Path, help="pins that replace lower bounds")
    parser.add_argument("--keep", type=Path, help="folder for the environment; by default it is removed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch) / "environment"
        subprocess.run([given.python, "-m", "venv", str(folder)], check=True)
        python = str(folder / "bin" / "python")
        wanted = Path(scratch) / "constraints.txt"
        wanted.write_text("\n".join(pins(given.which, given.constraints)) + "\n", "utf-8")
        print(wanted.read_text("utf-8"))
        install = [python, "-m", "pip", "install", "--quiet", "--constraint", str(wanted), str(ROOT), *NEEDED]
        done = subprocess.run(install)
        if done.returncode:
            return done.returncode
        subprocess.run([python, "-m", "pip", "list", "--format", "freeze"])
        # Not from the root: the tests are those of the installed package.
        tests = [str(ROOT / path) for path in SMOKE]
        # Old packages warn about their new neighbours: warnings are no errors here.
        options = ["-q", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
        # Models of the tests are tiny: two threads of one process would wait for each other.
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.run([python, "-m", "pytest", *options, *tests], cwd=scratch, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
