"""An epoch of quantile assignment with `owned` mini-batches over one of a VAE with an MLP encoder, same generator.

    python benchmarks/epoch.py
    NEUROSQL_DATA=FOLDER python benchmarks/epoch.py --n 60000

All take steps of one size on the same digits, in turn, --steps at a time; the ratio of a round is that of its processor
times. The work that is done once per epoch (order, offers, figures) is measured by itself and added in its share. Up to
4,096 digits come from the embedded sample; for more, set NEUROSQL_DATA to a folder above the idx files of MNIST.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from matrices import digits

from neurosql import data, held, preparing, presets
from neurosql.methods.base import Batch
from neurosql.training import Trainer

OWNED = {"algorithm": "mini-batch", "subset": "owned"}
CONTENDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "VAE, MLP encoder": ("vae", "recommended", {"encoder": "mlp"}),
    "owned mini-batches": ("neurosql", "plain", OWNED),
    "owned mini-batches, reuse": ("neurosql", "plain", OWNED | {"reuse": True}),
}
"""By name: method, preset and own settings; the first one is what the others are compared with."""


class Contender:
    """A method in the middle of its training."""

    def __init__(self, images: data.ImageSet, which: tuple[str, str, dict[str, Any]], dim: int, batch: int) -> None:
        method, preset, own = which
        common = {"latent_dim": dim, "batch_size": batch, "epochs": 1000, "validation_share": 0.0, "patience": 0}
        settings = presets.settings(method, preset, **common, **own)
        run = preparing.prepare(images, settings)[0]
        run.method.start()
        x, labels = held.tensors(images, run.index, run.method.device)
        self.trainer = Trainer(run.method, x, labels, run.settings.training)
        self.batches = self._batches()

    def _batches(self) -> Iterator[Batch]:
        while True:
            yield from self.trainer._epoch_batches()
            self.trainer.batch = 0

    def steps(self, count: int) -> float:
        """Seconds of processor time that these steps take."""
        return timed(lambda: [self.trainer._take_step(next(self.batches)) for _ in range(count)])

    def once(self) -> float:
        """Seconds of what is done once per epoch, besides steps."""
        n = len(self.trainer.x)
        order = timed(lambda: torch.randperm(n, generator=self.trainer.random).tensor_split(self.trainer.batches))
        return order + timed(lambda: self.trainer.method.end_epoch(self.trainer.epoch, self.trainer.epochs))


def timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4096, help="digits")
    parser.add_argument("--dim", type=int, default=8, help="latent dimension")
    parser.add_argument("--batch", type=int, default=64, help="images per step")
    parser.add_argument("--steps", type=int, default=20, help="steps that each takes in a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()

    torch.set_num_threads(chosen.threads)
    images = digits(chosen.n)
    several = [Contender(images, which, chosen.dim, chosen.batch) for which in CONTENDERS.values()]
    for contender in several:
        contender.steps(3)
    found = [[contender.steps(chosen.steps) / chosen.steps for contender in several] for _ in range(chosen.rounds)]
    once = [contender.once() for contender in several]
    batches = several[0].trainer.batches
    print(f"{chosen.n} digits, d = {chosen.dim}, {batches} steps of {chosen.batch} per epoch")
    for k, name in enumerate(CONTENDERS):
        step = statistics.median(times[k] / times[0] for times in found)
        epoch = statistics.median((batches * times[k] + once[k]) / (batches * times[0] + once[0]) for times in found)
        each = 1e3 * statistics.median(times[k] for times in found)
        print(f"{name}: {each:.1f} ms per step, {once[k]:.3f} s once per epoch")
        print(f"    over the VAE: step {step:.3f}, epoch {epoch:.3f}")


if __name__ == "__main__":
    main()
