"""What an experiment is: contenders, the grid they run on, and the columns of its table. Nothing here imports torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from neurosql import presets
from neurosql.errors import InputError
from neurosql.metrics.column import Column
from neurosql.settings import METHODS, Sampling, Settings

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .+()=-]{0,99}")
"""What an experiment, or data, may be called: it becomes part of the names of files."""
SMOKE, LAPTOP, PAPER = "smoke", "laptop", "paper"
OF_DIGITS = 28
"""Pixels per side of an MNIST digit."""
LATER = {
    **{"mapping": 0, "mapping_width": 128},
    **{"components": 1, "exchange": 4, "code_rate": 0.0, "match": "cost"},
    **{"shared_rate": 0.0, "law": "fixed", "final_components": 0, "apart": 1.0},
    **{"fresh": 0.0, "fresh_batch": 128, "fresh_every": 6, "block_size": 1024, "reuse": False},
    "precision": "float32",
}
"""Settings added after the first results, with their defaults: runs that do not use them keep their hash."""
IN_COLOUR = ("celeba", "afhq")
"""Data sets whose images have three channels, for which the recommended cost is not the paper's."""
PICTURES = (*IN_COLOUR, "oasis")
"""Data sets of photographs and scans. Their samples are also compared with real images by VGG features, except in the
paper's own tables."""


@dataclass(frozen=True)
class Scale:
    """The sizes that a budget allows, besides those in `presets.BUDGETS`."""

    images: int
    """Training images."""
    pixels: int | None
    """Pixels per side, unless the experiment says; None is the data set's own size."""
    seeds: int
    samples: int
    """Samples that an evaluation draws."""
    size: str = "laptop"
    """Widths of the networks."""
    synthetic: int = 10_000
    """Images that the downstream classifier learns from."""
    classifier_steps: int = 1200
    epochs: int | None = None
    """Epochs, if the runs of a bench have fewer than the budget allows a single run."""
    held_out: int = 2048
    """Largest number of validation images, and of test images."""


SCALES = {
    SMOKE: Scale(images=40, pixels=8, seeds=2, samples=24, synthetic=60, classifier_steps=5, held_out=64),
    LAPTOP: Scale(images=2000, pixels=32, seeds=5, samples=2048, epochs=40),
    PAPER: Scale(images=2000, pixels=None, seeds=5, samples=2048, size="paper"),
}


@dataclass(frozen=True)
class Arm:
    """A contender: a method, its preset, and the settings that differ from the preset."""

    name: str
    """Its name in the table."""
    method: str = "neurosql"
    preset: str = "recommended"
    own: Mapping[str, Any] = field(default_factory=dict)
    """Settings by field name; they override preset and budget."""
    longer: int = 1
    """Factor on the number of epochs."""
    printed: str | None = None
    """Its name in the paper, if the paper has figures for it."""
    sampling: Sampling = field(default_factory=Sampling)
    """How its samples are drawn."""


@dataclass(frozen=True)
class Grid:
    """Some contenders on every combination of data, backbone, latent dimension, and number and size of images."""

    arms: tuple[Arm, ...]
    data: tuple[str, ...] = ("mnist",)
    backbones: tuple[str, ...] = ("convnet",)
    dims: tuple[int, ...] = (8,)
    dims_of_paper: tuple[int, ...] | None = None
    """Latent dimensions at the paper's budget, if they differ."""
    images: tuple[int | None, ...] = (None,)
    """Training images; None is the budget's number."""
    pixels: tuple[int | None, ...] = (None,)
    """Pixels per side; None is the budget's number."""
    batches: tuple[int | None, ...] = (None,)
    """Images per step; None is the budget's number."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure: what is run, and which scores are its columns."""

    name: str
    title: str
    question: str
    """The question that it answers, in one sentence."""
    grids: tuple[Grid, ...]
    columns: tuple[Column, ...]
    """Scores and resources."""
    rows: tuple[str, ...] = ("data", "latent_dim")
    """What tells the groups of rows apart; contenders are compared within a group."""
    averaged: bool = False
    """Whether there is also a table of averages over the latent dimensions."""
    alone: bool = False
    """Whether its runs go one at a time, with all threads and nothing else running: it measures time."""
    downstream: bool = False
    """Whether the downstream classifier is trained."""
    scored: bool = True
    """Whether the models are evaluated: runs that only measure time are not."""
    vgg: bool = True
    """Whether samples of photographs and scans are also compared with real images by VGG features."""
    figures: tuple[str, ...] = ()
    """Pictures beside the table: `samples` and latent `planes` of the first seed, and `lines` against the number of
    images. With `contact` the samples are the result, and come first."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that all contenders share, by field name, besides those of the budget."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Epochs by budget, if not the budget's own number."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """Seeds by budget, if not the budget's own number."""
    printed_under: str = ""
    """The backbone of the paper's figures, if it isn't that of the runs."""
    printed_as: str = ""
    """The paper's own number of the table or figure; empty if it is ours."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(f"an experiment's name must be letters, digits and - only, got {self.name!r}")
        for column in self.columns:
            column.check()

    def jobs(self, budget: str, seeds: int | None = None) -> Iterator[Job]:
        """Every run of the experiment, seed by seed: once one seed is done, there is a first table."""
        scale = scale_of(budget)
        for seed in range(self.seeds.get(budget, scale.seeds) if seeds is None else seeds):
            yield from (self._job(cell, budget, scale, seed) for cell in self._cells(budget))

    def _cells(self, budget: str) -> Iterator[tuple[str, str, int, int | None, int | None, int | None, Arm]]:
        for grid in self.grids:
            dims = grid.dims_of_paper if budget == PAPER and grid.dims_of_paper else grid.dims
            for data in grid.data:
                for backbone in grid.backbones:
                    for images in grid.images:
                        for pixels in grid.pixels:
                            for batch in grid.batches:
                                for dim in dims:
                                    for arm in grid.arms:
                                        yield data, backbone, dim, images, pixels, batch, arm

    def _job(self, cell: tuple[Any, ...], budget: str, scale: Scale, seed: int) -> Job:
        data, backbone, dim, images, pixels, batch, arm = cell
        chosen = {"generator": backbone, "size": scale.size, "latent_dim": dim, "seed": seed}
        epochs = self.epochs.get(budget, scale.epochs) or presets.BUDGETS[budget]["epochs"]
        # The same on every machine, whatever is quickest there.
        chosen |= {"epochs": epochs * arm.longer, "precision": "float32"}
        chosen |= {"batch_size": batch} if batch else {}
        own = {**chosen, **self.settings, **arm.own}
        if budget == SMOKE:
            # What is varied stays varied.
            images, pixels = images and 10 + images // 400, pixels and pixels // 8
            own = {"width": 8} | own | {"batch_size": batch // 8 if batch else 16}
        return Job(
            experiment=self.name,
            budget=budget,
            data=data,
            images=images or scale.images,
            pixels=OF_DIGITS if data == "mnist" and budget != SMOKE else pixels or scale.pixels,
            backbone=backbone,
            latent_dim=dim if METHODS[arm.method].latent else None,
            arm=arm.name,
            preset=arm.preset,
            printed=arm.printed,
            sampling=arm.sampling,
            settings=presets.settings(arm.method, arm.preset, budget, **own),
            samples=scale.samples if self.scored else 0,
            synthetic=scale.synthetic if self.downstream else 0,
            classifier_steps=scale.classifier_steps if self.downstream else 0,
            alone=self.alone,
            # The smallest budget shows that everything works, and should need nothing but the package.
            vgg=self.vgg and self.scored and data in PICTURES and budget != SMOKE,
        )


@dataclass(frozen=True)
class Job:
    """One run of an experiment, in its own process."""

    experiment: str
    budget: str
    data: str
    images: int
    pixels: int | None
    backbone: str
    latent_dim: int | None
    arm: str
    preset: str
    printed: str | None
    settings: Settings
    samples: int
    synthetic: int
    """Images that the downstream classifier learns from; 0 trains none."""
    classifier_steps: int
    alone: bool
    sampling: Sampling = field(default_factory=Sampling)
    vgg: bool = False
    """Whether samples are also compared by VGG features, which need published weights."""

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.settings.training.seed

    @property
    def batch(self) -> int:
        """Images per step."""
        return self.settings.training.batch_size

    @property
    def config(self) -> str:
        """A hash of all that decides the result except the seed: a run that two experiments share is made once."""
        settings = self.settings.flat()
        for name in ("seed", "device", *(name for name, usual in LATER.items() if settings.get(name) == usual)):
            settings.pop(name)
        # `auto` stands for the paper's cost in the hashes of all runs but those that the recommended one differs for.
        recommended = "colour" if self.data in IN_COLOUR else "auto"
        settings["cost"] = {"auto": recommended, "paper": "auto"}.get(settings["cost"], settings["cost"])
        content = {"data": self.data, "images": self.images, "pixels": self.pixels, "settings": settings}
        content |= {"samples": self.samples, "synthetic": self.synthetic, "alone": self.alone}
        content |= {"classifier_steps": self.classifier_steps}
        # Only if they were chosen: runs with the usual sampling, and without VGG features, keep their hash.
        sampling = {k: v for k, v in asdict(self.sampling).items() if k != "fraction" or v is not None}
        content |= {"sampling": sampling} if self.sampling != Sampling() else {}
        content |= {"vgg": True} if self.vgg else {}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def key(self) -> tuple[str, int]:
        """What tells two runs apart: their config and their seed."""
        return self.config, self.seed

    @property
    def folder(self) -> str:
        """The name of the folder that the job works in."""
        return f"{self.config}-{self.seed}"

    def describe(self) -> str:
        """The run in a few words."""
        dim = "" if self.latent_dim is None else f" d={self.latent_dim}"
        return f"{self.data} {self.backbone}{dim} {self.arm}, seed {self.seed}"

    def record(self) -> dict[str, Any]:
        """The job as plain values, for JSON."""
        names = [f.name for f in fields(self) if f.name != "settings"]
        settings = {"method": self.settings.method, "sections": self.settings.sections()}
        return {name: getattr(self, name) for name in names} | {"settings": settings, "sampling": asdict(self.sampling)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Job:
        """The job from its `record`."""
        settings = Settings.from_sections(record["settings"]["method"], record["settings"]["sections"])
        return cls(**record | {"settings": settings, "sampling": Sampling(**record.get("sampling", {}))})


def scale_of(budget: str) -> Scale:
    """The sizes that a budget allows."""
    if budget not in SCALES:
        raise InputError(f"budget must be one of {', '.join(SCALES)}, got {budget!r}")
    return SCALES[budget]
