"""From images and settings to a fitted model, and from a run folder back to it."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import neurosql
from neurosql import generators, prior
from neurosql.checkpoint import CHECKPOINT, CODES, MODEL, RunFolder
from neurosql.cost import Cost
from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.settings import SECTIONS, Settings
from neurosql.training import Stopped, Trainer

STATISTICS = ("data.mean", "data.std")
LARGE = 8000
FAR = 0.6


@dataclasses.dataclass
class Run:
    """A fitted model with what it takes to use it: its settings, the shape of its data and its codes."""

    settings: Settings
    data: dict[str, Any]
    """What the training images were: source, shape, kind, layout, classes, counts and fingerprints."""
    method: QuantileAssignment
    like: ImageSet
    """An empty set with the layout, classes and column statistics of the training images."""
    index: np.ndarray
    """Places of the training images in the data that were given: the rest was held out."""
    labels: np.ndarray | None
    """Labels of the training images."""
    history: list[dict[str, Any]]

    def sample(self, n: int, label: Any = None, seed: int | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """n new images (n, *shape) and, in the class-conditional case, their class numbers."""
        if n < 1:
            raise InputError(f"the number of samples must be at least 1, got {n}")
        random = torch.Generator()
        random.manual_seed(seed) if seed is not None else random.seed()
        images, labels = self.method.sample(n, self.class_number(label), random)
        return images.cpu().numpy(), None if labels is None else labels.cpu().numpy()

    def class_number(self, label: Any) -> int | None:
        """The number of the class of that name."""
        if label is None:
            return None
        if not self.method.generator.classes:
            raise InputError(f"this model is not class-conditional, got label {label!r}: train it with conditional")
        if str(label) not in self.like.classes:
            raise InputError(f"no class {str(label)!r}: the model has {', '.join(self.like.classes)}")
        return self.like.classes.index(str(label))

    def encode(
        self, images: np.ndarray, labels: np.ndarray | None = None, progress: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Codes (n, d), class numbers and losses of images (n, *shape)."""
        device = self.method.lattice.device
        x = torch.from_numpy(np.ascontiguousarray(images)).to(device)
        y = None if labels is None else torch.from_numpy(labels).to(device)
        codes, found, losses = self.method.encode(x, y, progress=progress)
        return codes.cpu().numpy(), None if found is None else found.cpu().numpy(), losses.cpu().numpy()

    def decode(self, codes: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Images (n, *shape) of codes (n, d)."""
        z = torch.from_numpy(np.ascontiguousarray(codes)).to(self.method.lattice)
        y = None if labels is None else torch.from_numpy(labels).to(z.device)
        return self.method.decode(z, y).cpu().numpy()

    def save(self, folder: RunFolder) -> None:
        """Weights and codes; the settings were written when the run began."""
        weights = dict(self.method.generator.state_dict())
        if self.like.mean is not None and self.like.std is not None:
            weights |= dict(zip(STATISTICS, map(torch.from_numpy, (self.like.mean, self.like.std))))
        folder.write_tensors(MODEL, weights)
        codes = {name: getattr(self.method, name) for name in ("lattice", "codes", "permutation")}
        codes["index"] = torch.from_numpy(self.index)
        if self.labels is not None:
            codes["labels"] = torch.from_numpy(self.labels)
        if self.method.lattice_labels is not None:
            codes["lattice_labels"] = self.method.lattice_labels
        folder.write_tensors(CODES, codes)

    def config(self) -> dict[str, Any]:
        """What `config.json` holds besides its format."""
        return {
            "method": "neurosql",
            "version": neurosql.__version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
            "threads": torch.get_num_threads(),
            "settings": {section: dataclasses.asdict(getattr(self.settings, section)) for section in SECTIONS},
            "network": self.method.generator.config(),
            "parameters": self.method.generator.parameter_count,
            "data": self.data,
        }


def train(
    images: ImageSet,
    settings: Settings,
    out: str | Path | None = None,
    limit: int | None = None,
    law: prior.Prior | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Train a model on images and, where `out` is given, leave a run folder; `law` is a prior of the caller's own.

    Raises `Stopped` after Ctrl-C: the folder then holds a checkpoint to resume from, and the model so far.
    """
    run, heldout = _prepare(images, settings, limit, law)
    folder = None if out is None else RunFolder.create(out)
    if folder is not None:
        folder.write_config(run.config())
    say(_summary(run, heldout))
    run.method.start()
    return _fit(run, images, heldout, folder, progress)


def resume(
    path: str | Path,
    read: Callable[[str, int | None], ImageSet],
    source: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Go on with a stopped run; `read(source, limit)` brings its images back."""
    folder = RunFolder.existing(path)
    config = folder.config()
    settings = settings_of(config)
    # Killed before its first checkpoint, a run begins anew: the seed makes it the same run.
    begun = folder.read_tensors(CHECKPOINT) if folder.has(CHECKPOINT) else None
    images = read(source or config["data"]["path"], config["data"]["limit"])
    if images.fingerprint != config["data"]["fingerprint"]:
        raise InputError(f"{images.source} does not hold the images that {path} was trained on: name them with --data")
    run, heldout = _prepare(images, settings, config["data"]["limit"])
    folder.keep_history(begun[1]["records"] if begun else 0)
    run.history[:] = folder.history()
    say(_summary(run, heldout))
    if begun is None:
        run.method.start()
    return _fit(run, images, heldout, folder, progress, begun)


def _prepare(
    images: ImageSet, settings: Settings, limit: int | None, law: prior.Prior | None = None
) -> tuple[Run, ImageSet | None]:
    """The model before its first step, and the images held out for validation."""
    settings = settings.resolve(images.kind)
    training = settings.training
    index, heldout = np.arange(len(images)), images.heldout
    if heldout is None:
        index, rest = images.split(training.holdout, training.seed)
        heldout = images.take(rest) if len(rest) else None
    conditional = settings.generator.conditional
    if conditional and images.labels is None:
        raise InputError("conditional needs labels: a folder a class, 'labels' in the .npz, or y")
    if conditional and heldout is not None and heldout.labels is not None and images.labels is not None:
        # A class without training images has no codes to validate on.
        heldout = heldout.take(np.flatnonzero(np.isin(heldout.labels, images.labels[index]))) or None
    options: dict[str, Any] = {}
    if settings.generator.generator == "resnet":
        options["taper"] = settings.generator.taper
    elif settings.generator.resnet18:
        raise InputError(f"resnet18 weights fit the resnet generator only, got {settings.generator.generator!r}")
    network = generators.make(
        settings.generator.generator,
        images.shape,
        settings.generator.latent_dim,
        size=settings.generator.size,
        width=settings.generator.width,
        classes=len(images.classes) if conditional else None,
        seed=training.seed,
        bounded=images.kind != "vector",
        **options,
    )
    if settings.generator.resnet18:
        from neurosql.generators.resnet import load_resnet18

        load_resnet18(network, settings.generator.resnet18)
    device = _device(training.device)
    method = _method(network.to(device), settings, law)
    method.attach(*_tensors(images, index, device), training.seed)
    data = {
        "source": images.source,
        "path": str(Path(images.source).resolve()) if Path(images.source).exists() else images.source,
        "limit": limit,
        "description": images.describe(),
        "kind": images.kind,
        "shape": list(images.shape),
        "layout": images.layout,
        "classes": list(images.classes),
        "fingerprint": images.fingerprint,
        "trained": len(index),
        "heldout": 0 if heldout is None else len(heldout),
    }
    labels = None if images.labels is None else images.labels[index]
    return Run(settings, data, method, images.take(np.arange(0)), index, labels, []), heldout


def _fit(
    run: Run,
    images: ImageSet,
    heldout: ImageSet | None,
    folder: RunFolder | None,
    progress: bool,
    begun: tuple[dict[str, Tensor], dict[str, Any]] | None = None,
) -> Run:
    device = run.method.x.device
    validation = None
    if heldout is not None:
        validation = _tensors(heldout, np.arange(min(len(heldout), run.settings.training.validate_on)), device)

    def save(trainer: Trainer) -> None:
        if folder is not None:
            tensors, plain = trainer.state()
            folder.write_tensors(CHECKPOINT, tensors, plain | {"records": len(run.history)})

    def record(figures: dict[str, Any]) -> None:
        run.history.append(figures)
        if folder is not None:
            folder.append_history(figures)

    x, labels = _tensors(images, run.index, device)
    trainer = Trainer(run.method, x, labels, run.settings.training, validation, save, record, progress)
    if begun is not None:
        trainer.load_state(*begun)
    try:
        trainer.run()
    except Stopped:
        if folder is not None:
            run.save(folder)
        raise
    if folder is not None:
        save(trainer)
        run.save(folder)
    return run


def open_run(path: str | Path, device: str = "cpu", law: prior.Prior | None = None) -> Run:
    """The model of a run folder, ready to sample, encode and decode; `law` is its prior, if it was the caller's own."""
    folder = RunFolder.existing(path)
    config = folder.config()
    settings = settings_of(config)
    weights, _ = folder.read_tensors(MODEL)
    codes, _ = folder.read_tensors(CODES)
    try:
        data = config["data"]
        mean, std = (weights.pop(name).numpy() if name in weights else None for name in STATISTICS)
        network = generators.make(**config["network"])
        network.load_state_dict(weights)
        method = _method(network.to(_device(device)).eval(), settings, law)
        method.restore(codes)
        like = ImageSet(
            np.empty((0, *data["shape"]), np.float32),
            classes=tuple(data["classes"]),
            layout=data["layout"],
            mean=mean,
            std=std,
            source=data["source"],
        )
        labels = codes["labels"].numpy() if "labels" in codes else None
        return Run(settings, data, method, like, codes["index"].numpy(), labels, folder.history())
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def settings_of(config: dict[str, Any]) -> Settings:
    """The settings in a run's config."""
    try:
        return Settings(**{section: kind(**config["settings"][section]) for section, kind in SECTIONS.items()})
    except (KeyError, TypeError) as error:
        raise InputError(f"the run's settings can't be read: {error}") from None


def _method(network: generators.Generator, settings: Settings, law: prior.Prior | None) -> QuantileAssignment:
    quantile = settings.quantile
    if law is None:
        if quantile.prior == "custom":
            raise InputError("the model was trained with a prior of its user's own: load it in Python and give prior=")
        law = prior.make(quantile.prior, settings.generator.latent_dim, quantile.lattice, quantile.scale)
    elif law.dim != settings.generator.latent_dim:
        raise InputError(f"latent_dim is {settings.generator.latent_dim}, but the prior has dimension {law.dim}")
    return QuantileAssignment(network, law, Cost.named(quantile.cost), quantile)


def _tensors(images: ImageSet, index: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor | None]:
    x = torch.from_numpy(images.x[index]).to(device)
    return x, None if images.labels is None else torch.from_numpy(images.labels[index]).to(device)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} can't be used: {str(error).splitlines()[0]}") from None
    return device


def distance_to_codes(run: Run, draws: int = 256) -> float:
    """Mean distance of a prior draw to the nearest lattice point, in units of the mean distance of two prior draws.

    Near 0 the generator is asked for what it was trained on, near 1 for what no training code is close to.
    """
    random = torch.Generator().manual_seed(0)
    first, second = (run.method.prior.sample(draws, random) for _ in range(2))
    lattice = run.method.lattice.cpu().double()
    return float(torch.cdist(first, lattice).amin(1).mean() / torch.cdist(first, second).mean())


def _notes(run: Run) -> list[str]:
    """What is better known before training than after it."""
    notes = []
    n, dim = len(run.method.lattice), run.method.prior.dim
    largest = max(len(rows) for rows, _ in run.method.blocks)
    if run.settings.quantile.algorithm == "full" and largest > LARGE:
        notes.append(
            f"note       one assignment of {largest:,} images compares {largest**2:,} pairs: if that takes too long, "
            "use the mini-batch algorithm"
        )
    far = distance_to_codes(run)
    if far > FAR:
        notes.append(
            f"note       {n} codes leave dimension {dim} nearly empty (a prior draw is {far:.2f} of the mean distance "
            "from its nearest code): samples may be poor, try a smaller latent_dim"
        )
    return notes


def _summary(run: Run, heldout: ImageSet | None) -> str:
    network = run.method.generator
    aside = "" if heldout is None else f", {run.data['heldout']} held out"
    lines = [
        f"data       {run.data['description']} ({run.data['trained']} to train on{aside})",
        f"generator  {network.name}, {network.parameter_count:,} parameters, latent dimension {network.latent_dim}",
        f"lattice    {len(run.method.lattice)} quantiles of the {run.method.prior.name} prior",
    ]
    return "\n".join(lines + _notes(run))
