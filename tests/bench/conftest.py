"""Shared by the tests of benches: stand-ins for the data sets, and the runs of all experiments."""

import json
import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image

from neurosql.bench import rows, sources, work
from neurosql.bench.declare import IN_COLOUR
from neurosql.bench.experiments import EXPERIMENTS
from neurosql.bench.jobs import LEFT


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

    Runs have one thread each, as in the queue, and so the same bits. With `alike`, a run may be taken from another one
    that goes the same ways through the program.
    """

    def carried_out(experiment, alike=None):
        results = []
        for job in experiment.jobs("smoke", seeds=1):
            made = job if alike is None else alike[kind(job)]
            own = jobs / made.folder
            own.mkdir(exist_ok=True)
            with work.locked(own):
                if not (own / work.ROW).is_file():
                    with one_thread():
                        work.carry_out(made, sources.path_of(made, str(pictures)), own)
                row = rows.from_record(json.loads((own / work.ROW).read_text("utf-8")))
            if made.folder != job.folder:
                lend(own, jobs / job.folder)
            results.append(rows.identity(job) | {k: v for k, v in row.items() if k not in rows.IDENTITY})
        return results

    return carried_out


def kind(job):
    """What decides which ways a run goes through the program: all of its declaration but some sizes.

    Latent dimensions above 2 are alike, and so are numbers of images of which an epoch has several batches. With other
    backbones than the first, both data sets of photographs are one, which the generator can't tell apart.
    """
    settings = job.settings.flat() | {"latent_dim": job.latent_dim and min(job.latent_dim, 3)}
    data = "photographs" if job.data in IN_COLOUR and job.backbone != "convnet" else job.data
    images = job.images
    if job.experiment == "scalability":
        images, settings["batch_size"] = job.images > job.batch, None
    return repr((data, images, job.pixels, settings, job.samples, job.synthetic, job.alone, job.sampling))


@pytest.fixture(scope="session")
def alike():
    """By kind, the first run of all experiments that is of it."""
    found = {}
    for name in EXPERIMENTS:
        for job in EXPERIMENTS[name].jobs("smoke", seeds=1):
            found.setdefault(kind(job), job)
    return found


def lend(made, own):
    """Give a job's folder what another run has left for pages."""
    own.mkdir(exist_ok=True)
    with work.locked(own):
        for left in (made / name for name in LEFT):
            if left.is_file() and not (own / left.name).exists():
                shutil.copy(left, own)
