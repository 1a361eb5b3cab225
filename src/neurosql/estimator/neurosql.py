"""The estimator: what its constructor takes, and its methods."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from neurosql import presets
from neurosql import run as runs
from neurosql.checkpoint import RunFolder
from neurosql.data import ImageSet, from_dataset
from neurosql.data.dataset import is_dataset
from neurosql.data.imageset import RANK, encode_labels, from_array
from neurosql.errors import InputError
from neurosql.estimator.parameters import documented
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.prior import Prior
from neurosql.settings import Settings, former
from neurosql.settings.methods import RECOMMENDED
from neurosql.training import Stopped


@documented
class NeuroSQL(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A generative model by quantile assignment: one generator, no encoder, no discriminator.

    The codes of n images are a permutation of n fixed quantiles of the prior. `fit` alternates between fitting the
    generator to the assigned codes and solving the assignment between images and generated images.

    Samples are numpy arrays or torch tensors, uint8 or float: images (n, h, w), (n, h, w, c) or (n, c, h, w) in
    [0, 1] or 0..255, or vectors (n, p) of any finite numbers, which are standardised by column. What the samples were
    read as is printed with `verbose=1` and kept in `input_`.

    A preset sets every argument that is None:

    - `recommended` is `map` in up to three latent dimensions and `samples` in more. It is `plain` for a prior other
      than the normal one.
    - `map` is for a plane to look at: a mixture of components with a sublattice each.
    - `samples` is for the best samples: the law of the codes is learnt, and `latent_dim` is chosen by the data.
    - `photographs` is for photographs and scans.
    - `plain` is the bare method.
    - `paper` is the method as in the paper, with its learning rate and its loss.

    Attributes
    ----------
    codes_ : (n, latent_dim) float32, the code of each sample that was given to `fit`. Codes of samples that were held
        out for validation are inferred; `train_index_` are the positions of the others.
    lattice_ : (n_train, latent_dim) float32, the quantiles of the prior.
    permutation_ : (n_train,) int64, entry i is the lattice row of training sample i.
    history_ : list of dict, the figures of each epoch.
    input_ : str, what the samples were read as.
    classes_ : names of the classes, if there are labels.

    Examples
    --------
    >>> from neurosql import NeuroSQL, data
    >>> digits = data.load("mnist-sample", limit=64)
    >>> model = NeuroSQL(latent_dim=2, epochs=1, validation_share=0).fit(digits)
    >>> model.codes_.shape
    (64, 2)
    """

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
        random_state: Any = 0,
        verbose: int = 0,
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
        self.random_state = random_state
        self.verbose = verbose
        # The old name of validation_share.
        self.holdout = holdout

    def settings(self) -> Settings:
        """The constructor's arguments as checked settings."""
        given = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        given.pop("verbose")
        if (old := given.pop("holdout", None)) is not None:
            warnings.warn(former.notice("holdout", old), FutureWarning, stacklevel=3)
            given["validation_share"] = old
        if isinstance(given.get("prior"), Prior):
            given["prior"] = "custom"
        return presets.settings(seed=_seed(given.pop("random_state", None)), **given)

    def fit(self, X: Any, y: Any = None, *, out: str | Path | None = None) -> NeuroSQL:
        """Learn the generator and the codes from samples, an ImageSet or a torch Dataset.

        `y` are labels; without `conditional`, they do not enter the training. `out` is a run folder to write.
        """
        settings = self.settings()
        if is_dataset(X):
            X = from_dataset(X)
        images = X if isinstance(X, ImageSet) else self._read(X, y, reset=True)
        self.input_ = images.describe()
        say = print if self.verbose else lambda line: None
        try:
            law = self.prior if isinstance(self.prior, Prior) else None
            fitted = runs.train(images, settings, out, law=law, progress=bool(self.verbose), say=say)
        except Stopped:
            hint = f"continue with `neurosql resume {out}`" if out else "nothing was kept: use fit(..., out=FOLDER)"
            raise KeyboardInterrupt(f"training was stopped; {hint}") from None
        return self._adopt(fitted, images)

    def transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Codes (n, latent_dim) of samples, seen or unseen: the nearest lattice code, refined by gradient.

        A class-conditional model searches the class `y` if it is given, else the cheapest class. The code of a sample
        does not depend on the other samples in the call.
        """
        return self._encode(X, y)[0]

    def inverse_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Samples of codes (n, latent_dim), in the layout and units that `fit` was given (images in [0, 1])."""
        fitted = self._fitted()
        codes = np.asarray(X, dtype=np.float32)
        dim = fitted.settings.generator.dim
        if codes.ndim != 2 or codes.shape[1] != dim:
            raise InputError(f"codes must have shape (n, {dim}), got {codes.shape}")
        labels = self._labels(y, len(codes))
        if fitted.method.classes and labels is None:
            raise InputError("a class-conditional model needs the classes of the codes: give y")
        return fitted.like.restore(fitted.decode(codes, labels))

    def sample(
        self,
        n: int = 1,
        label: Any = None,
        random_state: Any = None,
        *,
        sampler: str | None = None,
        components: int | None = None,
        fraction: float | None = None,
    ) -> np.ndarray:
        """n new samples. A class-conditional model draws the class `label`; by default, classes as in the training set.

        `sampler` draws codes from the prior (the default), `near` the training codes by a `fraction` of the way to a
        draw, `truncated` to the `fraction` of draws nearest to training codes, `between` neighbouring codes, or from a
        `gaussian` or a `mixture` of at most `components` Gaussians that is fitted to the training codes.
        """
        fitted = self._fitted()
        chosen: dict[str, Any] = {"sampler": sampler, "components": components, "fraction": fraction}
        made, _ = fitted.sample(n, label, _seed(random_state), **chosen)
        return fitted.like.restore(made)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean loss of samples at their inferred codes: higher is better."""
        return -float(self._encode(X, y)[2].mean())

    def save(self, path: str | Path) -> None:
        """Write the model as a run folder, which `load` and the command line can open."""
        fitted = self._fitted()
        folder = RunFolder.create(path)
        folder.write_config(fitted.config())
        fitted.save(folder)
        folder.keep_history(0)
        for figures in fitted.history:
            folder.append_history(figures)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", prior: Prior | None = None) -> NeuroSQL:
        """The model of a run folder, written by `save` or `neurosql train`; `prior` is its prior, if custom."""
        fitted = runs.open_run(path, device, prior)
        values = fitted.settings.flat()
        if values.pop("method") != "neurosql":
            raise InputError(f"{path} was trained by {fitted.settings.method}: open it with neurosql.open_run")
        values["random_state"] = values.pop("seed")
        if prior is not None:
            values["prior"] = prior
        return cls(**values | {"device": device})._adopt(fitted, None)

    def _adopt(self, fitted: runs.Run, images: ImageSet | None) -> NeuroSQL:
        self.run_ = fitted
        self.input_ = fitted.data.description
        assert isinstance(fitted.method, QuantileAssignment)
        self.lattice_ = fitted.method.lattice.cpu().numpy()
        self.permutation_ = fitted.method.permutation.numpy()
        self.train_index_ = fitted.index
        self.history_ = fitted.history
        self.n_iter_ = len(fitted.history)
        if fitted.like.classes:
            self.classes_ = np.array(fitted.like.classes)
        if not fitted.data.modality.axes:
            self.n_features_in_ = fitted.data.shape[0]
        self._n_features_out = fitted.settings.generator.dim
        self.codes_ = fitted.method.codes.cpu().numpy()
        if images is not None and len(images) > len(fitted.index):
            trained = self.codes_
            rest = np.setdiff1d(np.arange(len(images)), fitted.index)
            self.codes_ = np.empty((len(images), trained.shape[1]), np.float32)
            self.codes_[fitted.index] = trained
            self.codes_[rest] = fitted.encode(images.x[rest], None if images.labels is None else images.labels[rest])[0]
        return self

    def _encode(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        fitted = self._fitted()
        images = X if isinstance(X, ImageSet) else self._read(X, None, reset=False)
        if images.shape != fitted.data.shape:
            raise InputError(f"samples must have shape {fitted.data.shape}, got {images.shape}")
        labels = self._labels(y, len(images))
        if labels is not None and not fitted.method.classes:
            labels = None
        return fitted.encode(images.x, labels, progress=bool(self.verbose))

    def _read(self, X: Any, y: Any, reset: bool) -> ImageSet:
        """An ImageSet of whatever was given; tables go through scikit-learn's own checks."""
        if not hasattr(X, "detach") and _rank(X) < 3:
            X = validate_data(self, X, reset=reset, dtype=None, ensure_min_samples=2 if reset else 1)
            if X.dtype.kind in "OUS":
                X = X.astype(np.float64)
        like = None if reset else self.run_.like
        labels = None
        if reset and y is not None and (self.conditional or _looks_like_classes(y)):
            labels = y
        return from_array(
            X,
            labels,
            layout=like.layout if like is not None and _rank(X) == RANK[like.layout] else None,
            mean=None if like is None else like.mean,
            std=None if like is None else like.std,
            minimum=2 if reset else 1,
        )

    def _labels(self, y: Any, n: int) -> np.ndarray | None:
        """Class numbers of labels, by the names that the model was trained with."""
        if y is None or not self.run_.method.classes:
            return None
        codes, names = encode_labels(np.full(n, y) if np.ndim(y) == 0 else y, n)
        return np.array([self.run_.class_number(name) for name in names], dtype=np.int64)[codes]

    def _fitted(self) -> runs.Run:
        if not hasattr(self, "run_"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet: call fit first")
        return self.run_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _seed(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`: an int as it is; a generator or None gives a draw."""
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _looks_like_classes(y: Any) -> bool:
    try:
        encode_labels(y, len(y))
    except (InputError, TypeError):
        return False
    return True


def _rank(X: Any) -> int:
    """Number of axes of an array, a sparse matrix, a table or a nested list."""
    return X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
