"""A moving average of the weights, which validation and the final model use in place of the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from neurosql.methods.base import Method


class Average:
    """An exponential moving average of the weights and running statistics of the networks that a method chooses."""

    def __init__(self, method: Method, decay: float) -> None:
        names = method.averaged or method.sampling
        self.networks, self.decay = torch.nn.ModuleDict({n: method.networks[n] for n in names}), decay
        self.tensors = {k: v.detach().clone() for k, v in self.networks.state_dict().items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the weights after step number `step` (from 0); the first steps forget the start sooner."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, value in self.networks.state_dict().items():
            if value.is_floating_point():
                self.tensors[name].lerp_(value, 1 - decay)
            else:
                self.tensors[name].copy_(value)

    def install(self) -> None:
        """Put the averaged weights into the networks."""
        self.networks.load_state_dict(self.tensors)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the averaged weights into the networks, within the context."""
        current = {k: v.detach().clone() for k, v in self.networks.state_dict().items()}
        self.install()
        try:
            yield
        finally:
            self.networks.load_state_dict(current)
