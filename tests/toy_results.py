"""A toy experiment, and results of it that are made up."""

import numpy as np

from neurosql.bench import rows
from neurosql.bench.declare import Arm, Experiment, Grid
from neurosql.metrics.column import of_codes, paired_train, resource, sampled

SSIM, AGAIN, DRIFT, PROXY = sampled("ssim"), paired_train("ssim"), of_codes("drift"), sampled("proxy-fid", "random net")
TIME, TRAINED = resource("epoch seconds"), resource("parameters trained")
TOY = Experiment("toy", "Toy", "?", (Grid((Arm("a"), Arm("b"), Arm("c"))),), (SSIM, DRIFT))


def scored(row, values):
    """A row with scores besides those that it has."""
    return row | {"scores": row.get("scores", {}) | {column: rows.Found(value) for column, value in values.items()}}


def toy_rows(**of):
    """Rows with an SSIM of mean `of[arm]` and a small common noise by seed."""
    chance = np.random.default_rng(3)
    noise = chance.normal(scale=0.1, size=5)
    own = {arm: chance.normal(scale=0.001, size=5) for arm in of}
    return [
        {"data": "mnist", "latent_dim": 8, "backbone": "convnet", "arm": arm, "seed": seed, "status": "done"}
        | scored({"config": arm}, {SSIM: float(mean + noise[seed] + own[arm][seed]), DRIFT: 1.0})
        for arm, mean in of.items()
        for seed in range(5)
    ]
