"""The estimator: fit, transform, sample, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.exceptions import NotFittedError

from neurosql import run as runs
from neurosql.checkpoint import RunFolder
from neurosql.data import ImageSet
from neurosql.data.given import to_array
from neurosql.data.imageset import encode_labels
from neurosql.errors import InputError
from neurosql.estimator import further, lines, reading
from neurosql.estimator.arguments import Arguments, seed_of
from neurosql.estimator.output import delivered
from neurosql.estimator.parameters import documented
from neurosql.fitted import Run
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.prior import Prior
from neurosql.settings import Settings
from neurosql.training import Stopped

Callback = Callable[[dict[str, Any]], Any]
"""Called with the figures of each epoch; True stops the training."""


@documented
class NeuroSQL(TransformerMixin, Arguments):  # type: ignore[misc]
    """A generative model by quantile assignment: one generator, no encoder, no discriminator.

    The codes of n images are a permutation of n fixed quantiles of the prior. `fit` alternates between fitting the
    generator to the assigned codes and solving the assignment between images and generated images.

    Samples are images (n, h, w), (n, h, w, c) or (n, c, h, w), as floats in [0, 1] or whole numbers from 0 to 255, or
    tables (n, p) of any finite numbers, which are standardised by column. They may be numpy arrays, torch tensors,
    lists, data frames, Pillow images, a torch Dataset or DataLoader, or the path of files. What they were read as is
    printed with `verbose=1` and kept in `input_`. Values out of range are refused, never clipped.

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
    codes_ : float32 array of shape (n, latent_dim)
        The code of each sample that was given to `fit`. Codes of samples that were held out for validation are
        inferred; `train_index_` are the positions of the others.
    lattice_ : float32 array of shape (n_train, latent_dim)
        The quantiles of the prior.
    permutation_ : int64 array of shape (n_train,)
        Entry i is the lattice row of training sample i.
    history_ : list of dict
        The figures of each epoch.
    input_ : str
        What the samples were read as.
    run_ : Run
        The trained model, as `neurosql.fit` returns it.
    classes_ : array of str
        Names of the classes, if there are labels.

    Examples
    --------
    >>> from neurosql import NeuroSQL, data
    >>> digits = data.load("mnist-sample", limit=64)
    >>> model = NeuroSQL(latent_dim=2, epochs=1, validation_share=0).fit(digits)
    >>> model.codes_.shape
    (64, 2)
    """

    def fit(
        self, X: Any, y: Any = None, *, out: str | Path | None = None, callback: Callback | None = None
    ) -> NeuroSQL:
        """Learn the generator and the codes from samples.

        Parameters
        ----------
        X : array, tensor, data frame, list, Dataset, DataLoader, ImageSet, str or Path
            The samples: see above. A list holds rows, arrays, tensors or Pillow images. Items of a torch Dataset are
            samples, pairs of a sample and its label, or dictionaries with both. A path is read as by `neurosql train`:
            it is divided into parts, and the model learns from the training part.
        y : array-like of shape (n,), default=None
            Labels, names or whole numbers. Without `conditional`, they do not enter the training.
        out : str or Path, default=None
            A run folder to write.
        callback : callable, default=None
            Called with the figures of each epoch, a dictionary as in `history_`. If it returns True, training ends as
            if its budget were spent: the best model so far is kept, or the last one if nothing is held out.

        Returns
        -------
        self : NeuroSQL
        """
        settings = self.settings()
        before = self.run_ if self.warm_start and hasattr(self, "run_") else None
        images = reading.to_train_on(self, X, y, settings, None if before is None else before.like)
        if before is None:
            return self._train(images, settings, out, callback)
        settings = further.going_on(before, settings, images)
        return self._train(images, settings, out, callback, further.from_images(before, images))

    def fit_more(
        self,
        X: Any = None,
        y: Any = None,
        *,
        epochs: int | None = None,
        out: str | Path | None = None,
        callback: Callback | None = None,
    ) -> NeuroSQL:
        """Go on training, for `epochs` more epochs, with more samples if they are given.

        Samples that the model knows keep their codes at the start; those of new samples X, of any kind that `transform`
        takes, are inferred. The lattice is then laid out for all samples and matched to these codes, and training goes
        on as usual: the schedule of the learning rate begins again, and the codes are again a permutation of the
        lattice. If samples were held out for validation, so is a share of the new ones. `codes_` has the codes of all
        samples, the new ones last, and `history_` goes on. A class-conditional model needs the labels `y` of X.

        A model that was loaded does not have its samples any more: set `warm_start` and give all of them to `fit`.
        """
        before, images = self._fitted(), getattr(self, "_images", None)
        if images is None:
            raise InputError(
                "this model was loaded without its training samples: set_params(warm_start=True), and give all samples "
                "to fit"
            )
        settings = further.going_on(before, self.settings(), images)
        if epochs is not None:
            settings = replace(settings, training=replace(settings.training, epochs=epochs))
        new = None
        if X is not None:
            new = reading.like_training(self, before, X, y, labelled=bool(before.method.classes))
        share, seed = settings.training.validation_share, settings.training.seed
        images, begin = further.with_more(before, images, new, share, seed)
        return self._train(images, settings, out, callback, begin)

    def _train(
        self,
        images: ImageSet,
        settings: Settings,
        out: str | Path | None,
        callback: Callback | None,
        begin: runs.Beginning | None = None,
    ) -> NeuroSQL:
        self.input_ = images.describe()
        heard: dict[str, Any] = {"hear": callback} if callback is not None else {}
        heard |= {"progress": bool(self.verbose), "say": print if self.verbose else lambda line: None}
        try:
            law = self.prior if isinstance(self.prior, Prior) else None
            fitted = runs.train(images, settings, out, law=law, begin=begin, **heard)
        except Stopped:
            hint = f"continue with `neurosql resume {out}`" if out else "nothing was kept: use fit(..., out=FOLDER)"
            raise KeyboardInterrupt(f"training was stopped; {hint}") from None
        return self._adopt(fitted, images)

    def transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Codes (n, latent_dim) of samples, seen or unseen: the nearest lattice code, refined by gradient.

        X is of any kind that `fit` takes; a path is read in the same way as the training samples were, and a Pillow
        image is a set of one. A class-conditional model searches the class `y` if it is given, else the cheapest class.
        The code of a sample does not depend on the other samples in the call. With `set_output(transform="pandas")`,
        the codes are a data frame with columns z1, z2, ...
        """
        return self._encode(X, y)[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns of codes: z1, z2, ..."""
        dim = self._fitted().settings.generator.dim
        return np.array([f"z{i + 1}" for i in range(dim)], dtype=object)

    def inverse_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Samples of codes (n, latent_dim), in the layout and units that `fit` was given (images in [0, 1]).

        A class-conditional model needs the classes `y` of the codes.
        """
        fitted = self._fitted()
        codes = to_array(X)
        labels = self._labels(y, len(codes)) if codes.ndim else None
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
        output: str | None = None,
    ) -> Any:
        """Draw n new samples.

        Rows of a table stay within the range of each column of the training data. Columns of whole numbers are
        rounded, so a constant column stays constant. `run_.sample` has the samples as the generator makes them.

        Parameters
        ----------
        n : int, default=1
            Number of samples.
        label : str or int, default=None
            The class to draw from, if the model is class-conditional; None draws classes as in the training set.
        random_state : int, RandomState instance or None, default=None
            Seed of the draw.
        sampler : {"prior", "apart", "near", "truncated", "between", "local", "gaussian", "mixture"}, default=None
            How codes are drawn. prior: from the law that the lattice belongs to; apart: the same, without the draws
            that are most like copies of a training sample; near: draws, moved towards the nearest training code;
            truncated: the draws that are nearest to training codes; between: points between neighbouring training
            codes; local: training codes, moved as the codes around them differ from each other; gaussian, mixture: from
            a Gaussian, or a mixture of them, that is fitted to the training codes. None is prior, or apart if the
            setting `apart` is below 1, as in the preset samples.
        components : int, default=None
            mixture only: largest number of its Gaussians; None is 10.
        fraction : float, default=None
            In [0, 1]. apart and truncated: share of the draws to keep, 0.9 and 0.7 by default. near: how far to go from
            the nearest training code towards the draw, 0.5 by default. local: how far to move a code, 1 by default.
        output : {"numpy", "torch", "pandas", "pil"}, default=None
            What to return: an array or a tensor, in the layout and units that `fit` was given (images in [0, 1]); a
            data frame, for tables; or a list of Pillow images. None is a data frame if `fit` was given one, with its
            columns and types, and otherwise an array.

        Returns
        -------
        samples : array, tensor, data frame or list
            The n samples.
        """
        fitted = self._fitted()
        chosen: dict[str, Any] = {"sampler": sampler, "components": components, "fraction": fraction}
        made, _ = fitted.sample(n, label, seed_of(random_state), **chosen)
        return delivered(fitted, made, output)

    def interpolate(
        self, a: Any, b: Any, steps: int = 8, *, label: Any = None, codes: bool | None = None, output: str | None = None
    ) -> Any:
        """Samples along the straight line between two codes: `steps` of them, from a to b, both included.

        a and b are samples, codes (latent_dim,), or positions of samples that were given to `fit`. The first and the
        last result are the model's versions of a and b. `codes=True` says that a and b are codes, where samples have as
        many numbers as codes. `output` is that of `sample`.

        All lies on one line, whatever the law of the codes is. If that is a mixture (presets map, samples and
        photographs), a line between two components leaves both on its way: there it shows what the generator makes of
        codes that are hardly ever drawn, often a blend. A line within one component has no such gap.

        A class-conditional model stays in the class `label`; without it, a and b must be of one class.
        """
        fitted = self._fitted()
        line, classes = lines.between(self, a, b, steps, label, codes)
        return delivered(fitted, fitted.decode(line, classes), output)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the mean loss of samples at their inferred codes: higher is better."""
        return -float(self._encode(X, y)[2].mean())

    def save(self, path: str | Path) -> None:
        """Write the model as a run folder, which `load` and the command line can open."""
        fitted = self._fitted()
        folder = RunFolder.create(path)
        with folder.writing():
            folder.begin()
            folder.write_history(fitted.history)
            fitted.save(folder)
            # Last of all: the folder becomes a run when everything else is there.
            folder.write_config(fitted.config())

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", prior: Prior | None = None) -> NeuroSQL:
        """The model of a run folder, written by `save` or `neurosql train`; `prior` is its prior, if custom.

        `device` is a torch device, or auto: the first of cuda, mps and cpu that this machine has.
        """
        fitted = runs.open_run(path, device, prior)
        values = fitted.settings.flat()
        if values.pop("method") != "neurosql":
            raise InputError(f"{path} was trained by {fitted.settings.method}: open it with neurosql.open_run")
        values["random_state"] = values.pop("seed")
        if prior is not None:
            values["prior"] = prior
        return cls(**values | {"device": device})._adopt(fitted, None)

    def _adopt(self, fitted: Run, images: ImageSet | None) -> NeuroSQL:
        self.run_ = fitted
        self._images = images
        self.input_ = fitted.data.description
        assert isinstance(fitted.method, QuantileAssignment)
        self.lattice_ = fitted.method.lattice.cpu().numpy()
        self.permutation_ = fitted.method.permutation.numpy()
        self.train_index_ = fitted.index
        self.history_ = fitted.history
        self.n_iter_ = len(fitted.history)
        if fitted.like.classes:
            self.classes_ = np.array(fitted.like.classes)
        elif hasattr(self, "classes_"):
            del self.classes_
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
        images = reading.like_training(self, fitted, X)
        return fitted.encode(images.x, self._labels(y, len(images)), progress=bool(self.verbose))

    def _labels(self, y: Any, n: int) -> np.ndarray | None:
        """Class numbers of labels, by the names that the model was trained with."""
        if y is None or not self.run_.method.classes:
            return None
        codes, names = encode_labels(np.full(n, y) if np.ndim(y) == 0 else y, n)
        return np.array([self.run_.class_number(name) for name in names], dtype=np.int64)[codes]

    def _fitted(self) -> Run:
        if not hasattr(self, "run_"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet: call fit first")
        return self.run_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
