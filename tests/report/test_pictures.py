"""Pictures are drawn wherever the program runs, and leave the user's matplotlib as it was."""

import os
import subprocess
import sys

SCRIPT = """
import sys
from pathlib import Path
from neurosql.report import pictures
pictures.curves([{"loss": 0.5, "seconds": {"decoder": 1.0}}] * 3, Path(sys.argv[1]))
import matplotlib
assert "matplotlib.pyplot" not in sys.modules
print(dict.__getitem__(matplotlib.rcParams, "backend"), matplotlib._log.level)
"""


def test_no_noise_without_a_home_and_the_backend_stays(tmp_path):
    # A file in place of the home folder can't be written into, not even by root.
    (tmp_path / "home").write_text("")
    hidden = ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    environment |= {"HOME": str(tmp_path / "home"), "MPLBACKEND": "svg"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "curves.png")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.split() == ["svg", "0"]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
