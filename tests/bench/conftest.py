"""Shared by the tests of benches: stand-ins for the data sets, and the runs of all experiments."""

import json
import os
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image

from neurosql.bench import rows, sources, work


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Small stand-ins for celeba, afhq, oasis and mnist, in the layouts that people have."""
    root = tmp_path_factory.mktemp("data")
    chance = np.random.default_rng(0)

    def save(path, channels):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Coarse blocks: no two heads are alike, so none are near duplicates.
        coarse = chance.integers(0, 256, (5, 5, channels), np.uint8).repeat(6, 0).repeat(6, 1)
        Image.fromarray(coarse[..., 0] if channels == 1 else coarse).save(path, quality=90)

    for i in range(150):
        save(root / "celeba" / "img_align_celeba" / f"{i + 1:06d}.jpg", 3)
        save(root / "afhq" / ("train" if i < 100 else "val") / "cat" / f"flickr_cat_{i:06d}.jpg", 3)
        kind = ("Non Demented", "Very mild Dementia", "Mild Dementia", "Moderate Dementia")[i % 4]
        save(root / "oasis" / "Data" / kind / f"slice_{i}.jpg", 1)
    return root


@pytest.fixture(scope="session")
def jobs(tmp_path_factory):
    """The folder of all runs. Experiments have runs in common, and the test processes share them."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "jobs"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def results_of(pictures, jobs):
    """A function to the rows of an experiment: every run is made in this process, unless another has made it.

    Runs have one thread each, as in the queue, and so the same bits.
    """

    def carried_out(experiment):
        results = []
        for job in experiment.jobs("smoke", seeds=1):
            own = jobs / job.folder
            own.mkdir(exist_ok=True)
            with work.locked(own):
                if not (own / work.ROW).is_file():
                    with one_thread():
                        work.carry_out(job, sources.path_of(job, str(pictures)), own)
                row = rows.from_record(json.loads((own / work.ROW).read_text("utf-8")))
            results.append(rows.identity(job) | {k: v for k, v in row.items() if k not in rows.IDENTITY})
        return results

    return carried_out
