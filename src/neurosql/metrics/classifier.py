"""A small convolutional classifier: features of a labelled set, and the downstream test of synthetic images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import precision_recall_fscore_support
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d, relu
from tqdm import tqdm

from neurosql.metrics.arrays import takes_tensors
from neurosql.metrics.features import Features, chunked
from neurosql.modality import of_shape

EPOCHS = 12
BATCH = 128
RATE = 2e-3


class Classifier(nn.Module):
    """Two or three convolutions with pooling and two linear layers for images; three linear layers for all else."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList()
        values = int(np.prod(shape))
        if of_shape(shape).features == "conv":
            channels, height, width = shape
            for out in (32, 64, 64):
                if min(height, width) < 4:
                    break
                self.convolutions.append(nn.Conv2d(channels, out, 3, padding=1))
                channels, height, width = out, height // 2, width // 2
            while min(height, width) > 7:
                height, width = height // 2, width // 2
            values = channels * height * width
        self.hidden = nn.Linear(values, 128)
        self.last = nn.Linear(128, classes)

    def features(self, x: Tensor) -> Tensor:
        """The 128 values before the last layer."""
        for convolution in self.convolutions:
            x = relu(max_pool2d(convolution(x), 2))
        while x.ndim == 4 and min(x.shape[2:]) > 7:
            x = max_pool2d(x, 2)
        return relu(self.hidden(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.features(x))


def train_classifier(
    x: np.ndarray,
    labels: np.ndarray,
    classes: int,
    seed: int = 0,
    epochs: int = EPOCHS,
    progress: bool = False,
    steps: int | None = None,
) -> Classifier:
    """A classifier fitted to images (n, *shape) and labels (n,), by Adam with a one-cycle schedule.

    With `steps` instead of epochs, the effort is the same for sets of different sizes. Images are shifted by up to two
    pixels in training.
    """
    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Classifier(tuple(x.shape[1:]), classes)
    images, targets = torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(labels.astype(np.int64))
    batches = max(1, len(x) // BATCH)
    total = steps if steps is not None else epochs * batches
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=max(total, 2))
    order = torch.empty(0, dtype=torch.int64)
    for _ in tqdm(range(total), desc="classifier", unit="step", leave=False, disable=not progress):
        if len(order) < min(BATCH, len(x)):
            order = torch.randperm(len(x), generator=random)
        index, order = order[:BATCH], order[BATCH:]
        batch = images[index]
        if batch.ndim == 4 and min(batch.shape[2:]) > 16:
            dy, dx = torch.randint(-2, 3, (2,), generator=random).tolist()
            batch = batch.roll((dy, dx), (2, 3))
        optimizer.zero_grad()
        cross_entropy(net(batch), targets[index]).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


def classifier_features(net: Classifier) -> Features:
    """The features of a fitted classifier."""
    return chunked(net.features)


@dataclass(frozen=True)
class Downstream:
    """How well a classifier does on real images."""

    accuracy: float
    precision: float
    """Mean over classes."""
    recall: float
    """Mean over classes."""
    right: int
    n: int


@takes_tensors
def evaluate_classifier(net: Classifier, x: np.ndarray, labels: np.ndarray) -> Downstream:
    """Accuracy, and precision and recall averaged over classes, on images (n, *shape) and labels (n,)."""
    predicted = chunked(net)(x).argmax(1)
    precision, recall, _, _ = precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0.0)
    right = int((predicted == labels).sum())
    return Downstream(right / len(labels), float(precision), float(recall), right, len(labels))
