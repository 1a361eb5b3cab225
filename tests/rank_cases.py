"""Trainings that are the same in one process and in several: a script for torchrun, and a module for the tests.

`torchrun ... tests/rank_cases.py FOLDER` trains every case in all ranks together; each rank writes what it found.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from neurosql import presets, ranks
from neurosql import run as runs
from neurosql.data import from_array
from neurosql.methods.neurosql import QuantileAssignment

# 37 images in two batches, of 19 and 18: the first is not divisible by two.
COMMON = {"steps": 2, "batch_size": 19, "width": 16, "validation_share": 0.0, "clip": 1e6}
COMMON |= {"precision": "float32"}
MOVING = {"components": 2, "shared_rate": 0.1, "code_rate": 0.1, "fresh": 1.0, "fresh_every": 1, "fresh_batch": 7}
CASES = {
    "neurosql": {"preset": "plain"},
    "neurosql resnet": {"preset": "plain", "generator": "resnet", "penalty": 1e-3},
    "neurosql moving": {"preset": "plain", **MOVING, "conditional": True},
    "vae": {"method": "vae"},
    "vae gaussian": {"method": "vae", "likelihood": "gaussian", "conditional": True},
    "gan": {"method": "gan", "r1_every": 1},
    "ddpm": {"method": "ddpm"},
    "ot-cfm": {"method": "ot-cfm", "coupling": "independent"},
    "imle": {"method": "imle"},
    "rs-imle": {"method": "rs-imle", "conditional": True, "pool": 3},
    "glo": {"method": "glo"},
    "rae": {"method": "rae", "weight_penalty": 1e-3},
}
LEARNT = {"law": "learnt", "start": "scores", "match": "codes"}
LONG = {"width": 8, "epochs": 5, "steps": None, "batch_size": 12, "preset": "plain"}
TRAVELS = {
    "full": {**LONG, "every": 1},
    "full by class": {**LONG, "every": 1, "conditional": True},
    "candidates": {**LONG, "every": 2, "strategy": "candidates", "candidates": 4},
    "learnt": {
        **LONG,
        **MOVING,
        "law": "learnt",
        "start": "scores",
        "match": "codes",
        "final_components": 2,
        "snap": 1,
    },
    "mini-batch": {**LONG, "algorithm": "mini-batch"},
    "mini-batch partition by class": {**LONG, "algorithm": "mini-batch", "subset": "partition", "conditional": True},
    "mini-batch random": {**LONG, "algorithm": "mini-batch", "subset": "random", "snap": 1},
    "fewer images than ranks": {**LONG, "images": 1},
    "validated": {**LONG, "every": 1, "validation_share": 0.3, "validate_every": 1, "patience": 0},
    "unlike machines": {**LONG, "every": 2, "ema": 0.9},
}


def images(count):
    """The first of scikit-learn's digits, with a margin: 12 x 12 pixels."""
    bunch = load_digits()
    x = np.pad((bunch.images[:count] / 16).astype(np.float32), ((0, 0), (2, 2), (2, 2)))
    # Three classes, so that no class is too small for two ranks.
    return from_array(x, bunch.target[:count] % 3)


def trained(case):
    """The run of a case, and the gradients (k,) of its updates, one after the other."""
    chosen = COMMON | (CASES | TRAVELS)[case]
    count = chosen.pop("images", 37)
    settings = presets.settings(
        chosen.pop("method", "neurosql"), chosen.pop("preset", "recommended"), "laptop", **chosen
    )
    found, clip = [], torch.nn.utils.clip_grad_norm_

    def record(parameters, most):
        parameters = list(parameters)
        found.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]).clone())
        return clip(parameters, most)

    def round_otherwise(self, epoch, epochs):
        """What a rank on another kind of machine would have: other bits."""
        with torch.no_grad():
            self.generator.head.weight.mul_(1 + 1e-6 * ranks.here().rank)
        return end_epoch(self, epoch, epochs)

    end_epoch = QuantileAssignment.end_epoch
    if case == "unlike machines":
        QuantileAssignment.end_epoch = round_otherwise
    torch.nn.utils.clip_grad_norm_ = record
    try:
        return runs.train(images(count), settings), found
    finally:
        QuantileAssignment.end_epoch = end_epoch
        torch.nn.utils.clip_grad_norm_ = clip


def facts(case):
    """What one process and several must agree on, as arrays."""
    run, gradients = trained(case)
    known = {f"gradient {i}": gradient.numpy() for i, gradient in enumerate(gradients[:2])}
    method = run.method
    if hasattr(method, "permutation"):
        known["permutation"] = method.permutation.numpy()
        known["lattice"], known["codes"] = method.lattice.numpy(), method.codes.numpy()
    state = method.state()
    known["weights"] = torch.cat([v.double().flatten() for k, v in state.items() if k != "random"]).numpy()
    known["losses"] = np.array([figures["loss"] for figures in run.history])
    known["aligned"] = np.array([figures.get("aligned", 0) for figures in run.history])
    known["heldout"] = np.array([figures.get("heldout_loss", np.nan) for figures in run.history])
    known["exchanged"] = np.array([figures.get("exchanged", 0) for figures in run.history])
    return known


def main(folder):
    with ranks.joined() as group:
        for case in CASES | TRAVELS:
            try:
                np.savez(Path(folder) / f"{case} {group.rank}.npz", **facts(case))
            except ranks.Spare:
                np.savez(Path(folder) / f"{case} {group.rank}.npz", spare=True)


if __name__ == "__main__":
    main(sys.argv[1])
