"""Samples of every method at its best: the presets for one purpose, and rivals with the same aids."""

from __future__ import annotations

from neurosql.bench.declare import Experiment, Grid
from neurosql.bench.experiments.contenders import (
    CODES,
    DDPM,
    GAN,
    GLO,
    GLO_MAPPED,
    MAP,
    NEUROSQL,
    OF_SAMPLES,
    OT_CFM,
    PAIRED,
    RAE,
    RAE_MAPPED,
    RS_IMLE,
    SAMPLES,
    TIME,
    VAE,
    VAE_MIXTURE,
)

BEST = Experiment(
    "best",
    "MNIST, every method at its best",
    "Which method makes the best digits if each has the settings that suit it?",
    (
        Grid((SAMPLES, RAE_MAPPED), dims=(8, 12)),
        Grid((GLO_MAPPED, VAE_MIXTURE), dims=(8,)),
        Grid((MAP,), dims=(2,)),
        Grid((NEUROSQL, VAE, GAN), dims=(2, 8)),
        Grid((RS_IMLE, GLO, RAE)),
        Grid((DDPM, OT_CFM)),
    ),
    (*OF_SAMPLES, *PAIRED[1:], CODES[2], TIME),
    figures=("samples",),
)
