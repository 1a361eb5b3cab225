"""Nothing is sent or listened for: import, training, sampling, evaluation and pages use no network."""

import subprocess
import sys

import numpy as np

# An audit hook sees every attempt, in whatever library; it can't be removed again, hence a child process.
CHILD = """
import sys
seen = []
EVENTS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")

def hook(event, arguments):
    if event in EVENTS and not (len(arguments) > 1 and isinstance(arguments[1], (str, bytes))):
        seen.append((event, arguments))

sys.addaudithook(hook)
if "--control" in sys.argv:
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).bind(("127.0.0.1", 0))
else:
    import neurosql
    from neurosql.cli import main
    quick = ["--generator", "mlp", "--width", "8", "--epochs", "1"]
    assert main(["train", "x.npy", "--out", "run", *quick]) == 0
    assert main(["sample", "run", "-n", "4"]) == 0
    assert main(["evaluate", "run", "--samples", "10", "--image-pairs", "2"]) == 0
    assert main(["report", "run"]) == 0
print("seen", [event for event, _ in seen])
"""


def run(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_no_command_on_local_data_uses_the_network(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((60, 8, 8)))
    assert run(tmp_path) == "seen []"


def test_the_hook_sees_what_it_is_for(tmp_path):
    assert run(tmp_path, "--control") == "seen ['socket.bind']"
