"""Every experiment by name: the paper's tables and figures, then our own, then those of other packages.

To add a table, write one declaration and list it here; another package offers it as an entry point of the group
`neurosql.experiments`. To try out a declaration, pass it to `neurosql.bench.run`: it need not be listed.
"""

from __future__ import annotations

from neurosql.bench.declare import Experiment
from neurosql.errors import InputError
from neurosql.registry import Registry

BUILT_IN = {
    "main": "data_sets:MAIN",
    "mnist": "data_sets:MNIST",
    "best": "samples:BEST",
    "pictures": "samples:PICTURES",
    "samplers": "samples:SAMPLERS",
    "mnist-resnet": "data_sets:MNIST_RESNET",
    "mnist-unet": "data_sets:MNIST_UNET",
    "celeba": "data_sets:CELEBA",
    "celeba-resnet": "data_sets:CELEBA_RESNET",
    "celeba-unet": "data_sets:CELEBA_UNET",
    "afhq": "data_sets:AFHQ",
    "afhq-resnet": "data_sets:AFHQ_RESNET",
    "afhq-unet": "data_sets:AFHQ_UNET",
    "oasis": "data_sets:OASIS",
    "oasis-resnet": "data_sets:OASIS_RESNET",
    "oasis-unet": "data_sets:OASIS_UNET",
    "assignment": "choices:ASSIGNMENT",
    "cost": "choices:COST",
    "schedule": "choices:SCHEDULE",
    "resolution": "data_sets:RESOLUTION",
    "runtime": "resources:RUNTIME",
    "encoder": "resources:ENCODER",
    "scalability": "resources:SCALABILITY",
    "downstream": "models:DOWNSTREAM",
    "planes": "models:PLANES",
    "sheets": "models:SHEETS",
    "start": "choices:START",
    "lattice": "choices:LATTICE",
    "subset": "choices:SUBSET",
    "momentum": "choices:MOMENTUM",
    "presets": "choices:PRESETS",
    "precision": "choices:PRECISION",
    "precision-pictures": "choices:PRECISION_PICTURES",
    "choices": "choices:CHOICES",
}
EXPERIMENTS: Registry[Experiment] = Registry(
    "experiment",
    Experiment,
    "neurosql.experiments",
    {name: f"{__name__}.{place}" for name, place in BUILT_IN.items()},
)


def find(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        hint = ""
        if name.endswith(".py"):
            hint = ". To run a file, call neurosql.bench.run(experiment) in it, or offer the declaration as "
            hint += f"an entry point of {EXPERIMENTS.group}"
        raise InputError(f"no experiment {name!r}: the experiments are {', '.join(EXPERIMENTS)}{hint}")
    found = EXPERIMENTS[name]
    if found.name != name:
        raise InputError(f"experiment {found.name!r} is registered under another name, {name!r}")
    return found
