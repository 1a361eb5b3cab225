"""All scores of a run: the paper's, the ones that a reviewer asks for, memorisation, and the codes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from neurosql.cost import Cost
from neurosql.data import ImageSet
from neurosql.errors import InputError
from neurosql.metrics import codes as plane
from neurosql.metrics import features, inception, weights
from neurosql.metrics.cache import cached, cached_classifier
from neurosql.metrics.classifier import classifier_features, evaluate_classifier, train_classifier
from neurosql.metrics.frechet import frechet_distance
from neurosql.metrics.kernels import cubic_kernel, gaussian_kernel, median_bandwidths, mmd
from neurosql.metrics.lpips import LPIPS
from neurosql.metrics.memorisation import Memorisation, memorisation
from neurosql.metrics.neighbours import prdc
from neurosql.metrics.score import Mode, Score
from neurosql.metrics.statistics import mean_interval, proportion_interval
from neurosql.metrics.two_sample import two_sample_accuracy
from neurosql.run import Run
from neurosql.similarity import ssim

SAMPLES = 2048
PAIRS = 50
NETS = 3
RECONSTRUCTED = 500
"""Reconstructions that are looked at for copies."""
SYNTHETIC = 10_000
CLASSIFIER_STEPS = 1200


@dataclass(frozen=True)
class Options:
    """What to evaluate, and how much of it."""

    samples: int = SAMPLES
    """New samples to draw (and at most so many real images to set against them)."""
    pairs: int = PAIRS
    """Pairs for SSIM and LPIPS."""
    seed: int = 0
    """Seed of the draws."""
    downstream: bool = False
    """Train a classifier on synthetic images and test it on real ones (needs labels)."""
    vgg: bool = False
    """Also compare whole sets by VGG features (slow; needs the LPIPS weights)."""
    inception: str | None = None
    """Also compare whole sets by Inception-v3 features, from this .safetensors file: their Frechet distance is FID."""
    synthetic: int = SYNTHETIC
    """Images that the downstream classifier learns from."""
    classifier_steps: int = CLASSIFIER_STEPS
    """Steps of the downstream classifier, and of the one that it is compared with."""


@dataclass
class Evaluation:
    """The scores of a run and what they rest on."""

    scores: list[Score] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What could not be computed, and why: a sentence each."""
    memorisation: Memorisation | None = None
    samples: np.ndarray | None = None

    def find(self, name: str, mode: str | None = None, of: str | None = None) -> Score:
        """The score of a name and, if there are several, of a mode and of features."""
        found = [s for s in self.scores if s.name == name and mode in (None, s.mode) and of in (None, s.features)]
        if len(found) != 1:
            raise InputError(f"{len(found)} scores are called {name!r}: {', '.join(s.key for s in self.scores)}")
        return found[0]


def evaluate(
    run: Run, train: ImageSet, heldout: ImageSet | None, options: Options | None = None, progress: bool = False
) -> Evaluation:
    """Score a run on its training images, in their order, and on images that it was not trained on."""
    options = options or Options()
    if options.samples < 10 or options.pairs < 2:
        raise InputError(f"at least 10 samples and 2 pairs are needed, got {options.samples} and {options.pairs}")
    result = Evaluation()
    work = _Work(run, train, heldout, options, result)
    parts = work.parts()
    bar = tqdm(parts, desc="evaluating", unit="score", disable=None if progress else True, leave=False)
    for name, part in bar:
        bar.set_postfix_str(name)
        part()
    return result


def reconstruction_score(x: np.ndarray, again: np.ndarray) -> Score:
    """Mean SSIM between all training images (n, *shape) and their reconstructions."""
    parts = (torch.from_numpy(images).split(256) for images in (x, again))
    values = torch.cat([ssim(a, b) for a, b in zip(*parts)]).numpy()
    interval = mean_interval(values)
    return Score("ssim, all training images", float(values.mean()), "paired-train", "higher", len(x), interval=interval)


class _Work:
    """The evaluation's inputs, and one function a family of scores."""

    def __init__(
        self, run: Run, train: ImageSet, heldout: ImageSet | None, options: Options, result: Evaluation
    ) -> None:
        self.run, self.train, self.heldout, self.options, self.result = run, train, heldout, options, result
        self.image = run.data["kind"] == "image"
        self.cost = Cost.named(run.settings.latent.cost)
        self.random = np.random.default_rng(options.seed)
        self.lpips = None
        loaded = weights.load("lpips-vgg") if self.image else None
        if loaded is not None:
            self.lpips = LPIPS("vgg", loaded)
        self.inception = None
        if options.inception is not None:
            if not self.image:
                raise InputError(f"Inception-v3 looks at images, the data are {run.data['kind']}s")
            self.inception = inception.load(options.inception)
            self.inception_hash = hashlib.sha256(Path(options.inception).read_bytes()).hexdigest()[:12]

    def parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        chosen: list[tuple[str, Callable[[], None]]] = [("samples", self.draw)]
        if self.heldout is None or len(self.heldout) < 20:
            self.result.left_out.append(
                "scores of samples need at least 20 real images that were not trained on: hold some out, or give "
                "--against"
            )
        else:
            chosen += [("sets", self.compare_sets), ("memorisation", self.find_copies)]
        if self.run.data["kind"] != "vector":
            chosen.append(("pairs", self.compare_pairs))
        if self.run.has_codes:
            chosen.append(("codes", self.look_at_codes))
        if self.options.downstream:
            chosen.append(("downstream classifier", self.classify))
        return iter(chosen)

    def add(self, name: str, value: float, mode: Mode, direction: str, n: int, **more: object) -> None:
        self.result.scores.append(Score(name, float(value), mode, direction, n, seed=self.options.seed, **more))  # type: ignore[arg-type]

    def draw(self) -> None:
        self.result.samples = self.run.sample(self.options.samples, seed=self.options.seed)[0]

    # --- sets against sets ---

    def compare_sets(self) -> None:
        """Samples against held-out images, in equal numbers; the floor has training images in the samples' place."""
        assert self.heldout is not None and self.result.samples is not None
        n = min(self.options.samples, len(self.heldout), len(self.train))
        real = self.heldout.x[self.random.permutation(len(self.heldout))[:n]]
        perfect = self.train.x[self.random.permutation(len(self.train))[:n]]
        samples = self.result.samples[:n]
        nets = [features.random_net(self.run.data["shape"], seed) for seed in range(NETS)]
        described = [[net(part) for part in (samples, real, perfect)] for net in nets]
        values = [frechet_distance(made, true) for made, true, _ in described]
        floors = [frechet_distance(other, true) for _, true, other in described]
        self.add(
            "proxy-fid",
            float(np.mean(values)),
            "sampled",
            "lower",
            n,
            n_real=n,
            features="random net",
            spread=float(np.std(values, ddof=1)),
            floor=float(np.mean(floors)),
            note="biased at finite n: read it against its floor",
        )
        spaces = {"random net": described[0]}
        flat = features.pixels(self.run.data["shape"])
        spaces["pixels"] = [flat(part) for part in (samples, real, perfect)]
        if self.train.labels is not None and self.run.data["kind"] != "vector":
            learned = classifier_features(cached_classifier(self.train, self.options.seed))
            spaces["classifier"] = [learned(part) for part in (samples, real, perfect)]
        if self.options.vgg:
            if self.lpips is None:
                self.result.left_out.append(weights.how_to_get("lpips-vgg"))
            else:
                seen = self.lpips.features()
                spaces["vgg"] = [
                    seen(samples),
                    cached(seen, real, "vgg", self.heldout.fingerprint, self.options.seed),
                    cached(seen, perfect, "vgg", self.train.fingerprint, self.options.seed),
                ]
        if self.inception is not None:
            for_real = ((real, self.heldout.fingerprint), (perfect, self.train.fingerprint))
            name = f"inception-{self.inception_hash}"
            true, other = (cached(self.inception, x, name, mark, self.options.seed) for x, mark in for_real)
            spaces["inception"] = [self.inception(samples), true, other]
        for space, (made, true, other) in spaces.items():
            self._by_features(space, made, true, other)

    def _by_features(self, space: str, made: np.ndarray, true: np.ndarray, other: np.ndarray) -> None:
        """Every score of two sets of features, with its floor."""
        n = len(true)
        common = {"n_real": n, "features": space}
        if space not in ("random net", "pixels"):
            self.add(
                "frechet",
                frechet_distance(made, true),
                "sampled",
                "lower",
                n,
                floor=frechet_distance(other, true),
                note="biased at finite n: read it against its floor",
                **common,
            )
        value, interval = mmd(made, true, cubic_kernel)
        self.add(
            "kid", value, "sampled", "lower", n, interval=interval, floor=mmd(other, true, cubic_kernel)[0], **common
        )
        kernel = gaussian_kernel(median_bandwidths(true))
        value, interval = mmd(made, true, kernel)
        self.add("mmd", value, "sampled", "lower", n, interval=interval, floor=mmd(other, true, kernel)[0], **common)
        if n > 5:
            found, floors = prdc(true, made), prdc(true, other)
            for name, share in found.items():
                self.add(name, share, "sampled", "higher", n, floor=floors[name], **common)
        accuracy, interval = two_sample_accuracy(true, made, self.options.seed)
        floor = two_sample_accuracy(true, other, self.options.seed)[0]
        self.add(
            "two-sample accuracy",
            accuracy,
            "sampled",
            "lower",
            n,
            interval=interval,
            floor=floor,
            note="0.5 is chance",
            **common,
        )

    # --- copies ---

    def find_copies(self) -> None:
        assert self.heldout is not None and self.result.samples is not None
        self.result.memorisation = self._copies("sampled", self.result.samples)
        if self.run.has_codes:
            some = np.random.default_rng(self.options.seed).permutation(len(self.train))[:RECONSTRUCTED]
            self._copies("paired-train", self.reconstructions[some])

    @cached_property
    def reconstructions(self) -> np.ndarray:
        """Of all training images."""
        return self.run.reconstruct()

    def _copies(self, mode: Mode, images: np.ndarray) -> Memorisation:
        assert self.heldout is not None
        found = memorisation(self.cost, images, self.train.x, self.heldout.x, self.train.subjects)
        self.add(
            "suspiciously close",
            found.share,
            mode,
            "lower",
            len(images),
            n_real=found.heldout,
            interval=found.interval,
            floor=0.01,
            note=found.verdict if mode == "sampled" else "reconstructions: what the codes give away",
        )
        return found

    # --- pairs ---

    def compare_pairs(self) -> None:
        """SSIM and LPIPS over the same pairs, in every mode that the model has."""
        assert self.result.samples is not None
        options = self.options
        against = self.train if self.heldout is None else self.heldout
        count = min(options.pairs, len(against), len(self.result.samples))
        first, second = random_pairs(len(against), count, options.seed)
        floor = self._compare(against.x[first], against.x[second]) if len(against) > 1 else {}
        self._pairs("sampled", self.result.samples[:count], against.x[first], floor)
        if not self.run.has_codes:
            return
        chosen = self.random.permutation(len(self.train))[: options.pairs]
        again = self.reconstructions
        self._pairs("paired-train", again[chosen], self.train.x[chosen], floor)
        self.result.scores.append(reconstruction_score(self.train.x, again))
        if self.heldout is not None and len(self.heldout) > 1:
            some = self.heldout.x[self.random.permutation(len(self.heldout))[: options.pairs]]
            codes, labels, _ = self.run.encode(some)
            self._pairs("paired-heldout", self.run.decode(codes, labels), some, floor)

    def _pairs(self, mode: Mode, made: np.ndarray, real: np.ndarray, floor: dict[str, np.ndarray]) -> None:
        for name, values in self._compare(made, real).items():
            direction = "higher" if name == "ssim" else "lower"
            more: dict[str, object] = {"interval": mean_interval(values)}
            more |= {"floor": float(floor[name].mean())} if name in floor else {}
            self.add(name, values.mean(), mode, direction, len(made), **more)
        if self.image and self.lpips is None and weights.how_to_get("lpips-vgg") not in self.result.left_out:
            self.result.left_out.append(weights.how_to_get("lpips-vgg"))

    def _compare(self, made: np.ndarray, real: np.ndarray) -> dict[str, np.ndarray]:
        """Each score of pairs that there is, pair by pair."""
        x, y = (torch.from_numpy(np.ascontiguousarray(z)) for z in (made, real))
        found = {"ssim": ssim(x, y).numpy()}
        if self.lpips is not None:
            found |= {"lpips": self.lpips(x, y).numpy(), "vgg-cosine": self.lpips.cosine(x, y).numpy()}
        return found

    # --- codes ---

    def look_at_codes(self) -> None:
        codes = self.run.method.codes.cpu().numpy()
        n = len(codes)
        drawn = self.run.method.draw_codes(max(n, 1000), None, torch.Generator().manual_seed(self.options.seed))[0]
        if self.train.labels is not None and len(np.unique(self.train.labels)) > 1:
            purity = plane.knn_purity(codes, self.train.labels)
            share = float((np.bincount(self.train.labels) / n) @ (np.bincount(self.train.labels) / n))
            self.add("10-nn purity", purity.mean(), "codes", "higher", n, interval=mean_interval(purity), floor=share)
            self.add("silhouette", plane.silhouette(codes, self.train.labels), "codes", "higher", n)
        self.add("trustworthiness", plane.neighbourhood_trust(self.train.x, codes), "codes", "higher", n)
        self.add("codes in use", plane.share_in_use(codes), "codes", "higher", n)
        self.add("drift", plane.drift(codes, drawn.cpu().numpy()), "codes", "none", n, note="1 is no drift")

    # --- downstream ---

    def classify(self) -> None:
        """A classifier that saw synthetic images only, on real ones; one that saw the training images, as the bound."""
        if self.train.labels is None or self.heldout is None or self.heldout.labels is None:
            self.result.left_out.append("the downstream classifier needs labels of training and held-out images")
            return
        classes, seed = len(self.train.classes), self.options.seed
        made, labels, how = self.synthetic(self.options.synthetic)
        if made is None or labels is None:
            self.result.left_out.append(how)
            return
        real = cached_classifier(self.train, seed, self.options.classifier_steps)
        bound = evaluate_classifier(real, self.heldout.x, self.heldout.labels)
        net = train_classifier(made, labels, classes, seed, steps=self.options.classifier_steps)
        found = evaluate_classifier(net, self.heldout.x, self.heldout.labels)
        chance = float(np.bincount(self.heldout.labels).max() / len(self.heldout))
        note = f"{how}; chance {chance:.2f}"
        self.add(
            "downstream accuracy",
            found.accuracy,
            "sampled",
            "higher",
            len(made),
            n_real=found.n,
            interval=proportion_interval(found.right, found.n),
            floor=bound.accuracy,
            note=note,
        )
        for name in ("precision", "recall"):
            self.add(
                f"downstream {name}",
                getattr(found, name),
                "sampled",
                "higher",
                len(made),
                n_real=found.n,
                floor=getattr(bound, name),
                note=how,
            )

    def synthetic(self, n: int) -> tuple[np.ndarray | None, np.ndarray | None, str]:
        """n synthetic images with labels, and where the labels came from."""
        method = self.run.method
        if method.classes:
            images, labels = self.run.sample(n, seed=self.options.seed + 1)
            return images, labels, "labels given to a class-conditional model"
        if not method.has_codes:
            return None, None, f"{method.name} has neither classes nor codes: its samples have no labels"
        random = torch.Generator().manual_seed(self.options.seed + 1)
        drawn = method.draw_codes(n, None, random)[0]
        assert self.train.labels is not None
        nearest = np.concatenate(
            [torch.cdist(part, method.codes).argmin(1).cpu().numpy() for part in drawn.split(2048)]
        )
        return method.decode(drawn).cpu().numpy(), self.train.labels[nearest], "labels of the nearest training code"


def random_pairs(n: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` pairs of two different numbers below n; no number comes first twice while others have not."""
    random = np.random.default_rng(seed)
    first = np.concatenate([random.permutation(n) for _ in range(-(-count // n))])[:count]
    second = (first + random.integers(1, n, count)) % n if n > 1 else first
    return first, second
