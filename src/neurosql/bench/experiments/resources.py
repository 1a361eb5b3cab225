"""Time and memory. These runs go one at a time and are not evaluated."""

from __future__ import annotations

from neurosql.bench.declare import LAPTOP, PAPER, SMOKE, Arm, Experiment, Grid
from neurosql.bench.experiments.contenders import DDPM, GAN, GLO, OT_CFM, RAE, RATIOS, RESOURCES, RS_IMLE, VAE, plain

RUNTIME = Experiment(
    "runtime",
    "Run time and memory",
    "How much time and memory does an epoch take?",
    (
        Grid(
            (
                plain("NeuroSQL, exact", printed="Hungarian"),
                plain("NeuroSQL, greedy", own={"assignment": "greedy"}, printed="Greedy"),
                plain("NeuroSQL, mini-batch", own={"algorithm": "mini-batch"}),
                *(VAE, GAN, RS_IMLE, GLO, RAE),
            ),
            dims=(2, 3),
        ),
        Grid((DDPM, OT_CFM), dims=(2,)),
    ),
    (*RESOURCES[:2], *RATIOS, *RESOURCES[2:]),
    alone=True,
    scored=False,
    settings={"patience": 0},
    epochs={SMOKE: 2, LAPTOP: 10, PAPER: 10},
    seeds={SMOKE: 2, LAPTOP: 3},
    printed_as="Table 4",
)
ENCODER = Experiment(
    "encoder",
    "The price of an encoder",
    "What does the VAE's encoder cost in time and memory: a convolutional one, and the paper's MLP?",
    (
        Grid(
            (
                plain("NeuroSQL", printed="Hungarian"),
                Arm("VAE", "vae"),
                Arm("VAE, MLP encoder", "vae", own={"encoder": "mlp"}, printed="VAE"),
            ),
            dims=(2,),
        ),
    ),
    (*RESOURCES[:2], *RATIOS, *RESOURCES[2:]),
    alone=True,
    scored=False,
    settings={"patience": 0},
    epochs={SMOKE: 2, LAPTOP: 20, PAPER: 20},
    seeds={SMOKE: 2, LAPTOP: 3},
)
SCALABILITY = Experiment(
    "scalability",
    "Epoch time and memory against the number of images",
    "How do time and memory grow with the number of images N and the batch m?",
    (
        Grid(
            (
                plain("NeuroSQL, mini-batch", own={"algorithm": "mini-batch"}, printed="NeuroSQL"),
                plain("NeuroSQL, full batch"),
                *(VAE, GAN),
            ),
            images=(500, 2000, 8000, 20_000, 60_000),
            batches=(64, 128, 256, 512),
        ),
    ),
    (*RESOURCES[:2], *RATIOS),
    rows=("images", "batch"),
    alone=True,
    scored=False,
    figures=("lines",),
    settings={"patience": 0},
    epochs={SMOKE: 2, LAPTOP: 2, PAPER: 4},
    seeds={SMOKE: 1, LAPTOP: 1, PAPER: 3},
    printed_as="Figure 5",
)
