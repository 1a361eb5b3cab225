"""What the training loop does with other ranks: it adds up gradients, and everything that they must agree on is here.

Each method is called by all ranks at the same place, so none waits for another that has left. One process on its own
agrees with itself, and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from neurosql import joint, ranks
from neurosql.methods.average import Average
from neurosql.methods.base import Batch, Method


class Together:
    """One rank's share in a training, and what all ranks have agreed on."""

    def __init__(self, method: Method, elapsed: Callable[[], float]) -> None:
        """`elapsed()` is how long the training has taken by this rank's clock."""
        self.ranks = ranks.here()
        self.share = 1.0
        """This rank's share of the joint batch of the step under way."""
        self._elapsed, self.agreed = elapsed, 0.0
        if self.ranks.several:
            for network in method.networks.values():
                joint.join_norms(network)

    def time(self) -> float:
        """How long the training has taken: by rank 0's clock, when ranks last agreed on it."""
        return self.agreed if self.ranks.several else self._elapsed()

    def batch(self, index: Tensor, x: Tensor, labels: Tensor | None) -> Batch:
        """This rank's part of the joint batch `index` (m,) of images x (n, ...)."""
        if not self.ranks.several:
            return Batch(index, x[index], None if labels is None else labels[index])
        part = self.ranks.part(len(index))
        self.share = (part.end - part.begin) / part.whole
        own = index[part.rows]
        return Batch(own, x[own], None if labels is None else labels[own], (index, part))

    def backward(self, loss: Tensor, parameters: list[torch.nn.Parameter]) -> Tensor:
        """Give parameters the gradient of the joint batch's loss, and return that loss.

        It is the sum of the losses of all ranks, each weighted by the rank's share of the batch.
        """
        loss = loss * self.share
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), loss.detach().reshape(1).to(gradients[0])])
        *reduced, total = self.ranks.add(flat).split([*(gradient.numel() for gradient in gradients), 1])
        for gradient, found in zip(gradients, reduced):
            gradient.copy_(found.view_as(gradient))
        return total[0]

    def after_step(self, figures: dict[str, float], asked: bool) -> tuple[dict[str, float], bool]:
        """The figures of the joint batch, and whether any rank was asked to stop; all take rank 0's clock."""
        if not self.ranks.several:
            return figures, asked
        own = [value * self.share for value in figures.values()]
        seconds = self._elapsed() if self.ranks.first else 0.0
        *means, stop, self.agreed = self.ranks.sums([*own, float(asked), seconds])
        return dict(zip(figures, means)), bool(stop)

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return self.ranks.any(flag)

    def decide(self, value: float) -> float:
        """Rank 0's word; all take its clock, too."""
        if self.ranks.several:
            self.agreed = self.ranks.decide(self._elapsed())
        return self.ranks.decide(value)

    def exchanged(self) -> dict[str, float]:
        """The bytes that this rank has exchanged since the last call, for the record; one process has none."""
        if not self.ranks.several:
            return {}
        count, self.ranks.exchanged = self.ranks.exchanged, 0
        return {"exchanged": count}

    def align(self, method: Method, average: Average | None) -> dict[str, float]:
        """Let all ranks go on with what rank 0 has: those of unlike machines round differently.

        On machines that are alike, nothing differs, and nothing is sent but a few sums. Returns what to record.
        """
        if not self.ranks.several:
            return {}
        networks = (value for network in method.networks.values() for value in network.state_dict().values())
        held = [*networks, *method.tensors().values()]
        sums = torch.stack([tensor.detach().cpu().double().nan_to_num().sum() for tensor in held])
        if not self.ranks.any(not torch.equal(sums, self.ranks.spread(sums.clone()))):
            return {}
        method.load_state(self.ranks.tell(method.state())[0])
        if average is not None:
            kept = self.ranks.tell(average.tensors)[0]
            average.tensors = {name: tensor.to(average.tensors[name]) for name, tensor in kept.items()}
        return {"aligned": 1.0}


def start(method: Method) -> None:
    """The first codes: rank 0 finds them, and the others take them over."""
    group = ranks.here()
    if not group.several:
        method.start()
        return
    if group.first:
        with ranks.among(ranks.SINGLE):
            method.start()
    state, _ = group.tell(method.state() if group.first else {})
    if not group.first:
        method.load_state(state)
