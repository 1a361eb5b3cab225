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
from neurosql import dimension, methods, presets, prior
from neurosql.checkpoint import CHECKPOINT, CODES, MODEL, SPLIT, USED, RunFolder
from neurosql.data import ImageSet, from_array, from_dataset
from neurosql.data.account import account
from neurosql.data.dataset import is_dataset
from neurosql.errors import InputError
from neurosql.generators import Generator
from neurosql.methods.base import USUAL, Method, Task
from neurosql.origin import Origin
from neurosql.settings import DataSettings, Sampling, Settings, former
from neurosql.trained_on import TrainedOn
from neurosql.training import Diverged, Stopped, Trainer, Used

STATISTICS = ("data.mean", "data.std")
NO_LABELS = "conditional needs labels: one folder per class, 'labels' in the .npz, or y; else leave out --conditional"


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

    @property
    def has_codes(self) -> bool:
        """Whether samples have codes: GAN and diffusion have none."""
        return self.method.has_codes

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

    def reconstruct(self) -> np.ndarray:
        """The model's version of each training image, (n, *shape)."""
        return self.method.reconstruct().cpu().numpy()

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
        random = torch.Generator()
        random.manual_seed(seed) if seed is not None else random.seed()
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
        self, images: np.ndarray, labels: np.ndarray | None = None, progress: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Codes (n, d), class numbers and losses of images (n, *shape)."""
        device = self.method.device
        x = torch.from_numpy(np.ascontiguousarray(images)).to(device)
        y = None if labels is None else torch.from_numpy(labels).to(device)
        codes, found, losses = self.method.encode(x, y, progress=progress)
        return codes.cpu().numpy(), None if found is None else found.cpu().numpy(), losses.cpu().numpy()

    def decode(self, codes: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Images (n, *shape) of codes (n, d)."""
        z = torch.from_numpy(np.ascontiguousarray(codes, dtype=np.float32)).to(self.method.device)
        y = None if labels is None else torch.from_numpy(labels).to(z.device)
        return self.method.decode(z, y).cpu().numpy()

    def save(self, folder: RunFolder) -> None:
        """Write the weights and the codes; the settings were written when the run began."""
        networks = self.method.networks
        weights = {f"{name}.{k}": v for name in networks for k, v in networks[name].state_dict().items()}
        if self.like.mean is not None and self.like.std is not None:
            weights |= dict(zip(STATISTICS, map(torch.from_numpy, (self.like.mean, self.like.std))))
        folder.write_tensors(MODEL, weights)
        codes = self.method.kept()
        codes["index"] = torch.from_numpy(self.index)
        if self.labels is not None:
            codes["labels"] = torch.from_numpy(self.labels)
        known = self.trained_on()
        if known is None:
            folder.write_tensors(CODES, codes)
        else:
            folder.write_tensors(CODES, codes | known.tensors(), known.plain())
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
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
            },
            "threads": torch.get_num_threads(),
            "settings": self.settings.sections(),
            "networks": {name: _network(network) for name, network in self.method.networks.items()},
            "data": self.data.record(),
        }


def fit(
    X: Any,
    y: Any = None,
    method: str = "neurosql",
    *,
    preset: str = "recommended",
    budget: str = "laptop",
    out: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Train the named method on samples (an array, a tensor, a torch Dataset or an ImageSet), with labels y.

    `preset` and `budget` are those of `neurosql train`. `settings` are its settings by name; they override both.
    """
    images = X if isinstance(X, ImageSet) else from_dataset(X) if is_dataset(X) else from_array(X, y)
    return train(images, presets.settings(method, preset, budget, **settings), out, progress=progress)


def train(
    images: ImageSet,
    settings: Settings,
    out: str | Path | None = None,
    law: prior.Prior | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    hear: Callable[[dict[str, Any]], None] = lambda figures: None,
) -> Run:
    """Train a model on images and, if `out` is given, write a run folder; `law` is a prior given in Python.

    `say` is called with lines for the user, and `hear` with the figures of each epoch.

    Raises `Stopped` after Ctrl-C: the folder then holds a checkpoint to resume from, and the model so far.
    """
    run, heldout = _prepare(images, settings, law)
    folder = None if out is None else RunFolder.create(out)
    if folder is not None:
        folder.write_config(run.config())
        folder.write_json(SPLIT, run.split)
    say(_summary(run, images))
    run.method.start()
    return _fit(run, images, heldout, folder, progress, hear)


def resume(
    path: str | Path,
    read: Callable[[str, tuple[DataSettings, int]], ImageSet],
    source: str | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda line: None,
    hear: Callable[[dict[str, Any]], None] = lambda figures: None,
) -> Run:
    """Continue a stopped run; `read(source, (how, seed))` returns its images, in the same parts.

    A finished run is opened as it is.
    """
    folder = RunFolder.existing(path)
    if is_finished(folder):
        return open_run(path)
    config = folder.config()
    settings = settings_of(config)
    # A run that was killed before its first checkpoint starts again: the seed makes it the same run.
    begun = folder.read_tensors(CHECKPOINT) if folder.has(CHECKPOINT) else None
    origin = origin_of(config)
    images = read(source or origin.path, reading_of(folder))
    if images.fingerprint != origin.fingerprint:
        raise InputError(
            f"{images.source} does not hold the images that {path} was trained on: give their path with --data"
        )
    run, heldout = _prepare(images, settings)
    folder.keep_history(begun[1]["records"] if begun else 0)
    run.history[:] = folder.history()
    say(_summary(run, images))
    if begun is None:
        run.method.start()
    return _fit(run, images, heldout, folder, progress, hear, begun)


def is_finished(folder: RunFolder) -> bool:
    """Whether the training has finished and its model was written."""
    if not folder.has(CHECKPOINT):
        # A stopped run has a checkpoint: this one was saved from Python, or tidied up.
        return folder.has(MODEL)
    plain = folder.read_plain(CHECKPOINT)
    if "complete" in plain:
        return plain["complete"]
    # Runs of version 0.1.0 do not say that they are complete.
    ended = plain["phase"] == "closing" and plain["epoch"] >= plain["closing_epochs"]
    return ended and folder.has(MODEL) and folder.has(USED) and folder.read_json(USED)["steps"] == plain["step"]


def reading_of(folder: RunFolder) -> tuple[DataSettings, int]:
    """How the samples of a run were read, with its own split if one was made, and the seed."""
    origin = origin_of(folder.config())
    how = DataSettings.from_record(origin.settings)
    if origin.divided:
        how = dataclasses.replace(how, split=str(folder.path / SPLIT))
    return how, origin.seed


def _prepare(images: ImageSet, settings: Settings, law: prior.Prior | None = None) -> tuple[Run, ImageSet | None]:
    """The model before its first step, and the images held out for validation."""
    settings = settings.resolve(images.modality)
    training = settings.training
    index, heldout = np.arange(len(images)), images.validation
    parts = images.split_record()
    if heldout is None:
        index, rest = images.split(training.validation_share, training.seed)
        heldout = images.take(rest) if len(rest) else None
        places = np.array(parts["train"], np.int64)
        parts |= {"train": places[index].tolist()} | ({"validation": places[rest].tolist()} if len(rest) else {})
    conditional = settings.generator.conditional
    if conditional and images.labels is None:
        raise InputError(NO_LABELS)
    if conditional and heldout is not None and heldout.labels is not None and images.labels is not None:
        # A class without training images has no codes to validate on.
        heldout = heldout.take(np.flatnonzero(np.isin(heldout.labels, images.labels[index]))) or None
    device = _device(training.device)
    x, y = _tensors(images, index, device)
    settings, notes = dimension.resolved(settings, x, law)
    classes = len(images.classes) if conditional else None
    method = methods.make(Task(settings, tuple(images.shape), classes, law)).to(device)
    method.attach(x, y, training.seed)
    origin = Origin.of(images, len(index), 0 if heldout is None else len(heldout))
    labels = None if images.labels is None else images.labels[index]
    found = images.reading.found if images.reading else 0
    split = {"count": found or len(images), **parts}
    like = images.take(np.arange(0))
    names = None if images.names is None else images.names[index]
    return Run(settings, origin, method, like, index, labels, [], split=split, notes=notes, names=names), heldout


def _fit(
    run: Run,
    images: ImageSet,
    heldout: ImageSet | None,
    folder: RunFolder | None,
    progress: bool,
    hear: Callable[[dict[str, Any]], None],
    begun: tuple[dict[str, Tensor], dict[str, Any]] | None = None,
) -> Run:
    device = run.method.x.device
    validation = None
    if heldout is not None:
        # Evenly spaced: the images of a folder come class by class.
        shown = np.linspace(0, len(heldout) - 1, min(len(heldout), run.settings.training.validate_on)).round()
        validation = _tensors(heldout, shown.astype(np.int64), device)

    def save(trainer: Trainer, complete: bool = False) -> None:
        if folder is not None:
            tensors, plain = trainer.state()
            folder.write_tensors(CHECKPOINT, tensors, plain | {"records": len(run.history), "complete": complete})

    def record(figures: dict[str, Any]) -> None:
        run.history.append(figures)
        if folder is not None:
            folder.append_history(figures)
        hear(figures)

    x, labels = _tensors(images, run.index, device)
    trainer = Trainer(run.method, x, labels, run.settings.training, validation, save, record, progress)
    if begun is not None:
        trainer.load_state(*begun)
    try:
        trainer.run()
    except Stopped as stop:
        _keep(run, trainer, folder)
        stop.path = None if folder is None else folder.path
        raise
    except Diverged as error:
        if trainer.best is None or folder is None:
            raise
        run.method.load_state(trainer.best)
        _keep(run, trainer, folder)
        raise Diverged(f"{error}. The best model so far, of epoch {trainer.best_epoch}, was kept in the run") from None
    _keep(run, trainer, folder)
    # Last of all: if a run is killed before this, resuming it writes its model again.
    save(trainer, complete=True)
    return run


def _keep(run: Run, trainer: Trainer, folder: RunFolder | None) -> None:
    """Save the current model, and what the training has used."""
    run.method.finish()
    run.used = trainer.used()
    if folder is not None:
        run.save(folder)


def open_run(path: str | Path, device: str = "cpu", law: prior.Prior | None = None) -> Run:
    """The model of a run folder, ready to sample, encode and decode; `law` is its prior, if it was given in Python."""
    folder = RunFolder.existing(path)
    config = folder.config()
    settings = settings_of(config)
    weights, _ = folder.read_tensors(MODEL)
    codes, plain = folder.read_tensors(CODES)
    try:
        data = origin_of(config)
        mean, std = (weights.pop(name).numpy() if name in weights else None for name in STATISTICS)
        classes = len(data.classes) if settings.generator.conditional else None
        method = methods.make(Task(settings, data.shape, classes, law, trained=True))
        for name, network in method.networks.items():
            own = {k.removeprefix(f"{name}."): v for k, v in weights.items() if k.startswith(f"{name}.")}
            network.load_state_dict(own)
            network.eval()
        method.to(_device(device)).restore(codes)
        like = ImageSet(
            np.empty((0, *data.shape), np.float32),
            classes=data.classes,
            layout=data.layout,
            mean=mean,
            std=std,
            source=data.source,
        )
        labels = codes["labels"].numpy() if "labels" in codes else None
        used = Used(**folder.read_json(USED)) if folder.has(USED) else None
        split = folder.read_json(SPLIT) if folder.has(SPLIT) else None
        usual = Sampling(**former.sampling(config["settings"]))
        kept = TrainedOn.restored(codes, plain)
        index = codes["index"].numpy()
        names = None if kept is None else kept.names
        history = folder.history()
        return Run(settings, data, method, like, index, labels, history, used, split, usual, [], names, kept)
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def origin_of(config: dict[str, Any]) -> Origin:
    """What a run was trained on, from its config."""
    try:
        return Origin.from_record(config["data"])
    except (KeyError, TypeError) as error:
        raise InputError(f"the run does not say what it was trained on: {error}") from None


def settings_of(config: dict[str, Any]) -> Settings:
    """The settings in a run's config."""
    try:
        return Settings.from_sections(config["method"], config["settings"])
    except (KeyError, TypeError) as error:
        raise InputError(f"the run's settings can't be read: {error}") from None


def _tensors(images: ImageSet, index: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor | None]:
    # If all are wanted, nothing is copied: a memory-mapped array stays in its file.
    x = torch.from_numpy(images.x if len(index) == len(images) else images.x[index]).to(device)
    return x, None if images.labels is None else torch.from_numpy(images.labels[index]).to(device)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r} can't be used: {str(error).splitlines()[0]}") from None
    return device


def _network(network: torch.nn.Module) -> dict[str, Any]:
    """What `config.json` says about a network."""
    described = network.config() if isinstance(network, Generator) else {}
    return described | {"parameters": sum(p.numel() for p in network.parameters())}


def _summary(run: Run, images: ImageSet) -> str:
    parts = account(images, run.data.trained, run.data.heldout)
    lines = [f"data       {run.data.description}", f"parts      {parts}"]
    if run.settings.method != Settings.method:
        lines.append(f"method     {run.settings.method}, {run.method.title}")
    lines += [f"{name:<10} {fact}" for name, fact in run.method.facts().items()]
    return "\n".join(lines + [f"note       {note}" for note in (*run.notes, *run.method.notes())])
