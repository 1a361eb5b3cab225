"""Each data set by backbone and latent dimension, all of them together, and OASIS at two resolutions."""

from __future__ import annotations

from neurosql.bench.declare import LAPTOP, PICTURES, Experiment, Grid
from neurosql.bench.experiments.contenders import (
    AS_PAPER,
    DDPM,
    GAN,
    GLO,
    NEUROSQL,
    OF_DIGITS,
    OF_PICTURES,
    OT_CFM,
    PAIRED,
    RAE,
    RS_IMLE,
    SAMPLED,
    SETS,
    VAE,
)

ALL_DIMS = (2, 4, 8, 16, 32, 64, 128)
TITLES = {"mnist": "MNIST", "celeba": "CelebA", "afhq": "AFHQ", "oasis": "OASIS"}
PAPERS_LOSS = {"cost": "paper"}
"""Photographs and scans are learnt with the paper's loss here, channel by channel, and judged by its scores: these are
its tables. `pictures` compares methods at their best, with the loss for colour and by VGG features."""
BACKBONES = {"convnet": "ConvNet", "resnet": "ResNet", "unet": "U-Net"}
# Latent dimensions of the paper's tables.
PRINTED_DIMS = {
    ("mnist", "convnet"): (2, 3),
    ("celeba", "resnet"): (2, 4, 8, 32),
    ("celeba", "unet"): (2, 4, 8, 16, 32),
    ("afhq", "unet"): (2, 3, 4, 8, 16, 32, 64),
    ("oasis", "resnet"): (16, 32, 64, 128),
    ("oasis", "unet"): (4, 8, 16, 32, 64, 128),
}


# Numbers of the paper's tables, the second one of averages over latent dimensions.
PRINTED_AS = {
    ("oasis", "convnet"): "Table 5",
    ("oasis", "resnet"): "Table 6",
    ("oasis", "unet"): "Tables 7, 8",
    ("celeba", "convnet"): "Table 9",
    ("celeba", "resnet"): "Table 10",
    ("celeba", "unet"): "Table 11",
    ("afhq", "convnet"): "Tables 12, 13",
    ("afhq", "resnet"): "Tables 14, 15",
    ("afhq", "unet"): "Tables 16, 17",
    ("mnist", "convnet"): "Tables 18, 19",
}


def _mnist(backbone: str) -> tuple[Grid, ...]:
    on = {"backbones": (backbone,)}
    return (
        Grid((NEUROSQL, AS_PAPER, VAE, GAN), dims=(2, 3, 8, 16), **on),  # type: ignore[arg-type]
        Grid((RS_IMLE, GLO, RAE), dims=(8,), **on),  # type: ignore[arg-type]
        Grid((DDPM, OT_CFM), dims=(8,), **on),  # type: ignore[arg-type]
    )


def pictures(data: str, backbone: str) -> tuple[Grid, ...]:
    """The contenders on photographs and scans."""
    of_paper = PRINTED_DIMS.get((data, backbone), ALL_DIMS)
    return (
        Grid((NEUROSQL, VAE, GAN), (data,), (backbone,), dims=(2, 8, 32), dims_of_paper=of_paper),
        Grid((DDPM,), (data,), (backbone,), dims=(8,)),
    )


def _of(data: str, backbone: str) -> Experiment:
    """The table of a data set with one backbone."""
    digits, title, network = data == "mnist", TITLES[data], BACKBONES[backbone]
    return Experiment(
        data if backbone == "convnet" else f"{data}-{backbone}",
        f"{title}, {network}",
        f"Which method makes the best {'digits' if digits else 'pictures'} on {title}, by latent dimension?",
        _mnist(backbone) if digits else pictures(data, backbone),
        (*SAMPLED, *(OF_DIGITS if digits else ()), *SETS, *PAIRED),
        averaged=True,
        vgg=False,
        figures=("samples",),
        settings={} if digits else PAPERS_LOSS,
        seeds={} if digits else {LAPTOP: 3},
        printed_as=PRINTED_AS.get((data, backbone), ""),
    )


MNIST, MNIST_RESNET, MNIST_UNET = (_of("mnist", backbone) for backbone in BACKBONES)
CELEBA, CELEBA_RESNET, CELEBA_UNET = (_of("celeba", backbone) for backbone in BACKBONES)
AFHQ, AFHQ_RESNET, AFHQ_UNET = (_of("afhq", backbone) for backbone in BACKBONES)
OASIS, OASIS_RESNET, OASIS_UNET = (_of("oasis", backbone) for backbone in BACKBONES)
MAIN = Experiment(
    "main",
    "Main results",
    "Which method is ahead on each data set, over latent dimensions?",
    (
        Grid((NEUROSQL, AS_PAPER, VAE, GAN), dims=(2, 3, 8, 16)),
        Grid((DDPM,)),
        *(grid for data in PICTURES for grid in pictures(data, "convnet")),
    ),
    (*SAMPLED, *SETS, *PAIRED),
    rows=("data",),
    vgg=False,
    settings=PAPERS_LOSS,
    seeds={LAPTOP: 3},
    printed_under="all",
    printed_as="Table 1",
)
RESOLUTION = Experiment(
    "resolution",
    "OASIS at 64 and 128 pixels",
    "Does the order of the methods change with the resolution?",
    (Grid((NEUROSQL, VAE, GAN), ("oasis",), dims=(8,), pixels=(64, 128)),),
    (*SAMPLED, *OF_PICTURES, *SETS, *PAIRED),
    rows=("data", "pixels"),
    figures=("samples",),
    seeds={LAPTOP: 3},
)
