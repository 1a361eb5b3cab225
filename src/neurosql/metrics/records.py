"""What a score is: one record per score, with its direction, its floor, its features, its modes and its function.

Tables, pages, plots and tests of differences read the record and nothing else. To add a score, write a function and a
record, and list the record in `BUILT_IN`. Another package lists it as an entry point of the group `neurosql.scores`
instead. Nothing here imports torch: a record holds the name of its function, which is imported when an evaluation runs.

The family says which arguments the function takes:

    sets        (made, real): two sets of features (n, p); for the floor, training images take the place of samples
    pairs       (made, real): two batches of images (n, *shape), pair by pair; runs in every mode of the record
    codes       (codes, labels): the codes (n, d) of the training images and their labels (n,)
    whole       (context): everything that the evaluation has
    copies, downstream: like `whole`, but with their own place in the order of the evaluation
    resource    no function: the bench measures it

A function returns a number, an array (n,) whose mean is the score, a `Measure`, or a dictionary of these by the name of
the score. Records with the same function share one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neurosql.errors import InputError
from neurosql.registry import Registry

Mode = Literal["sampled", "paired-train", "paired-heldout", "codes"]
Direction = Literal["lower", "higher", "none"]

MODES: dict[str, str] = {
    "sampled": "new samples against real images that were not trained on",
    "paired-train": "reconstructions of training images against those images",
    "paired-heldout": "reconstructions of images that were not trained on against those images",
    "codes": "the codes of the training images",
}
FAMILIES: dict[str, str] = {
    "sets": "neurosql.metrics.sets:measure",
    "copies": "neurosql.metrics.whole:measure",
    "pairs": "neurosql.metrics.pairs:measure",
    "codes": "neurosql.metrics.codes:measure",
    "downstream": "neurosql.metrics.whole:measure",
    "whole": "neurosql.metrics.whole:measure",
}
"""The function that computes the scores of each family, in the order of the evaluation."""
RESOURCE = "resource"
TAKES: dict[str, tuple[str, ...]] = {
    "sets": ("made", "real"),
    "pairs": ("made", "real"),
    "codes": ("codes", "labels"),
}
"""Arguments of the functions of a family, unless the record says otherwise; other families get the context."""

REAL = "real against real"
TRAINED = "real training images"
CHANCE = "chance"
FLOORS: dict[str, str] = {
    REAL: "the same score with training images in the place of samples",
    TRAINED: "the same classifier after training images in the place of samples",
    CHANCE: "what labels at random give",
}
"""The kinds of floors, and what each means."""


@dataclass(frozen=True)
class ScoreRecord:
    """One score, or one resource that a bench measures."""

    name: str
    direction: Direction
    family: str
    function: str = ""
    """`module:function`; empty for a resource."""
    floor: str = ""
    """What its floor is, in a few words that a page can print; empty if it has none."""
    features: tuple[str, ...] = ()
    """Features by which images may be compared."""
    modes: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    """Names of the function's arguments, in order; by default those of its family.

    Besides made, real, codes and labels, it may take `seed` and `weights` (those in the record's field of that name).
    Scores of codes may also take `images`, the training images, and `drawn`, codes from the law that is sampled.
    """
    weights: str = ""
    """Published weights that it needs; without them, the score is left out."""
    kinds: tuple[str, ...] = ()
    """Kinds of data that it can judge, such as `image` or `colour image`; empty means all."""
    averaged: bool = False
    """Whether it is the mean over all networks of its feature space, rather than the value of the first."""
    every: bool = False
    """Pairs only: use all training images and their reconstructions, rather than the pairs of the evaluation."""
    least: int = 0
    """Fewest samples that it needs on each side."""
    chosen: bool = False
    """Resources only: it is set before a run, so there is nothing to test or to plot."""
    note: str = ""
    """What a reader should know about each value."""

    def __post_init__(self) -> None:
        known = (*FAMILIES, RESOURCE)
        for what, value, allowed in (
            ("family", self.family, known),
            ("direction", self.direction, ("lower", "higher", "none")),
        ):
            if value not in allowed:
                raise InputError(f"the {what} of {self.name!r} must be one of {', '.join(allowed)}, got {value!r}")
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown:
            raise InputError(f"a mode of {self.name!r} must be one of {', '.join(MODES)}, got {unknown[0]!r}")
        if bool(self.function) == (self.family == RESOURCE) or bool(self.modes) == (self.family == RESOURCE):
            raise InputError(f"{self.name!r} must have a function and a mode, unless it is a resource")

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is, 0 where neither."""
        return {"higher": 1, "lower": -1, "none": 0}[self.direction]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of what the function gets, in order."""
        return self.takes or TAKES.get(self.family, ("context",))


LEARNED = ("classifier", "vgg", "inception")
ALL_FEATURES = ("random net", "pixels", *LEARNED)
SAMPLED, CODES = ("sampled",), ("codes",)
ALL_PAIRS = ("sampled", "paired-train", "paired-heldout")
WITH_PLACES = ("image", "signal", "volume")
COLOUR = "colour image"
BIASED = "biased at finite n: read it against its floor"
FRECHET_DISTANCE = "neurosql.metrics.frechet:frechet_distance"
NEIGHBOURS = "neurosql.metrics.neighbours:neighbours"
PERCEPTUAL = "neurosql.metrics.lpips:distances"
CLASSIFIER = "neurosql.metrics.downstream:classify"

PROXY_FID = ScoreRecord(
    *("proxy-fid", "lower", "sets", FRECHET_DISTANCE, REAL, ("random net",), SAMPLED), averaged=True, note=BIASED
)
FRECHET = ScoreRecord("frechet", "lower", "sets", FRECHET_DISTANCE, REAL, LEARNED, SAMPLED, note=BIASED)
KID = ScoreRecord("kid", "lower", "sets", "neurosql.metrics.kernels:kid", REAL, ALL_FEATURES, SAMPLED)
MMD = ScoreRecord("mmd", "lower", "sets", "neurosql.metrics.kernels:gaussian_mmd", REAL, ALL_FEATURES, SAMPLED)
PRECISION, RECALL, DENSITY, COVERAGE = (
    ScoreRecord(name, "higher", "sets", NEIGHBOURS, REAL, ALL_FEATURES, SAMPLED, least=6)
    for name in ("precision", "recall", "density", "coverage")
)
TWO_SAMPLE = ScoreRecord(
    *("two-sample accuracy", "lower", "sets", "neurosql.metrics.two_sample:told_apart", REAL, ALL_FEATURES, SAMPLED),
    takes=("made", "real", "seed"),
    note="0.5 is chance",
)
CHROMA_SPREAD = ScoreRecord(
    *("chroma spread", "higher", "sets", "neurosql.metrics.colours:chroma_spread", REAL, ("mean chroma",), SAMPLED),
    kinds=(COLOUR,),
    least=2,
    note="1 is as much as in real images",
)
COLOUR_FRECHET = ScoreRecord(
    *("colour frechet", "lower", "sets", FRECHET_DISTANCE, REAL, ("colour histogram",), SAMPLED),
    kinds=(COLOUR,),
    least=2,
    note=BIASED,
)
CLOSE = ScoreRecord(
    *("suspiciously close", "lower", "copies", "neurosql.metrics.copies:suspiciously_close", REAL),
    modes=("sampled", "paired-train"),
)
SSIM = ScoreRecord("ssim", "higher", "pairs", "neurosql.similarity:ssim", REAL, modes=ALL_PAIRS, kinds=WITH_PLACES)
LPIPS, VGG_COSINE = (
    ScoreRecord(
        *(name, "lower", "pairs", PERCEPTUAL, REAL),
        modes=ALL_PAIRS,
        takes=("made", "real", "weights"),
        weights="lpips-vgg",
        kinds=("image",),
    )
    for name in ("lpips", "vgg-cosine")
)
SSIM_OF_ALL = ScoreRecord(
    *("ssim, all training images", "higher", "pairs", "neurosql.similarity:ssim"),
    modes=("paired-train",),
    kinds=WITH_PLACES,
    every=True,
)
PURITY = ScoreRecord("10-nn purity", "higher", "codes", "neurosql.metrics.codes:purity", CHANCE, modes=CODES)
SILHOUETTE = ScoreRecord("silhouette", "higher", "codes", "neurosql.metrics.codes:silhouette", modes=CODES)
TRUST = ScoreRecord(
    *("trustworthiness", "higher", "codes", "neurosql.metrics.codes:neighbourhood_trust"),
    modes=CODES,
    takes=("images", "codes"),
)
IN_USE = ScoreRecord(
    "codes in use", "higher", "codes", "neurosql.metrics.codes:share_in_use", modes=CODES, takes=("codes",)
)
DRIFT = ScoreRecord(
    *("drift", "none", "codes", "neurosql.metrics.codes:drift"),
    modes=CODES,
    takes=("codes", "drawn"),
    note="1 is no drift",
)
ACCURACY, CLASS_PRECISION, CLASS_RECALL = (
    ScoreRecord(f"downstream {name}", "higher", "downstream", CLASSIFIER, TRAINED, modes=SAMPLED)
    for name in ("accuracy", "precision", "recall")
)
SECONDS, EPOCH_SECONDS, PEAK = (
    ScoreRecord(name, "lower", RESOURCE) for name in ("seconds", "epoch seconds", "peak megabytes")
)
TRAINED_PARAMETERS, SAMPLING_PARAMETERS = (
    ScoreRecord(name, "none", RESOURCE, chosen=True) for name in ("parameters trained", "parameters sampling")
)

BUILT_IN = {
    "proxy-fid": "PROXY_FID",
    "frechet": "FRECHET",
    "kid": "KID",
    "mmd": "MMD",
    "precision": "PRECISION",
    "recall": "RECALL",
    "density": "DENSITY",
    "coverage": "COVERAGE",
    "two-sample accuracy": "TWO_SAMPLE",
    "chroma spread": "CHROMA_SPREAD",
    "colour frechet": "COLOUR_FRECHET",
    "suspiciously close": "CLOSE",
    "ssim": "SSIM",
    "lpips": "LPIPS",
    "vgg-cosine": "VGG_COSINE",
    "ssim, all training images": "SSIM_OF_ALL",
    "10-nn purity": "PURITY",
    "silhouette": "SILHOUETTE",
    "trustworthiness": "TRUST",
    "codes in use": "IN_USE",
    "drift": "DRIFT",
    "downstream accuracy": "ACCURACY",
    "downstream precision": "CLASS_PRECISION",
    "downstream recall": "CLASS_RECALL",
    "seconds": "SECONDS",
    "epoch seconds": "EPOCH_SECONDS",
    "peak megabytes": "PEAK",
    "parameters trained": "TRAINED_PARAMETERS",
    "parameters sampling": "SAMPLING_PARAMETERS",
}
SCORES: Registry[ScoreRecord] = Registry("score", ScoreRecord, "neurosql.scores", BUILT_IN, home=__name__)
"""Every score by name. A record in a file of its own stands in `BUILT_IN` as `module:RECORD`."""


def record_of(name: str) -> ScoreRecord:
    """The record of a score or resource; an InputError where there is none."""
    found = SCORES[name]
    if found.name != name:
        raise InputError(f"the score {name!r} is registered under another name than its record's, {found.name!r}")
    return found
