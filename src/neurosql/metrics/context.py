"""What an evaluation looks at, and how the functions of its scores are called."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from neurosql.cost import Cost
from neurosql.data.imageset import ImageSet
from neurosql.errors import InputError
from neurosql.methods.base import Method
from neurosql.metrics import inception, weights
from neurosql.metrics.evaluation import Evaluation, Options
from neurosql.metrics.features import Features
from neurosql.metrics.measure import Measure
from neurosql.metrics.records import ScoreRecord
from neurosql.metrics.score import Score
from neurosql.registry import imported
from neurosql.settings import Sampling, Settings

LEAST_UNSEEN = 20


class Model(Protocol):
    """What scores need from a trained model. A `Run` is one."""

    @property
    def settings(self) -> Settings:
        """All settings of the run."""

    @property
    def method(self) -> Method:
        """The fitted method."""

    @property
    def like(self) -> ImageSet:
        """An empty set with the shape and classes of the training images."""

    @property
    def has_codes(self) -> bool:
        """Whether samples have codes."""

    def draw(
        self, n: int, label: Any = None, seed: int | None = None, how: Sampling = ...
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """New images, and their class numbers."""

    def reconstruct(self) -> np.ndarray:
        """The model's version of each training image."""

    def encode(
        self, images: np.ndarray, labels: np.ndarray | None = None, progress: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Codes, class numbers and losses of images."""

    def decode(self, codes: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Images of codes."""


class Context:
    """A run, its images, and what several scores need from them, computed on first use."""

    def __init__(
        self, run: Model, train: ImageSet, heldout: ImageSet | None, options: Options, result: Evaluation
    ) -> None:
        self.run, self.train, self.heldout, self.options, self.result = run, train, heldout, options, result
        self.kind = run.like.kind
        """The kind of data: image, signal, volume or vector. The record of a score says which kinds it can judge."""
        self.kinds = (self.kind, *run.like.modality.also)
        """The kind, and narrower kinds that the data also belong to."""
        self.cost = Cost.named(run.settings.latent.cost)
        self.random = np.random.default_rng(options.seed)
        """The families draw from it, one after the other."""
        self._weights: dict[str, dict[str, Tensor] | None] = {}
        self.inception: Features | None = None
        if options.inception is not None:
            if self.kind != "image":
                raise InputError(f"Inception-v3 needs images, but the data are {self.kind}s")
            self.inception = inception.load(options.inception)
            self.inception_hash = hashlib.sha256(Path(options.inception).read_bytes()).hexdigest()[:12]

    @property
    def unseen(self) -> ImageSet | None:
        """Images that were not trained on; None if there are too few of them to judge samples by."""
        return None if self.heldout is None or len(self.heldout) < LEAST_UNSEEN else self.heldout

    @cached_property
    def samples(self) -> np.ndarray:
        """New samples (n, *shape)."""
        return self.draw(self.options.samples, self.options.seed)[0]

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray | None]:
        """n new samples and, in the class-conditional case, their class numbers, from the chosen sampler."""
        return self.run.draw(n, seed=seed, how=self.options.sampling)

    @cached_property
    def reconstructions(self) -> np.ndarray:
        """The reconstructions of all training images."""
        return self.run.reconstruct()

    @property
    def labelled_images(self) -> bool:
        """Whether a classifier of the labels can be used: there are labels, and samples are not rows of a table."""
        return self.train.labels is not None and self.kind != "vector"

    def applies(self, record: ScoreRecord) -> bool:
        """Whether a score can judge this kind of data."""
        return not record.kinds or any(kind in record.kinds for kind in self.kinds)

    def weights(self, name: str) -> dict[str, Tensor] | None:
        """Published weights; if they have not been fetched, None, and the evaluation says how to get them."""
        if name not in self._weights:
            self._weights[name] = weights.load(name) if self.kind == "image" else None
        if self._weights[name] is None:
            self.leave_out(weights.how_to_get(name))
        return self._weights[name]

    def leave_out(self, sentence: str) -> None:
        """Note, once, what could not be computed, and why."""
        if sentence not in self.result.left_out:
            self.result.left_out.append(sentence)

    def add(
        self,
        record: ScoreRecord,
        found: Measure,
        mode: str,
        n: int,
        features: str | None = None,
        seed: int | None = None,
    ) -> None:
        """Add a score to the evaluation."""
        self.result.scores.append(
            Score(
                *(record.name, float(found.value), mode, record.direction, n if found.n is None else found.n),  # type: ignore[arg-type]
                n_real=found.n_real,
                seed=self.options.seed if seed is None else seed,
                features=features,
                interval=found.interval,
                spread=found.spread,
                floor=found.floor,
                floor_interval=found.floor_interval,
                note=found.note or record.note,
            )
        )

    def available(self, records: Iterable[ScoreRecord]) -> list[ScoreRecord]:
        """The scores whose weights, if they need any, have been fetched."""
        return [record for record in records if not record.weights or self.weights(record.weights) is not None]

    def call(self, records: Sequence[ScoreRecord], offered: Mapping[str, Any]) -> dict[str, Any]:
        """What the functions of some records return, by name of the score. Each function is called once."""
        given: dict[tuple[Any, ...], Any] = {}
        found = {}
        for record in records:
            key = (record.function, record.arguments, record.weights)
            if key not in given:
                given[key] = imported(record.function)(*self._arguments(record, offered))
            whole = given[key]
            if not isinstance(whole, dict):
                found[record.name] = whole
            elif record.name in whole:
                found[record.name] = whole[record.name]
        return found

    def _arguments(self, record: ScoreRecord, offered: Mapping[str, Any]) -> list[Any]:
        known = {"seed": self.options.seed, **offered}
        if record.weights:
            known["weights"] = self.weights(record.weights)
        for name in record.arguments:
            if name not in known:
                raise InputError(
                    f"the score {record.name!r} takes {name!r}, but the family {record.family} has {', '.join(known)}"
                )
        return [known[name] for name in record.arguments]
