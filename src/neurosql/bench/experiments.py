"""Every experiment: the paper's tables and figures, then our own. A new table is one declaration here."""

from __future__ import annotations

from neurosql.bench.declare import LAPTOP, PAPER, SMOKE, Arm, Experiment, Grid
from neurosql.errors import InputError
from neurosql.metrics.column import of_codes, paired_heldout, paired_train, resource, sampled

NEUROSQL = Arm("NeuroSQL", printed="NeuroSQL")
AS_PAPER = Arm("NeuroSQL, paper", preset="paper", printed="NeuroSQL")
VAE = Arm("VAE", "vae", printed="VAE")
GAN = Arm("GAN", "gan", printed="GAN")
DDPM = Arm("DDPM", "ddpm", printed="Diffusion")
OT_CFM = Arm("OT-CFM", "ot-cfm")
IMLE = Arm("IMLE", "imle")
RS_IMLE = Arm("RS-IMLE", "rs-imle")
GLO = Arm("GLO", "glo")
RAE = Arm("RAE", "rae")

# Where the paper's settings of NeuroSQL and ours differ: by field, ours and the paper's, in words and as a value.
DIFFER = {
    "learning_rate": (("learning rate 0.002", 2e-3), ("learning rate 0.0002", 2e-4)),
    "every": (("K = 2", 2), ("K = 5", 5)),
    "anneal": (("rho to 1", True), ("rho = 0.7", False)),
    "start": (("PCA start", "pca"), ("random start", "random")),
}
TO_OURS = tuple(Arm(f"paper, but {words}", preset="paper", own={k: v}) for k, ((words, v), _) in DIFFER.items())
TO_PAPER = tuple(Arm(f"ours, but {words}", own={k: v}) for k, (_, (words, v)) in DIFFER.items())

# The paper's three scores, sampled, and the paired ones, which it does not tell apart from them.
SAMPLED = (sampled("proxy-fid", "random net"), sampled("lpips"), sampled("ssim"))
PAIRED = (paired_train("lpips"), paired_train("ssim"), paired_heldout("ssim"))
RECALL, COPIES = sampled("recall", "random net"), sampled("suspiciously close")
SETS = (sampled("kid", "random net"), RECALL, COPIES)
OF_DIGITS = (sampled("frechet", "classifier"), sampled("recall", "classifier"))
TIME, MEMORY = resource("epoch seconds"), resource("peak megabytes")
RESOURCES = (TIME, MEMORY, resource("parameters trained"), resource("parameters sampling"))
RATIOS = (resource("epoch seconds", over="VAE"), resource("peak megabytes", over="VAE"))
IN_USE, DRIFT = of_codes("codes in use"), of_codes("drift")
CODES = (of_codes("10-nn purity"), of_codes("silhouette"), of_codes("trustworthiness"), IN_USE, DRIFT)

ALL_DIMS = (2, 4, 8, 16, 32, 64, 128)
TITLES = {"mnist": "MNIST", "celeba": "CelebA", "afhq": "AFHQ", "oasis": "OASIS"}
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


def _mnist(backbone: str) -> tuple[Grid, ...]:
    on = {"backbones": (backbone,)}
    return (
        Grid((NEUROSQL, AS_PAPER, VAE, GAN), dims=(2, 3, 8, 16), **on),  # type: ignore[arg-type]
        Grid((RS_IMLE, GLO, RAE), dims=(8,), **on),  # type: ignore[arg-type]
        Grid((DDPM, OT_CFM), dims=(8,), **on),  # type: ignore[arg-type]
    )


def _pictures(data: str, backbone: str) -> tuple[Grid, ...]:
    of_paper = PRINTED_DIMS.get((data, backbone), ALL_DIMS)
    return (
        Grid((NEUROSQL, VAE, GAN), (data,), (backbone,), dims=(2, 8, 32), dims_of_paper=of_paper),
        Grid((DDPM,), (data,), (backbone,), dims=(8,)),
    )


def _by_backbone() -> list[Experiment]:
    found = []
    for data, title in TITLES.items():
        for backbone, network in BACKBONES.items():
            digits = data == "mnist"
            found.append(
                Experiment(
                    data if backbone == "convnet" else f"{data}-{backbone}",
                    f"{title}, {network}",
                    f"Who makes the better {'digits' if digits else 'pictures'} on {title}, by latent dimension?",
                    _mnist(backbone) if digits else _pictures(data, backbone),
                    (*SAMPLED, *(OF_DIGITS if digits else ()), *SETS, *PAIRED),
                    averaged=True,
                    figures=("samples",),
                    seeds={} if digits else {LAPTOP: 3},
                )
            )
    return found


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in [
        Experiment(
            "main",
            "Main results",
            "Who is ahead on each data set, over latent dimensions?",
            (
                Grid((NEUROSQL, AS_PAPER, VAE, GAN), dims=(2, 3, 8, 16)),
                Grid((DDPM,)),
                *(grid for data in ("celeba", "afhq", "oasis") for grid in _pictures(data, "convnet")),
            ),
            (*SAMPLED, *SETS, *PAIRED),
            rows=("data",),
            seeds={LAPTOP: 3},
            printed_under="all",
        ),
        *_by_backbone(),
        Experiment(
            "assignment",
            "Greedy against exact assignment",
            "Does the greedy assignment cost quality?",
            (
                Grid(
                    (
                        Arm("exact", printed="Hungarian"),
                        Arm("greedy", own={"assignment": "greedy"}, printed="Greedy"),
                        Arm("greedy, cheapest first", own={"assignment": "greedy-cheapest"}),
                    ),
                    dims=(2, 8, 16),
                ),
            ),
            (*SAMPLED, *OF_DIGITS, *PAIRED, TIME),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "cost",
            "The loss: pixel l2 against SSIM + L1",
            "What does SSIM + L1 bring over squared differences of pixels?",
            (Grid((Arm("SSIM + L1"), Arm("l2", own={"cost": "l2"})), dims=(2, 8)),),
            (*SAMPLED, *OF_DIGITS, *PAIRED),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "schedule",
            "Epochs between assignments K and momentum rho",
            "How much do K and rho matter?",
            (
                Grid(
                    tuple(
                        Arm(f"K = {every}, rho = {rho}", own={"every": every, "momentum": rho, "anneal": False})
                        for every in (2, 3, 5)
                        for rho in (0.5, 0.7, 1.0)
                    ),
                ),
            ),
            (*SAMPLED, *OF_DIGITS, *PAIRED, DRIFT),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "resolution",
            "OASIS at 64 and 128 pixels",
            "Does the order of the methods change with the resolution?",
            (Grid((NEUROSQL, VAE, GAN), ("oasis",), dims=(8,), pixels=(64, 128)),),
            (*SAMPLED, *SETS, *PAIRED),
            rows=("data", "pixels"),
            figures=("samples",),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "runtime",
            "Run time and memory",
            "What does an epoch cost, and how much memory?",
            (
                Grid(
                    (
                        Arm("NeuroSQL, exact", printed="Hungarian"),
                        Arm("NeuroSQL, greedy", own={"assignment": "greedy"}, printed="Greedy"),
                        Arm("NeuroSQL, mini-batch", own={"algorithm": "mini-batch"}),
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
        ),
        Experiment(
            "encoder",
            "The price of an encoder",
            "What does the VAE's encoder cost in time and memory: a convolutional one, and the paper's MLP?",
            (
                Grid(
                    (
                        Arm("NeuroSQL", printed="Hungarian"),
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
        ),
        Experiment(
            "scalability",
            "Epoch time and memory against the number of images",
            "How do time and memory grow with the number of images N and the batch m?",
            (
                Grid(
                    (
                        Arm("NeuroSQL, mini-batch", own={"algorithm": "mini-batch"}, printed="NeuroSQL"),
                        Arm("NeuroSQL, full batch"),
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
        ),
        Experiment(
            "downstream",
            "Downstream classifier",
            "How good is a classifier that has seen synthetic digits only?",
            (
                Grid(
                    (
                        Arm("NeuroSQL, by class", own={"conditional": True}, printed="NeuroSQL"),
                        Arm("VAE, by class", "vae", own={"conditional": True}, printed="VAE"),
                        Arm("GAN, by class", "gan", own={"conditional": True}),
                        Arm("NeuroSQL, nearest code", printed="NeuroSQL"),
                        Arm("VAE, nearest code", "vae", printed="VAE"),
                    ),
                    dims=(2, 8),
                ),
            ),
            tuple(sampled(f"downstream {name}") for name in ("accuracy", "precision", "recall")),
            downstream=True,
            figures=("samples",),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "planes",
            "Latent planes",
            "Do neighbours in the latent plane belong together?",
            (Grid((NEUROSQL, AS_PAPER, VAE), dims=(2,)),),
            (*CODES, paired_train("ssim")),
            figures=("planes",),
        ),
        Experiment(
            "sheets",
            "36 samples of each method",
            "What do the samples look like, same data, same budget?",
            (
                Grid((NEUROSQL, AS_PAPER, VAE, GAN, IMLE, RS_IMLE, GLO, RAE), dims=(2, 8, 16)),
                Grid((DDPM, OT_CFM)),
                *(Grid((NEUROSQL, VAE, GAN, DDPM), (data,)) for data in ("celeba", "afhq", "oasis")),
            ),
            (SAMPLED[0], RECALL, COPIES),
            figures=("samples", "contact"),
            seeds={LAPTOP: 1, PAPER: 1},
        ),
        Experiment(
            "start",
            "First permutation",
            "Does it matter where the assignment starts?",
            (Grid((Arm("PCA"), Arm("random", own={"start": "random"})), dims=(2, 8, 16)),),
            (*SAMPLED, *OF_DIGITS, *PAIRED),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "lattice",
            "Lattice",
            "Which placement of the quantiles is best?",
            (
                Grid(
                    (
                        Arm("Sobol, normal"),
                        Arm("centre-outward", own={"lattice": "centre-outward"}),
                        Arm("ball", own={"prior": "ball"}),
                        Arm("independent draws", own={"lattice": "iid"}),
                    ),
                    dims=(2, 8),
                ),
            ),
            (*SAMPLED, *OF_DIGITS, *PAIRED),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "subset",
            "Lattice points offered to a mini-batch",
            "Which codes should a mini-batch be offered?",
            (
                Grid(
                    (
                        Arm("owned", own={"algorithm": "mini-batch", "subset": "owned"}),
                        Arm("partition", own={"algorithm": "mini-batch", "subset": "partition"}),
                        Arm("random (the paper's)", own={"algorithm": "mini-batch", "subset": "random"}),
                        Arm("full batch"),
                    ),
                    dims=(2, 8),
                ),
            ),
            (*SAMPLED, *OF_DIGITS, *PAIRED, IN_USE, DRIFT),
            seeds={LAPTOP: 3},
        ),
        Experiment(
            "momentum",
            "Momentum variants",
            "What should the momentum do at the end of a run?",
            (
                Grid(
                    (
                        Arm("rho to 1"),
                        Arm("rho = 0.7", own={"anneal": False}),
                        Arm("rho = 0.7, snap", own={"anneal": False, "snap": 5}),
                        Arm("no momentum", own={"momentum": 1.0, "anneal": False}),
                    ),
                    dims=(2, 8),
                ),
            ),
            (*SAMPLED, *OF_DIGITS, *PAIRED, DRIFT),
            seeds={LAPTOP: 3},
        ),
        Experiment(
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
        ),
        Experiment(
            "choices",
            "From the paper's settings to ours, one at a time",
            "Which of our choices brings what?",
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
        ),
    ]
}


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise InputError(f"no experiment {name!r}: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
