"""Samples of every method at its best: the presets for one purpose, and rivals with the same aids."""

from __future__ import annotations

from neurosql.bench import declare
from neurosql.bench.declare import LAPTOP, Arm, Experiment, Grid
from neurosql.bench.experiments.contenders import (
    CODES,
    COPIES,
    DDPM,
    GAN,
    GLO,
    GLO_MAPPED,
    MAP,
    OF_COLOURS,
    OF_PICTURES,
    OF_SAMPLES,
    OT_CFM,
    PAIRED,
    PHOTOGRAPHS,
    PLAIN,
    RAE,
    RAE_FASTER,
    RAE_MAPPED,
    RS_IMLE,
    SAMPLES,
    VAE,
    VAE_MIXTURE,
)
from neurosql.metrics.column import sampled
from neurosql.settings import Sampling

BEST = Experiment(
    "best",
    "MNIST, every method at its best",
    "Which method makes the best digits if each has the settings that suit it?",
    (
        Grid((MAP, PLAIN, VAE, GAN), dims=(2,)),
        Grid((SAMPLES, RAE_MAPPED), dims=(8, 12)),
        Grid((GLO_MAPPED, VAE_MIXTURE)),
        Grid((PLAIN, VAE, GAN), dims=(8, 16)),
        Grid((RS_IMLE, GLO, RAE)),
        Grid((DDPM, OT_CFM)),
    ),
    (*OF_SAMPLES, *PAIRED[1:], CODES[2]),
    figures=("samples",),
)
PICTURES = Experiment(
    "pictures",
    "Photographs and scans, every method at its best",
    "Which method makes the best pictures if each has the settings that suit it?",
    (
        Grid((PHOTOGRAPHS, RAE_FASTER), declare.PICTURES, dims=(64, 128)),
        Grid((RAE, VAE), declare.PICTURES, dims=(64,)),
        Grid((GAN,), declare.PICTURES, dims=(32,)),
        Grid((PLAIN, DDPM), declare.PICTURES),
    ),
    (*OF_PICTURES, sampled("kid", "random net"), *OF_COLOURS, COPIES, PAIRED[1]),
    figures=("samples",),
    seeds={LAPTOP: 3},
)
SAMPLERS = Experiment(
    "samplers",
    "Samplers",
    "What does each way to draw codes trade: quality, variety, copies?",
    (
        Grid(
            tuple(
                Arm(name, preset="samples", sampling=sampling)
                for name, sampling in (
                    ("prior", Sampling("prior")),
                    ("apart, 0.95 (the default)", Sampling()),
                    ("apart, 0.8", Sampling("apart", fraction=0.8)),
                    ("near, 0.8", Sampling("near", fraction=0.8)),
                    ("near, 0.5", Sampling("near", fraction=0.5)),
                    ("truncated, 0.7", Sampling("truncated", fraction=0.7)),
                    ("between", Sampling("between")),
                    ("local", Sampling("local")),
                    ("gaussian", Sampling("gaussian")),
                    ("mixture of 20", Sampling("mixture", components=20)),
                )
            ),
            dims=(12,),
        ),
    ),
    OF_SAMPLES,
    seeds={LAPTOP: 3},
)
