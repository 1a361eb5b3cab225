"""A run is struck at the calls by which it is written; `benchmarks/crashes.py` strikes at all of them."""

import random
import sys

import pytest
from crashes import TINY, killed, of_arrays, stopped, struck, tiny_images

from neurosql import data, presets

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files can't be renamed while they are open")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return data.load(str(tiny_images(tmp_path_factory.mktemp("data") / "waves.npz")), cache=False)


@pytest.fixture(scope="module")
def settings():
    return presets.settings("neurosql", preset="plain", **TINY)


def test_whatever_strikes_a_run_it_goes_on_to_the_same_bits(images, settings, tmp_path):
    story = of_arrays(images, settings, tmp_path)
    found = dict(struck(story, tmp_path, each=4))
    assert len(found) > 60 and not {case: lost for case, lost in found.items() if lost}


def test_whatever_strikes_a_resumption_it_goes_on_to_the_same_bits(images, settings, tmp_path):
    story = of_arrays(images, settings, tmp_path)
    stopped(story, images, settings, tmp_path / "stopped")
    found = dict(struck(story, tmp_path, tmp_path / "stopped", each=7))
    assert len(found) > 20 and not {case: lost for case, lost in found.items() if lost}


def test_whatever_moment_it_is_killed_at_a_run_goes_on_to_the_same_bits(images, settings, tmp_path):
    story = of_arrays(images, settings, tmp_path)
    found = list(killed(story, tmp_path, 4, random.Random(0)))
    assert found and not [lost for _, lost, _ in found if lost]
