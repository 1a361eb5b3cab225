"""What a run is, and where its training images lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor

from neurosql.app.explorer.opened import Opened
from neurosql.app.explorer.watching import is_running
from neurosql.checkpoint import SCORES, RunFolder
from neurosql.fitted import Run
from neurosql.methods.search import Searched
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.score import Score, beside, number
from neurosql.report import page
from neurosql.report.maps import main_axes

REFERENCE = 2048
"""Draws that stand for the codes where there are none."""
NEIGHBOURS = 10
"""Nearest codes that say how dense they are."""
FAR = 1e6


def describe(opened: Opened) -> dict[str, Any]:
    """What the page calls a description (see source.js): plain values."""
    run = opened.run
    kind, codes = run.data.modality, _spanned(run)
    read = opened.images_if_read
    dim = run.settings.generator.dim if run.has_codes else 0
    return {
        "name": opened.name,
        "kind": kind.name,
        "shape": list(run.data.shape),
        "dim": dim,
        "count": len(run.index) if opened.has_points else 0,
        "classes": list(run.like.classes),
        "conditional": bool(run.method.classes),
        "columns": list(run.data.columns),
        "whole": [] if run.like.columns is None else run.like.columns.whole.astype(bool).tolist(),
        "main": _main(codes) if dim > 2 else None,
        "range": np.stack([codes.min(0), codes.max(0)], 1).tolist() if dim else [],
        "samplers": [{"name": s.name, "title": s.title, "fraction": s.fraction} for s in run.method.record.samplers],
        "notes": [] if read is None or read.train is not None else [read.why],
        "facts": [[name, value] for name, value in page.facts(run).items() if value],
        "scores": scores_of(opened.folder),
        "running": is_running(opened.folder),
        "capabilities": {
            "points": opened.has_points,
            "decode": run.has_codes,
            "images": opened.has_points and (read is None or read.train is not None),
            "neighbours": opened.has_points and (read is None or read.train is not None),
            "sample": True,
            "nearest": not run.shared and (read is None or read.train is not None),
            "locate": run.has_codes and kind.is_picture,
            "watch": True,
            "reach": run.has_codes and not bool(run.method.reaches(torch.full((1, max(dim, 1)), FAR)).all()),
        },
    }


def scores_of(folder: RunFolder) -> list[dict[str, Any]]:
    """The scores of a run as the page shows them."""
    found = [as_judged_today(Score.from_record(record)) for record in folder.read_object(SCORES).values()]
    return [
        {
            "name": f"{score.name} ({score.features})" if score.features else score.name,
            "mode": score.mode,
            "value": score.value,
            "text": number(score.value),
            "direction": score.direction,
            "beside": beside(score),
            "note": score.note,
        }
        for score in found
    ]


def points(opened: Opened) -> tuple[dict[str, np.ndarray], list[str] | None]:
    """The codes of the training images and what is known about each: arrays by name, and the names of the files."""
    run = opened.run
    run.need_codes()
    codes, known = run.method.codes.cpu(), run.trained_on()
    found: dict[str, np.ndarray | None] = {
        "codes": codes.float().numpy(),
        "labels": None if run.labels is None else run.labels.astype(np.int32),
        "losses": None if known is None else known.losses.astype(np.float32),
        "density": density(run, codes).astype(np.float32),
        "components": _components(run, codes),
        "positions": None if run.split is None else np.asarray(run.code_table()["positions"], np.int32),
    }
    names = None if known is None or known.names is None else known.names.tolist()
    return {name: values for name, values in found.items() if values is not None}, names


def density(run: Run, codes: Tensor) -> np.ndarray:
    """The logarithm of the density at each code (n, d): that of the law of the codes, or an estimate from those
    nearest to it, up to a constant."""
    labels = run.method.code_labels()
    if isinstance(run.method, Searched):
        law = run.method.law_of(None if labels is None else labels[:1])
        if law.has_density:
            return _by_law(run.method, codes.double(), labels)
    points = codes.numpy().astype(np.float64)
    count = min(NEIGHBOURS, len(points) - 1)
    if not count:
        return np.zeros(len(points))
    far = KDTree(points).query(points, [count + 1])[0][:, 0]
    return -points.shape[1] * np.log(np.maximum(far, np.finfo(np.float32).tiny))


def _by_law(method: Searched, codes: Tensor, labels: Tensor | None) -> np.ndarray:
    if labels is None:
        return method.law_of(None).log_prob(codes).numpy()
    found = np.empty(len(codes))
    for label in labels.unique():
        rows = (labels == label).cpu()
        found[rows.numpy()] = method.law_of(label[None]).log_prob(codes[rows]).numpy()
    return found


def _components(run: Run, codes: Tensor) -> np.ndarray | None:
    """The component of a mixture that each code belongs to, if all classes share one."""
    law = getattr(run.method, "law", None)
    if law is None or run.method.classes or int((law.weights > 0).sum()) < 2:
        return None
    return law.likeliest(codes.double()).numpy().astype(np.int32)


def _spanned(run: Run) -> np.ndarray:
    """Codes that a map has to cover; draws, if the model was shared without codes."""
    if not run.has_codes:
        return np.empty((0, 0))
    codes = run.method.spanned()
    if not len(codes):
        with torch.no_grad():
            codes = run.method.draw_usual(REFERENCE, None, torch.Generator().manual_seed(0))[0]
    return codes.cpu().double().numpy()


def _main(codes: np.ndarray) -> dict[str, Any]:
    mean, axes = main_axes(codes)
    return {"mean": mean.tolist(), "axes": axes.tolist()}
