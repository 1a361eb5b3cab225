"""The law that codes of new samples are drawn from, in plain values."""

from __future__ import annotations

from typing import Any

from neurosql.density import Mixture
from neurosql.fitted import Run
from neurosql.prior import Ball, Cube, Normal


def law_of(run: Run) -> dict[str, Any]:
    """How codes are drawn: the name of a law with its parameters, and the shares of the classes, if there are any.

    normal     scale * N(0, I)
    cube       each number uniform from low to high
    ball       uniform on the ball of that radius
    spherical  a uniform direction, and a length that is uniform from 0 to the radius
    mixture    for each class, or for all: means[k] + factors[k] N(0, I) with probability weights[k]
    unknown    a law of the user's own
    """
    method = run.method
    law = method.law_of(None) if hasattr(method, "law_of") else getattr(method, "prior", None)
    found: dict[str, Any]
    if isinstance(law, Mixture):
        found = {"name": "mixture", "groups": [_components(law, group) for group in range(len(law.weights))]}
    elif isinstance(law, Normal):
        found = {"name": "normal", "scale": law.scale}
    elif isinstance(law, Cube):
        found = {"name": "cube", "low": law.scale * law.low, "high": law.scale * law.high}
    elif isinstance(law, Ball):
        found = {"name": law.name, "radius": law.scale}
    else:
        found = {"name": "unknown"}
    if method.classes:
        counts = method.class_counts.double()
        found["shares"] = [round(float(share), 6) for share in counts / counts.sum()]
    return found


def _components(law: Mixture, group: int) -> dict[str, Any]:
    """The components of a class that are used."""
    used = law.weights[group] > 0
    parts = {"weights": law.weights, "means": law.means, "factors": law.factors}
    return {name: part[group][used].tolist() for name, part in parts.items()}
