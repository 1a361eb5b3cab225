"""A fitted model: what it can do, and what a run folder keeps of it."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

import neurosql
from neurosql import circumstances, errors, estimate, memory
from neurosql.checkpoint import CODES, MODEL, SPLIT, USED, RunFolder
from neurosql.data import ImageSet
from neurosql.data.given import like_samples, to_array
from neurosql.encode import CHUNK
from neurosql.errors import InputError
from neurosql.generators import Generator
from neurosql.methods.base import USUAL, Method
from neurosql.origin import Origin
from neurosql.settings import Sampling, Settings
from neurosql.trained_on import TrainedOn
from neurosql.training import Used

STATISTICS = ("data.mean", "data.std")
STEP = "step"
"""Weights and codes are two files: both say after which step they were written, so that no others are used together."""
RANGES = ("data.low", "data.high", "data.whole")
"""What is known about the columns of a table."""


@dataclasses.dataclass
class Run:
    """A fitted model with all that is needed to use it: its settings, the shape of its data and its codes."""

    settings: Settings
    data: Origin
    """What the training images were."""
    method: Method
    like: ImageSet
    """An empty set with the layout, classes and column statistics of the training images."""
    index: np.ndarray
    """Positions of the training images in the given data; the rest was held out."""
    labels: np.ndarray | None
    """Labels of the training images."""
    history: list[dict[str, Any]]
    used: Used | None = None
    """What the training used: steps, time and memory."""
    split: dict[str, Any] | None = None
    """Positions in the source of the samples of each part."""
    usual: Sampling = USUAL
    """How samples are drawn by default."""
    notes: list[str] = dataclasses.field(default_factory=list)
    """What was chosen by the training images, and why: sentences for the user."""
    names: np.ndarray | None = None
    """Names of the files of the training images, if each has one."""
    remembered: TrainedOn | None = None
    """What an opened run remembers of its training images; see `trained_on`."""
    expected_memory: int = 0
    """Peak bytes of the process that training was expected to take, before it began; 0 if that was not estimated."""

    @property
    def has_codes(self) -> bool:
        """Whether samples have codes: GAN and diffusion have none."""
        return self.method.has_codes

    @property
    def shared(self) -> bool:
        """Whether the run was exported for sharing: nothing in it is about single training images."""
        return not len(self.index)

    def need_codes(self) -> None:
        """Refuse what can't be done without the codes of the training images, if these were not shared."""
        if self.shared:
            raise InputError("this model was shared without the codes of its training images: ask whoever trained it")

    def check(self) -> None:
        """Refuse parts that do not belong together, as those of a damaged run."""
        n = len(self.index)
        if self.index.ndim != 1 or self.index.dtype.kind != "i" or (n and self.index.min() < 0):
            raise InputError("the positions of its samples are no list of whole numbers")
        if self.has_codes and self.method.codes.shape != (n, self.settings.generator.dim):
            raise InputError(f"it has {n} samples, but codes of shape {tuple(self.method.codes.shape)}")
        if not all(bool(part.isfinite().all()) for part in self.method.kept().values() if part.is_floating_point()):
            raise InputError("its codes are not finite")
        rows = getattr(self.method, "permutation", None)
        if rows is not None and rows.shape != (n,):
            raise InputError(f"it has {n} samples, but {tuple(rows.shape)} rows of the lattice")
        if self.labels is not None:
            known = self.labels.shape == (n,) and self.labels.dtype.kind == "i"
            if not known or (n and not 0 <= self.labels.min() <= self.labels.max() < len(self.like.classes)):
                raise InputError(f"its labels are not those of {n} samples in {len(self.like.classes)} classes")
        if self.method.classes:
            counts = self.method.class_counts
            if (
                counts.shape != (self.method.classes,)
                or bool((counts < 0).any())
                or not 0 < float(counts.sum()) < 2**53
            ):
                raise InputError("its classes have no counts")
        if (kept := self.remembered) is not None:
            lengths = {len(part) for part in (kept.digests, kept.losses, kept.names) if part is not None}
            if lengths != {n} or kept.digests.shape[1:] != (16,) or kept.losses.ndim != 1:
                raise InputError(f"what it remembers of its {n} samples is not of as many")
        if self.split is not None:
            train = self.split.get("train")
            if not isinstance(train, list) or len(train) != n or not all(isinstance(i, int) for i in train):
                raise InputError(f"{SPLIT} does not list its {n} training samples")

    def trained_on(self) -> TrainedOn | None:
        """Digests, losses and names of the training images.

        None if samples have no codes, or if the run was made by version 0.1.0, which did not keep them.
        """
        if self.remembered is None and self.has_codes and hasattr(self.method, "x"):
            return TrainedOn.of(self.method, self.method.x, self.names)
        return self.remembered

    def code_table(self) -> dict[str, np.ndarray]:
        """What is known about each training image, without a search, as columns of n rows.

        `positions` in the source; `names` of the files and `labels` (names of classes), if there are any; `parts`,
        which is `train` for all; `rows` of the lattice, for methods that assign images to one; `losses` of the
        reconstructions, if they were kept; and `codes` (n, d).
        """
        if not self.has_codes:
            raise InputError(f"{self.settings.method} has no codes: samples come from noise")
        self.need_codes()
        known = self.trained_on()
        positions = self.index if self.split is None else np.array(self.split["train"], np.int64)
        columns: dict[str, np.ndarray | None] = {
            "positions": positions,
            "names": None if known is None else known.names,
            "labels": None if self.labels is None else np.array(self.like.classes)[self.labels],
            "parts": np.full(len(positions), "train"),
            "rows": rows.numpy() if (rows := getattr(self.method, "permutation", None)) is not None else None,
            "losses": None if known is None else known.losses,
            "codes": self.method.codes.cpu().numpy(),
        }
        return {name: values for name, values in columns.items() if values is not None}

    def reconstruct(self, images: Any = None, labels: Any = None) -> np.ndarray:
        """The model's version of each training image, or of these images with these labels: (n, *shape)."""
        if images is None:
            self.need_codes()
            return self.method.reconstruct().cpu().numpy()
        codes, found, _ = self.encode(images, labels)
        return self.decode(codes, found)

    def sample(
        self,
        n: int,
        label: Any = None,
        seed: int | None = None,
        *,
        sampler: str | None = None,
        steps: int | None = None,
        components: int | None = None,
        fraction: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """n new images (n, *shape) and, in the class-conditional case, their class numbers.

        `sampler` is one of those in the method's record, by default its usual one; `steps`, `components` and `fraction`
        are for samplers that have them.
        """
        return self.draw(n, label, seed, Sampling(sampler, steps, components, fraction))

    def draw(
        self, n: int, label: Any = None, seed: int | None = None, how: Sampling = USUAL
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """`sample`, with the choice of a sampler as one value."""
        if n < 1:
            raise InputError(f"the number of samples must be at least 1, got {n}")
        # Samples, the parts that they are made in, their codes in float64, and what a caller makes of them.
        each = 4 * (4 * math.prod(self.data.shape) + 4 * self.settings.generator.dim)
        generator = self.method.networks.get("generator")
        held = estimate.decoding(generator, min(n, CHUNK)) if isinstance(generator, Generator) else 0
        memory.require(n * each + held, f"{n:,} samples", "draw fewer at a time, each time with another seed")
        random = torch.Generator()
        random.manual_seed(errors.seed("seed", seed)) if seed is not None else random.seed()
        images, labels = self.method.sample(n, self.class_number(label), random, self.usual if how == USUAL else how)
        return images.cpu().numpy(), None if labels is None else labels.cpu().numpy()

    def class_number(self, label: Any) -> int | None:
        """The number of the class of that name."""
        if label is None:
            return None
        if not self.method.classes:
            raise InputError(
                f"this model is not class-conditional, got label {label!r}: train it with conditional=True"
            )
        if str(label) not in self.like.classes:
            raise InputError(f"no class {str(label)!r}: the model has {', '.join(self.like.classes)}")
        return self.like.classes.index(str(label))

    def encode(
        self, images: Any, labels: Any = None, progress: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Codes (n, d), class numbers and losses of images (n, *shape): an array, a tensor, or a list of images.

        Pixels are in [0, 1] or uint8. Vectors are in the model's units, standardised by column. `labels` are class
        numbers (n,).
        """
        given = like_samples(images, tuple(self.data.shape), self.data.modality.bounded)
        x = torch.from_numpy(given).to(self.method.device)
        codes, found, losses = self.method.encode(x, self._classes(labels, len(x)), progress=progress)
        return codes.cpu().numpy(), None if found is None else found.cpu().numpy(), losses.cpu().numpy()

    def decode(self, codes: Any, labels: Any = None) -> np.ndarray:
        """Images (n, *shape) of codes (n, d), with class numbers (n,) if the model is class-conditional."""
        z = torch.from_numpy(np.ascontiguousarray(to_array(codes), dtype=np.float32))
        dim = self.settings.generator.dim
        if z.ndim != 2 or z.shape[1] != dim:
            raise InputError(f"codes must have shape (n, {dim}), got {tuple(z.shape)}")
        return self.method.decode(z.to(self.method.device), self._classes(labels, len(z))).cpu().numpy()

    def _classes(self, labels: Any, n: int) -> Tensor | None:
        if labels is None:
            return None
        numbers = to_array(labels)
        if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
            raise InputError(f"labels must be {n} class numbers, got {numbers.dtype} of shape {numbers.shape}")
        return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.int64)).to(self.method.device)

    def save(self, folder: RunFolder) -> None:
        """Write the weights and the codes; the settings were written when the run began."""
        networks = self.method.networks
        weights = {f"{name}.{k}": v for name in networks for k, v in networks[name].state_dict().items()}
        if self.like.mean is not None and self.like.std is not None:
            weights |= dict(zip(STATISTICS, map(torch.from_numpy, (self.like.mean, self.like.std))))
        if (columns := self.like.columns) is not None:
            weights |= dict(zip(RANGES, map(torch.from_numpy, (columns.low, columns.high, columns.whole))))
        when = {} if self.used is None else {STEP: self.used.steps}
        folder.write_tensors(MODEL, weights, when)
        codes = self.method.kept()
        codes["index"] = torch.from_numpy(self.index)
        if self.labels is not None:
            codes["labels"] = torch.from_numpy(self.labels)
        known = self.trained_on()
        if known is None:
            folder.write_tensors(CODES, codes, when)
        else:
            folder.write_tensors(CODES, codes | known.tensors(), known.plain() | when)
        if self.split is not None:
            folder.write_json(SPLIT, self.split)
        if self.used is not None:
            folder.write_json(USED, dataclasses.asdict(self.used))

    def config(self) -> dict[str, Any]:
        """What `config.json` holds besides its format."""
        return {
            "method": self.settings.method,
            "version": neurosql.__version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **circumstances.here(),
            "settings": self.settings.sections(),
            "networks": {name: _network(network) for name, network in self.method.networks.items()},
            "data": self.data.record(),
        }


def _network(network: torch.nn.Module) -> dict[str, Any]:
    """What `config.json` says about a network."""
    described = network.config() if isinstance(network, Generator) else {}
    return described | {"parameters": sum(p.numel() for p in network.parameters())}
