"""Every method gives the bits of version 0.1.0, in trained models and in what they make, on the same kind of processor.

On one of the processors it is not recorded what GLO makes: the density of its codes is since summed in another order.

`python tests/test_same_bits.py` prints what `fixtures/bits.json` holds for the machine that it runs on.
"""

import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from neurosql import engine, preparing
from neurosql import run as runs
from neurosql.data import ImageSet, from_array
from neurosql.settings import Settings

RECORDED = Path(__file__).parent / "fixtures" / "bits.json"
COMMON = {"epochs": 3, "batch_size": 16, "validate_every": 1, "validation_share": 0.1, "width": 16}
COMMON |= {"precision": "float32"}
ON_IMAGES = {
    "neurosql": {},
    "neurosql mini-batch": {"algorithm": "mini-batch"},
    "neurosql partition": {"algorithm": "mini-batch", "subset": "partition", "conditional": True},
    "neurosql random": {"algorithm": "mini-batch", "subset": "random", "snap": 1},
    "neurosql greedy": {"assignment": "greedy-regret", "start": "random", "anneal": False},
    "neurosql candidates": {"strategy": "candidates", "candidates": 4, "every": 1},
    "neurosql by class": {"conditional": True, "ema": 0.9, "every": 1},
    "neurosql penalty": {"penalty": 1e-3, "prior": "ball", "cost": "l1"},
    "neurosql resnet": {"generator": "resnet", "taper": False},
    "neurosql unet": {"generator": "unet"},
    "neurosql transformer": {"generator": "transformer"},
    "neurosql mlp": {"generator": "mlp", "cost": "l2"},
    "vae": {"method": "vae"},
    "vae by class": {"method": "vae", "encoder": "mlp", "conditional": True, "warmup": 2},
    "vae gaussian": {"method": "vae", "likelihood": "gaussian"},
    "gan": {"method": "gan", "ema": 0.9},
    "gan by class": {"method": "gan", "conditional": True, "augment": 0.5},
    "ddpm": {"method": "ddpm", "noise_steps": 20, "predict": "v", "noise_schedule": "cosine"},
    "ddpm ancestral": {"method": "ddpm", "noise_steps": 10, "conditional": True},
    "imle": {"method": "imle"},
    "rs-imle": {"method": "rs-imle", "conditional": True},
    "glo": {"method": "glo"},
    "glo by class": {"method": "glo", "conditional": True},
    "rae": {"method": "rae"},
    "rae by class": {"method": "rae", "conditional": True, "components": 2},
    "ot-cfm": {"method": "ot-cfm"},
    "ot-cfm by class": {"method": "ot-cfm", "conditional": True, "sigma": 0.1},
}
ON_OTHERS = {
    f"{method} on {kind}": {"method": method}
    for method in ("neurosql", "vae", "gan", "ddpm", "rs-imle", "glo", "rae", "ot-cfm")
    for kind in ("vectors", "signals", "volumes")
}
CASES = ON_IMAGES | ON_OTHERS
SAMPLED = {"ddpm ancestral": {"sampler": "ancestral"}, "ot-cfm by class": {"sampler": "heun", "steps": 5}}
SAMPLED |= {case: {"steps": 5} for case in CASES if case.startswith(("ddpm", "ot-cfm")) and case not in SAMPLED}


def machine():
    """What decides the bits of a trained model, besides this program."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        facts = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
        cpu = f"{facts.get('model name')} {facts.get('cpu family')}/{facts.get('model')}"
    except OSError:
        cpu = platform.processor()
    return f"{cpu}, torch {torch.__version__}, numpy {np.__version__}, {engine.describe()['cost']}"


def samples(case):
    bunch = load_digits()
    x, labels = (bunch.images[:60] / 16).astype(np.float32), bunch.target[:60]
    if case.endswith("vectors"):
        return from_array(x[:, 2, :5].astype(np.float64))
    if case.endswith("signals"):
        return ImageSet(np.ascontiguousarray(x.reshape(60, 1, 64)), layout="ncl")
    if case.endswith("volumes"):
        return ImageSet(np.ascontiguousarray(np.repeat(x[:, None, None, ::2, ::2], 4, 2)), layout="ncdhw")
    # 12 x 12: a size that the convolutional networks grow through.
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2)))
    return from_array(padded, labels)


def digest(arrays):
    found = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        value = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value)
        found.update(f"{name} {value.shape} {value.dtype.str}".encode() + value.tobytes())
    return found.hexdigest()[:16]


def weights(method):
    return {f"{name}.{k}": v for name, network in method.networks.items() for k, v in network.state_dict().items()}


def bits(case):
    """Hashes of the initial weights, the trained model, and what it makes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        images = samples(case)
        settings = Settings.from_flat(COMMON | CASES[case])
        initial = digest(weights(preparing.prepare(images, settings)[0].method))
        run = runs.train(images, settings)
        made = {"samples": run.sample(6, seed=1, **SAMPLED.get(case, {}))[0]}
        if run.has_codes:
            made |= {"codes": run.method.codes, "encoded": run.encode(images.x[:5])[0], "again": run.reconstruct()}
        return {"initial": initial, "trained": digest(weights(run.method)), "made": digest(made)}
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("case", CASES)
def test_a_model_has_the_bits_that_it_had(case):
    recorded = json.loads(RECORDED.read_text("utf-8"))
    here = recorded.get(machine())
    if here is None:
        pytest.skip(f"no bits were recorded on this machine: {machine()}")
    found = bits(case)
    assert {name: found[name] for name in here[case]} == here[case]


if __name__ == "__main__":
    known = json.loads(RECORDED.read_text("utf-8")) if RECORDED.is_file() else {}
    print(json.dumps(known | {machine(): {case: bits(case) for case in CASES}}, indent=1), file=sys.stdout)
