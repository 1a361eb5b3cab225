"""Quantile assignment on a small scale, for the tests of the method."""

import numpy as np
import torch

from neurosql import generators, prior
from neurosql.cost import Cost
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.settings import QuantileSettings


def build(x, labels=None, *, dim=2, dtype=torch.float64, seed=0, law=None, **settings):
    """A method on vectors or images with a small mlp, before its first step."""
    x = torch.as_tensor(np.asarray(x)).to(dtype)
    classes = None if labels is None else int(max(labels)) + 1
    bounded = x.ndim > 2
    network = generators.make("mlp", x.shape[1:], dim, classes=classes, width=32, bounded=bounded, seed=seed).to(dtype)
    cost = Cost.named("ssim+l1" if bounded else "l2")
    method = QuantileAssignment(network, law or prior.Normal(dim), cost, QuantileSettings(**settings))
    method.attach(x, None if labels is None else torch.as_tensor(labels), seed)
    method.start()
    return method
