"""Where the data of an experiment lie, how they are divided, and what may be passed on."""

import re
from pathlib import Path

import numpy as np
import pytest

from neurosql.bench import jobs as jobs_folder
from neurosql.bench import sources
from neurosql.bench.experiments import EXPERIMENTS


def test_the_split_of_a_job_is_its_own_and_stays(shared_data, tmp_path):
    for job in EXPERIMENTS["oasis"].jobs("laptop", 2):
        if job.arm != "NeuroSQL" or job.latent_dim != 2:
            continue
        source = sources.path_of(job, str(shared_data))
        images = sources.read(job, source, tmp_path / f"{job.seed}.json")
        assert 1900 < len(images) <= 2000 and len(images.test) >= 200 and images.shape == (1, 32, 32)
        again = sources.read(job, source, tmp_path / f"{job.seed}.json")
        np.testing.assert_array_equal(images.x, again.x)
    assert (tmp_path / "0.json").read_text() != (tmp_path / "1.json").read_text()


def test_no_samples_of_celeba_are_kept_and_others_name_their_data():
    results = Path(__file__).parent.parent.parent / "results"
    if not results.is_dir():
        pytest.skip("these tests do not stand in a source tree")
    kept = [path for path in results.rglob("*.png") if path.parent.name == jobs_folder.PICTURES]
    assert kept and not [path.name for path in kept if "-celeba-" in path.name]
    # A picture that is called by a hash says nothing of what it shows.
    assert not [path.name for path in kept if re.match(r"[0-9a-f]{12}-\d", path.name)]
    assert not sources.SOURCES["celeba"].samples_may_be_shared
    assert sources.SOURCES["afhq"].credit and sources.SOURCES["oasis"].credit
