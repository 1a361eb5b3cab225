"""What a score is: one record per score, with its direction, its floor, its features, its modes and its function.

Tables, pages, plots and tests of differences read the record and nothing else. To add a score, write a function and a
record, and list the record in `BUILT_IN`. Another package lists it as an entry point of the group `neurosql.scores`
instead. Nothing here imports torch: a record holds the name of its function, which is imported when an evaluation runs.

The family says which arguments the function takes:

    sets        (made, real): two sets of features (n, p); for the floor, training images take the place of samples
    pairs       (made, real): two batches of images (n, *shape), pair by pair; runs in every mode of the record
    codes       (codes, labels): the codes (n, d) of the training images and their labels (n,)
    whole       (context): everything that the evaluation has
    copies, membership, downstream: like `whole`, but with their own place in the order of the evaluation
    resource    no function: the bench measures it

A function returns a number, an array (n,) whose mean is the score, a `Measure`, or a dictionary of these by the name of
the score. Records with the same function share one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from neurosql.errors import InputError
from neurosql.registry import Registry

Mode = Literal["sampled", "paired-train", "paired-heldout", "train-heldout", "codes"]
Direction = Literal["lower", "higher", "none"]

MODES: dict[str, str] = {
    "sampled": "new samples against real images that were not trained on",
    "paired-train": "reconstructions of training images against those images",
    "paired-heldout": "reconstructions of images that were not trained on against those images",
    "train-heldout": "training images against real images that were not trained on, by what the model gives away",
    "codes": "the codes of the training images",
}
FAMILIES: dict[str, str] = {
    "sets": "neurosql.metrics.sets:measure",
    "copies": "neurosql.metrics.whole:measure",
    "membership": "neurosql.metrics.whole:measure",
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
UNRELATED = "unrelated images"
HONEST = "no copies"
BLIND = "guessing"


@dataclass(frozen=True)
class Reference:
    """What the figure beside a score is, in the words of a page."""

    name: str
    gloss: str
    """What it stands for: where good ends, or where bad begins."""
    end: Literal["best", "worst"]
    meaning: str

    @property
    def label(self) -> str:
        """Name and gloss."""
        return f"{self.name}: {self.gloss}"


REFERENCES: dict[str, Reference] = {
    REAL: Reference(
        "real vs. real", "best possible", "best", "the same score with training images in the place of samples"
    ),
    TRAINED: Reference(
        "real images", "best possible", "best", "the same classifier after training images in the place of samples"
    ),
    CHANCE: Reference("chance", "nothing learned", "worst", "what labels at random give"),
    UNRELATED: Reference(
        "unrelated", "nothing learned", "worst", "two real images that have nothing to do with each other"
    ),
    HONEST: Reference("chance", "no copies", "best", "the share of honest samples that are as close by chance"),
    BLIND: Reference(
        "guessing", "nothing given away", "best", "what a coin gives that tells training images from others"
    ),
}
TWO_REAL = Reference("two real", "perfect model", "best", "a real image in the place of each sample")
"""Samples are not of the image that they are paired with: a perfect model gets what unrelated images get."""
FLOORS: dict[str, str] = {kind: REFERENCES[kind].meaning for kind in (REAL, TRAINED, CHANCE, BLIND)}
"""The kinds of floors in the table of a bench, and what each means."""


@dataclass(frozen=True)
class ScoreRecord:
    """One score, or one resource that a bench measures."""

    name: str
    direction: Direction
    family: str
    function: str = ""
    """`module:function`; empty for a resource."""
    floor: str = ""
    """What its floor is, in a few words that the table of a bench can print; empty if it has none."""
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
    words: str = ""
    """What it measures, in a few words for people who do not know its name."""
    words_paired: str = ""
    """What it measures of reconstructions, if these words do not fit them."""
    scale: tuple[float, float] | None = None
    """Its worst and its best value; None if there is no worst. A score without direction is best at the second, and
    worse by any factor from it."""
    reference: str = ""
    """What the figure beside it is: a key of `REFERENCES`; by default its floor."""

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

    def in_words(self, mode: str) -> str:
        """What it measures in this mode."""
        return self.words_paired if self.words_paired and mode.startswith("paired") else self.words

    def compared_with(self, mode: str) -> Reference | None:
        """What the figure beside a value in this mode is; None if nothing is known about it."""
        kind = self.reference or self.floor
        return TWO_REAL if kind == UNRELATED and mode == "sampled" else REFERENCES.get(kind)

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
BIASED = "biased at finite n: compare it with real vs. real"
SHARE = (0.0, 1.0)
FRECHET_DISTANCE = "neurosql.metrics.frechet:frechet_distance"
NEIGHBOURS = "neurosql.metrics.neighbours:neighbours"
PERCEPTUAL = "neurosql.metrics.lpips:distances"
CLASSIFIER = "neurosql.metrics.downstream:classify"

PROXY_FID = ScoreRecord(
    *("proxy-fid", "lower", "sets", FRECHET_DISTANCE, REAL, ("random net",), SAMPLED),
    averaged=True,
    note=BIASED,
    words="distance of the samples from real images",
)
FRECHET = ScoreRecord(
    *("frechet", "lower", "sets", FRECHET_DISTANCE, REAL, LEARNED, SAMPLED),
    note=BIASED,
    words="distance of the samples from real images",
)
KID = ScoreRecord(
    *("kid", "lower", "sets", "neurosql.metrics.kernels:kid", REAL, ALL_FEATURES, SAMPLED),
    words="the same distance, measured without bias: 0 is best",
)
MMD = ScoreRecord(
    *("mmd", "lower", "sets", "neurosql.metrics.kernels:gaussian_mmd", REAL, ALL_FEATURES, SAMPLED),
    words="the same distance, open to any kind of difference: 0 is best",
)
PRECISION, RECALL, DENSITY, COVERAGE = (
    ScoreRecord(*(name, "higher", "sets", NEIGHBOURS, REAL, ALL_FEATURES, SAMPLED), least=6, words=words, scale=SHARE)
    for name, words in (
        ("precision", "share of samples that lie among real images"),
        ("recall", "share of real images that lie among samples"),
        ("density", "how many real images a sample has around it; 1 is as many as a real one"),
        ("coverage", "share of real images that have a sample close by"),
    )
)
TWO_SAMPLE = ScoreRecord(
    *("two-sample accuracy", "lower", "sets", "neurosql.metrics.two_sample:told_apart", REAL, ALL_FEATURES, SAMPLED),
    takes=("made", "real", "seed"),
    note="0.5 is chance",
    words="how often a simple classifier tells samples from real images; 0.5 is guessing",
    scale=(1.0, 0.5),
)
CHROMA_SPREAD = ScoreRecord(
    *("chroma spread", "higher", "sets", "neurosql.metrics.colours:chroma_spread", REAL, ("mean chroma",), SAMPLED),
    kinds=(COLOUR,),
    least=2,
    note="1 is as much as in real images",
    words="variety of colours; 1 is that of real images",
    scale=SHARE,
)
COLOUR_FRECHET = ScoreRecord(
    *("colour frechet", "lower", "sets", FRECHET_DISTANCE, REAL, ("colour histogram",), SAMPLED),
    kinds=(COLOUR,),
    least=2,
    note=BIASED,
    words="distance between the colours of samples and of real images",
)
CLOSE = ScoreRecord(
    *("suspiciously close", "lower", "copies", "neurosql.metrics.copies:suspiciously_close", REAL),
    modes=("sampled", "paired-train"),
    words="share of samples that may be copies of training images",
    words_paired="share of training images that their codes give away",
    # From 5 % on the verdict is clear, so that a longer scale would make every share look good.
    scale=(0.1, 0.0),
    reference=HONEST,
)
BY_LOSS, BY_SAMPLE = (
    ScoreRecord(
        *(f"membership by {what}", "lower", "membership", f"neurosql.metrics.membership:by_{function}", BLIND),
        modes=("train-heldout",),
        words=f"how well {words} tells training images from others (AUC); 0.5 is guessing, 1 is always",
        scale=(1.0, 0.5),
    )
    for what, function, words in (
        ("loss", "loss", "the model's loss of an image"),
        ("nearest sample", "sample", "the distance to the nearest sample"),
    )
)
MOVED = ScoreRecord(
    *("suspiciously close, moved", "lower", "copies", CLOSE.function, REAL),
    modes=SAMPLED,
    kinds=("image",),
    words="the same, where a copy may also be shifted by a pixel, mirrored, blurred or noisy",
    scale=CLOSE.scale,
    reference=HONEST,
)
SSIM = ScoreRecord(
    *("ssim", "higher", "pairs", "neurosql.similarity:ssim", REAL),
    modes=ALL_PAIRS,
    kinds=WITH_PLACES,
    words="similarity of two images; 1 is identical",
    scale=SHARE,
    reference=UNRELATED,
)
LPIPS, VGG_COSINE = (
    ScoreRecord(
        *(name, "lower", "pairs", PERCEPTUAL, REAL),
        modes=ALL_PAIRS,
        takes=("made", "real", "weights"),
        weights="lpips-vgg",
        kinds=("image",),
        words=words,
        scale=(1.0, 0.0),
        reference=UNRELATED,
    )
    for name, words in (
        ("lpips", "difference of two images to a trained network; 0 is identical"),
        ("vgg-cosine", "the same, by another formula"),
    )
)
SSIM_OF_ALL = ScoreRecord(
    *("ssim, all training images", "higher", "pairs", "neurosql.similarity:ssim"),
    modes=("paired-train",),
    kinds=WITH_PLACES,
    every=True,
    words="similarity of two images; 1 is identical",
    scale=SHARE,
)
PURITY = ScoreRecord(
    *("10-nn purity", "higher", "codes", "neurosql.metrics.codes:purity", CHANCE),
    modes=CODES,
    words="share of a code's 10 nearest neighbours that have the same label",
    scale=SHARE,
)
SILHOUETTE = ScoreRecord(
    *("silhouette", "higher", "codes", "neurosql.metrics.codes:silhouette"),
    modes=CODES,
    words="how far apart the labels lie; 1 is far, below 0 is mixed",
    scale=(-1.0, 1.0),
)
TRUST = ScoreRecord(
    *("trustworthiness", "higher", "codes", "neurosql.metrics.codes:neighbourhood_trust"),
    modes=CODES,
    takes=("images", "codes"),
    words="whether neighbours on the map are similar images; 0.5 is none, 1 is all",
    scale=(0.5, 1.0),
)
IN_USE = ScoreRecord(
    *("codes in use", "higher", "codes", "neurosql.metrics.codes:share_in_use"),
    modes=CODES,
    takes=("codes",),
    words="share of training images with a code of their own",
    scale=SHARE,
)
DRIFT = ScoreRecord(
    *("drift", "none", "codes", "neurosql.metrics.codes:drift"),
    modes=CODES,
    takes=("codes", "drawn"),
    note="1 is no drift",
    words="spread of the codes over the spread of what is sampled; 1 is best",
    scale=SHARE,
)
ACCURACY, CLASS_PRECISION, CLASS_RECALL = (
    ScoreRecord(
        *(f"downstream {name}", "higher", "downstream", CLASSIFIER, TRAINED),
        modes=SAMPLED,
        words=f"{name} on real images of a classifier that has learned from samples only",
        scale=SHARE,
    )
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
    "suspiciously close, moved": "MOVED",
    "membership by loss": "BY_LOSS",
    "membership by nearest sample": "BY_SAMPLE",
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
