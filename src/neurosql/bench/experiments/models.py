"""Uses of a model: a downstream classifier, latent planes, sheets of samples."""

from __future__ import annotations

from neurosql.bench.declare import LAPTOP, PAPER, PICTURES, Arm, Experiment, Grid
from neurosql.bench.experiments.contenders import (
    AS_PAPER,
    CODES,
    COPIES,
    DDPM,
    GAN,
    GLO,
    IMLE,
    MAP,
    NEUROSQL,
    OT_CFM,
    RAE,
    RECALL,
    RS_IMLE,
    SAMPLED,
    VAE,
    plain,
)
from neurosql.metrics.column import paired_train, sampled

DOWNSTREAM = Experiment(
    "downstream",
    "Downstream classifier",
    "How good is a classifier that has seen synthetic digits only?",
    (
        Grid(
            (
                plain("NeuroSQL, by class", own={"conditional": True}, printed="NeuroSQL"),
                Arm("VAE, by class", "vae", own={"conditional": True}, printed="VAE"),
                Arm("GAN, by class", "gan", own={"conditional": True}),
                plain("NeuroSQL, nearest code", printed="NeuroSQL"),
                Arm("VAE, nearest code", "vae", printed="VAE"),
            ),
            dims=(2, 8),
        ),
        Grid(
            (
                Arm("NeuroSQL, samples, by class", preset="samples", own={"conditional": True}),
                Arm("NeuroSQL, samples, nearest code", preset="samples"),
                Arm("RAE, by class", "rae", own={"conditional": True}),
                Arm("RAE, nearest code", "rae"),
            ),
            dims=(8, 12),
        ),
    ),
    tuple(sampled(f"downstream {name}") for name in ("accuracy", "precision", "recall")),
    downstream=True,
    figures=("samples",),
    seeds={LAPTOP: 3},
    printed_as="Table 2",
)
PLANES = Experiment(
    "planes",
    "Latent planes",
    "Do neighbours in the latent plane belong together?",
    (Grid((MAP, NEUROSQL, AS_PAPER, VAE), dims=(2,)),),
    (*CODES, paired_train("ssim")),
    figures=("planes",),
    printed_as="Figure 2",
)
SHEETS = Experiment(
    "sheets",
    "36 samples of each method",
    "What do samples look like, on the same data with the same budget?",
    (
        Grid((NEUROSQL, AS_PAPER, VAE, GAN, IMLE, RS_IMLE, GLO, RAE), dims=(2, 8, 16)),
        Grid((DDPM, OT_CFM)),
        *(Grid((NEUROSQL, VAE, GAN, DDPM), (data,)) for data in PICTURES),
    ),
    (SAMPLED[0], RECALL, COPIES),
    figures=("samples", "contact"),
    seeds={LAPTOP: 1, PAPER: 1},
    printed_as="Figures 3, 4",
)
