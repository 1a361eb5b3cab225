"""The constructor of the estimator: its arguments, and the settings that they stand for."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from neurosql import presets
from neurosql.prior import Prior
from neurosql.settings import Settings, former
from neurosql.settings.methods import RECOMMENDED


class Arguments(BaseEstimator):  # type: ignore[misc]
    """An estimator with every setting as an argument; None takes the preset's value."""

    def __init__(
        self,
        latent_dim: int | str | None = None,
        *,
        preset: str = RECOMMENDED,
        generator: str | None = None,
        size: str | None = None,
        width: int | None = None,
        mapping: int | None = None,
        mapping_width: int | None = None,
        taper: bool | None = None,
        resnet18: str | None = None,
        conditional: bool | None = None,
        prior: str | Prior | None = None,
        lattice: str | None = None,
        scale: float | None = None,
        cost: str | None = None,
        start: str | None = None,
        algorithm: str | None = None,
        subset: str | None = None,
        reuse: bool | None = None,
        assignment: str | None = None,
        every: int | None = None,
        momentum: float | None = None,
        anneal: bool | None = None,
        snap: int | None = None,
        components: int | None = None,
        exchange: int | None = None,
        code_rate: float | None = None,
        shared_rate: float | None = None,
        law: str | None = None,
        final_components: int | None = None,
        match: str | None = None,
        fresh: float | None = None,
        fresh_batch: int | None = None,
        fresh_every: int | None = None,
        apart: float | None = None,
        penalty: float | None = None,
        strategy: str | None = None,
        candidates: int | None = None,
        block_size: int | None = None,
        memory: int | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        seconds: float | None = None,
        batch_size: int | None = None,
        optimizer: str | None = None,
        learning_rate: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        schedule: str | None = None,
        cycle: int | None = None,
        weight_decay: float | None = None,
        clip: float | None = None,
        ema: float | None = None,
        validation_share: float | None = None,
        patience: int | None = None,
        validate_every: int | None = None,
        validate_on: int | None = None,
        checkpoint_every: int | None = None,
        device: str | None = None,
        precision: str | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        warm_start: bool = False,
        holdout: float | None = None,
    ) -> None:
        self.latent_dim = latent_dim
        self.preset = preset
        self.generator = generator
        self.size = size
        self.width = width
        self.mapping = mapping
        self.mapping_width = mapping_width
        self.taper = taper
        self.resnet18 = resnet18
        self.conditional = conditional
        self.prior = prior
        self.lattice = lattice
        self.scale = scale
        self.cost = cost
        self.start = start
        self.algorithm = algorithm
        self.subset = subset
        self.reuse = reuse
        self.assignment = assignment
        self.every = every
        self.momentum = momentum
        self.anneal = anneal
        self.snap = snap
        self.components = components
        self.exchange = exchange
        self.code_rate = code_rate
        self.shared_rate = shared_rate
        self.law = law
        self.final_components = final_components
        self.match = match
        self.fresh = fresh
        self.fresh_batch = fresh_batch
        self.fresh_every = fresh_every
        self.apart = apart
        self.penalty = penalty
        self.strategy = strategy
        self.candidates = candidates
        self.block_size = block_size
        self.memory = memory
        self.epochs = epochs
        self.steps = steps
        self.seconds = seconds
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.beta1 = beta1
        self.beta2 = beta2
        self.schedule = schedule
        self.cycle = cycle
        self.weight_decay = weight_decay
        self.clip = clip
        self.ema = ema
        self.validation_share = validation_share
        self.patience = patience
        self.validate_every = validate_every
        self.validate_on = validate_on
        self.checkpoint_every = checkpoint_every
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        # The old name of validation_share.
        self.holdout = holdout

    def settings(self) -> Settings:
        """The constructor's arguments as checked settings."""
        given = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        given.pop("verbose")
        given.pop("warm_start")
        if (old := given.pop("holdout", None)) is not None:
            warnings.warn(former.notice("holdout", old), FutureWarning, stacklevel=3)
            given["validation_share"] = old
        if isinstance(given.get("prior"), Prior):
            given["prior"] = "custom"
        return presets.settings(seed=seed_of(given.pop("random_state", None)), **given)


def seed_of(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: an int as it is; a generator or None gives a draw."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
