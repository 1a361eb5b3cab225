"""Large blocks of memory are kept by the program, and by nobody who only imports the package."""

import os
import subprocess
import sys

import pytest

from neurosql import children, heap

FAULTS = """
import resource, sys
from neurosql import heap
kept = heap.keep_blocks() if sys.argv[1] == "keep" else False
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(b"1") * 2**26
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word, **variables):
    """Whether blocks are kept, and how many pages the system had to clear for twenty blocks of 64 MiB."""
    environment = {name: value for name, value in os.environ.items() if name not in heap.BY_THE_USER}
    environment["PYTHONPATH"] = children.environment()["PYTHONPATH"]
    done = subprocess.run(
        children.command("-c", FAULTS, word), capture_output=True, text=True, check=True, env=environment | variables
    )
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other allocators")
def test_blocks_that_are_kept_are_not_cleared_again():
    kept, few = faults("keep")
    if not kept:
        pytest.skip("this C library does not let programs choose")
    assert few < faults("leave")[1] / 5


def test_a_choice_of_the_user_stands():
    assert faults("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] is False
