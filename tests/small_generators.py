"""Small generators whose computation is written down: each backbone, and one with operations of one's choice."""

import torch
from torch import nn

from neurosql import generators
from neurosql.generators.base import Generator

BACKBONES = ("convnet", "mlp", "resnet", "transformer", "unet")


def made(name, **options):
    """A small generator whose batch norms have seen something, so that none of its parts does nothing."""
    size = {"width": 16} | ({"depth": 2} if name in ("mlp", "transformer") else {})
    network = generators.make(name, (1, 10, 13), 3, seed=1, **size | options)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for tensor in (*network.parameters(), *network.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(1 + 0.2 * torch.rand(tensor.shape, generator=random))
        for name, tensor in network.state_dict().items():
            if name.endswith(("bias", "running_mean")):
                tensor.add_(torch.randn(tensor.shape, generator=random), alpha=0.1)
    return network.eval()


class Odd(Generator):
    """A generator of another package; `twist` is what it does to its hidden values."""

    name = "odd"

    def __init__(self, twist):
        super().__init__((2, 3), 2, classes=None, bounded=False)
        self.entry, self.head, self.twist = nn.Linear(2, 8), nn.Linear(8, 6), twist

    def decode(self, code):
        return self.head(self.twist(self.entry(code)))
