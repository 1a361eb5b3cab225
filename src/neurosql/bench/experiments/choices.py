"""The effect of NeuroSQL's own settings, one by one."""

from __future__ import annotations

import dataclasses

from neurosql.bench.declare import LAPTOP, Arm, Experiment, Grid
from neurosql.bench.experiments.contenders import (
    AS_PAPER,
    DDPM,
    DRIFT,
    GAN,
    IN_USE,
    NEUROSQL,
    OF_DIGITS,
    OF_PICTURES,
    PAIRED,
    PHOTOGRAPHS,
    RAE,
    SAMPLED,
    SAMPLES,
    TIME,
    VAE,
    plain,
)


def in_bfloat16(arm: Arm) -> Arm:
    """A contender whose networks learn in bfloat16."""
    return dataclasses.replace(
        arm, name=f"{arm.name}, bfloat16", own={**arm.own, "precision": "bfloat16"}, printed=None
    )


# Where the paper's settings of NeuroSQL and ours differ: by field, ours and the paper's, in words and as a value.
DIFFER = {
    "learning_rate": (("learning rate 0.002", 2e-3), ("learning rate 0.0002", 2e-4)),
    "every": (("K = 2", 2), ("K = 5", 5)),
    "anneal": (("rho to 1", True), ("rho = 0.7", False)),
    "start": (("PCA start", "pca"), ("random start", "random")),
}
TO_OURS = tuple(Arm(f"paper, but {words}", preset="paper", own={k: v}) for k, ((words, v), _) in DIFFER.items())
TO_PAPER = tuple(plain(f"ours, but {words}", own={k: v}) for k, (_, (words, v)) in DIFFER.items())

ASSIGNMENT = Experiment(
    "assignment",
    "Greedy against exact assignment",
    "Does the greedy assignment cost quality?",
    (
        Grid(
            (
                plain("exact", printed="Hungarian"),
                plain("greedy", own={"assignment": "greedy"}, printed="Greedy"),
                plain("greedy, cheapest first", own={"assignment": "greedy-cheapest"}),
            ),
            dims=(2, 8, 16),
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED, TIME),
    seeds={LAPTOP: 3},
    printed_as="Table 3",
)
COST = Experiment(
    "cost",
    "The loss: pixel l2 against SSIM + L1",
    "What does SSIM + L1 gain over squared pixel differences?",
    (Grid((plain("SSIM + L1"), plain("l2", own={"cost": "l2"})), dims=(2, 8)),),
    (*SAMPLED, *OF_DIGITS, *PAIRED),
    seeds={LAPTOP: 3},
)
SCHEDULE = Experiment(
    "schedule",
    "Epochs between assignments K and momentum rho",
    "How much do K and rho matter?",
    (
        Grid(
            tuple(
                plain(f"K = {every}, rho = {rho}", own={"every": every, "momentum": rho, "anneal": False})
                for every in (2, 3, 5)
                for rho in (0.5, 0.7, 1.0)
            ),
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED, DRIFT),
    seeds={LAPTOP: 3},
)
START = Experiment(
    "start",
    "First permutation",
    "Does it matter where the assignment starts?",
    (Grid((plain("PCA"), plain("random", own={"start": "random"})), dims=(2, 8, 16)),),
    (*SAMPLED, *OF_DIGITS, *PAIRED),
    seeds={LAPTOP: 3},
)
LATTICE = Experiment(
    "lattice",
    "Lattice",
    "Which placement of the quantiles is best?",
    (
        Grid(
            (
                plain("Sobol, normal"),
                plain("centre-outward", own={"lattice": "centre-outward"}),
                plain("ball", own={"prior": "ball"}),
                plain("independent draws", own={"lattice": "iid"}),
            ),
            dims=(2, 8),
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED),
    seeds={LAPTOP: 3},
)
SUBSET = Experiment(
    "subset",
    "Lattice points offered to a mini-batch, and refinement in blocks",
    "Which codes should a mini-batch be offered, and do blocks do as well as all pairs?",
    (
        Grid(
            (
                plain("owned", own={"algorithm": "mini-batch", "subset": "owned"}),
                plain("owned, reuse", own={"algorithm": "mini-batch", "subset": "owned", "reuse": True}),
                plain("partition", own={"algorithm": "mini-batch", "subset": "partition"}),
                plain("random (the paper's)", own={"algorithm": "mini-batch", "subset": "random"}),
                plain("full batch"),
                plain("blocks", own={"strategy": "blocks"}),
                plain("blocks of 256", own={"strategy": "blocks", "block_size": 256}),
            ),
            dims=(2, 8),
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED, IN_USE, DRIFT),
    seeds={LAPTOP: 3},
)
MOMENTUM = Experiment(
    "momentum",
    "Momentum variants",
    "What should the momentum do at the end of a run?",
    (
        Grid(
            (
                plain("rho to 1"),
                plain("rho = 0.7", own={"anneal": False}),
                plain("rho = 0.7, snap", own={"anneal": False, "snap": 5}),
                plain("no momentum", own={"momentum": 1.0, "anneal": False}),
            ),
            dims=(2, 8),
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED, DRIFT),
    seeds={LAPTOP: 3},
)
PRESETS = Experiment(
    "presets",
    "The paper's settings against the recommended ones",
    "What do our choices change?",
    (
        Grid(
            (
                *(NEUROSQL, AS_PAPER, VAE, Arm("VAE, paper", "vae", "paper")),
                *(GAN, Arm("GAN, paper", "gan", "paper")),
            ),
            dims=(2, 8),
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED),
    seeds={LAPTOP: 3},
)
# The contenders whose settings are those of other tables share their runs in float32.
BOTH_PRECISIONS = (NEUROSQL, VAE, GAN, RAE)
PRECISION = Experiment(
    "precision",
    "bfloat16 in training steps, digits",
    "Does bfloat16, which is quicker on many processors, cost quality?",
    (
        Grid((*BOTH_PRECISIONS, *map(in_bfloat16, BOTH_PRECISIONS))),
        Grid((SAMPLES, in_bfloat16(SAMPLES)), dims=(12,)),
        Grid((DDPM, in_bfloat16(DDPM))),
    ),
    (*OF_DIGITS, *PAIRED[1:], TIME),
    seeds={LAPTOP: 3},
)
PRECISION_PICTURES = Experiment(
    "precision-pictures",
    "bfloat16 in training steps, photographs",
    "Does bfloat16 cost quality on photographs?",
    (Grid((PHOTOGRAPHS, in_bfloat16(PHOTOGRAPHS)), ("afhq",), dims=(128,)),),
    (*OF_PICTURES, *PAIRED[1:], TIME),
    seeds={LAPTOP: 3},
)
CHOICES = Experiment(
    "choices",
    "From the paper's settings to ours, one at a time",
    "How much does each of our choices contribute?",
    (
        Grid(
            (
                AS_PAPER,
                *TO_OURS,
                Arm("paper, but three times the epochs", preset="paper", longer=3),
                NEUROSQL,
                *TO_PAPER,
            )
        ),
    ),
    (*SAMPLED, *OF_DIGITS, *PAIRED, DRIFT),
    seeds={LAPTOP: 3},
)
