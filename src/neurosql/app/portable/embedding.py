"""What a page that is one file holds of a run: a description, the model, and what is shown of the training samples."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image

from neurosql.app.explorer import Opened, describe, images, points
from neurosql.app.portable import atlas
from neurosql.app.portable.decoding import decoding, generator_of
from neurosql.app.portable.laws import law_of
from neurosql.computation.packed import pack
from neurosql.computation.recording import Unknown
from neurosql.computation.steps import Computation
from neurosql.errors import InputError
from neurosql.fitted import Run
from neurosql.methods.quantiles import RARE, QuantileCodes
from neurosql.report.maps import main_axes

KINDS = {np.dtype("<f4"): "f4", np.dtype("<i4"): "i4", np.dtype("u1"): "u1"}
DRAWS = 2048
"""Draws from the law of the codes that stand for the training codes, where these are left out."""
TILE = 64
"""Pixels along the longer side of the picture of a training sample."""
CANVAS = 4096
"""Pixels along each side of a picture that browsers of phones can draw."""
EXACT = 3 * 2**20
"""Bytes of pixels that are kept exactly; more of them become a JPEG."""
MOST_VALUES = 2**23
"""Values of training samples that are not pictures."""
SLOW = 4e8
"""Multiplications for one sample, from which on a browser is too slow, and an atlas takes the place of the model."""


@dataclass
class Embedded:
    """Plain values, and arrays by name."""

    head: dict[str, Any]
    arrays: dict[str, np.ndarray]
    notes: list[str] = field(default_factory=list)
    """What is other than in the run, for whoever exports it."""

    def content(self) -> bytes:
        """The arrays one after another; `head` gets where each is."""
        parts, places, at = [], {}, 0
        for name, array in self.arrays.items():
            data = np.ascontiguousarray(array).tobytes()
            places[name] = {"type": KINDS[array.dtype], "shape": list(array.shape), "at": at}
            data += bytes(-len(data) % 4)
            parts.append(data)
            at += len(data)
        self.head["arrays"] = places
        return b"".join(parts)


def embedded(opened: Opened, name: str, with_images: bool) -> Embedded:
    """A run for a page of its own; without images, nothing of it is about single training samples."""
    run = opened.run
    private = not with_images or run.shared or not run.has_codes
    law = law_of(run)
    if law["name"] == "unknown":
        raise InputError("the model has a prior of your own, which a page can't draw from: export it with --onnx")
    if not private and opened.images().train is None:
        raise InputError(f"{opened.images().why} Or leave them out with --without-images.")
    known = describe(opened)
    description = known | {
        "name": name,
        "count": 0 if private else known["count"],
        "samplers": known["samplers"][:1],
        "notes": [],
        "facts": _facts(known["facts"], run, private),
        "running": False,
        "capabilities": dict.fromkeys(known["capabilities"], False)
        | {"points": known["capabilities"]["points"] and not private, "sample": True, "decode": run.has_codes},
    }
    if private and not run.method.classes:
        description["classes"] = []
    if private and run.has_codes:
        description |= _drawn(run)
    done = Embedded({"law": law, "latent": generator_of(run).latent_dim, "description": description}, {})
    _add_reach(done, run, law)
    _add_model(done, run)
    if description["capabilities"]["points"]:
        _add_points(done, opened)
    return done


def _facts(facts: list[list[str]], run: Run, private: bool) -> list[list[str]]:
    """Facts about the run; without class names' number where the classes are left out."""
    classes = "" if run.method.classes or not private else f", {len(run.like.classes)} classes"
    return [[name, value.removesuffix(classes) if classes else value] for name, value in facts]


def _drawn(run: Run) -> dict[str, Any]:
    """Where a map lies, by draws from the law: the training codes say nothing here."""
    codes = run.method.draw_usual(DRAWS, None, torch.Generator().manual_seed(0))[0].cpu().double().numpy()
    mean, axes = main_axes(codes)
    return {
        "range": np.stack([codes.min(0), codes.max(0)], 1).tolist(),
        "main": {"mean": mean.tolist(), "axes": axes.tolist()} if codes.shape[1] > 2 else None,
    }


def _add_reach(done: Embedded, run: Run, law: dict[str, Any]) -> None:
    """Where samples come from, if it is not everywhere: as `QuantileCodes.reaches` has it."""
    method = run.method
    if isinstance(method, QuantileCodes) and method.law is not None and not method.classes and len(method.lattice):
        least = method.law.log_prob(method.lattice.cpu().double()).quantile(RARE)
        done.head["least"] = float(least)
        done.head["description"]["capabilities"]["reach"] = True


def _add_model(done: Embedded, run: Run) -> None:
    """The model itself or, if a browser can't run it, images on a grid."""
    try:
        computation = decoding(run)
        why = "" if work(computation) < SLOW else "the model is too large to run in a browser"
    except Unknown as unknown:
        why = str(unknown)
    if not why:
        packed = pack(computation)
        done.head["plan"] = packed.plan
        done.arrays["model"] = np.frombuffer(packed.content, np.uint8)
        return
    if not run.has_codes:
        raise InputError(f"the page can't make samples, and has no map of them: {why}")
    made = atlas.made(run, done.head["description"])
    done.head["atlas"] = {"box": made.box, "side": made.side}
    done.arrays["model"] = made.values
    done.head["description"]["notes"] = [
        f"This page shows images that were made beforehand, at {made.side} x {made.side} places of the map."
    ]
    done.notes.append(f"{why}: the page shows images at {made.side} x {made.side} places of the map instead")


def work(computation: Computation) -> float:
    """Multiplications for one sample in products of matrices and convolutions."""
    total = 0.0
    for step in computation.steps:
        if step.op in ("linear", "conv", "deconv"):
            weight = computation.constants[step.inputs[1]]
            # Each weight is used once at each place of the output or, if it is transposed, of the input.
            shape = computation.shapes[step.inputs[0] if step.op == "deconv" else step.output]
            places = math.prod(shape[2:]) if step.op != "linear" else -min(shape[0], -1)
            total += weight.size * places
    return total


def _add_points(done: Embedded, opened: Opened) -> None:
    """The codes of the training samples, what is known about each, and the samples themselves."""
    arrays, _ = points(opened)
    for name in ("codes", "labels", "losses", "density", "components"):
        if name in arrays:
            done.arrays[name] = arrays[name].astype("<i4" if name in ("labels", "components") else "<f4")
    shape, n = opened.run.data.shape, len(opened.run.index)
    able = done.head["description"]["capabilities"]
    if opened.run.data.modality.is_picture and shape[0] in (1, 3):
        done.head["sprite"], done.arrays["images"] = _sprite(opened, n, shape)
        able["images"] = True
    elif n * math.prod(shape) <= MOST_VALUES:
        done.arrays["images"] = images(opened, np.arange(n)).values if n else np.empty((0, *shape), np.uint8)
        able["images"] = True
    else:
        many = opened.run.data.modality.plural
        done.notes.append(f"the training {many} are too large for one file: the page shows reconstructions")


def _sprite(opened: Opened, n: int, shape: tuple[int, ...]) -> tuple[dict[str, Any], np.ndarray]:
    """All training images, small, on one picture: where they are on it, and the file."""
    side = min(TILE, max(shape[1:]), max(1, math.isqrt(CANVAS**2 // n) - 7))
    parts = [images(opened, np.arange(i, min(i + 256, n)), side).values for i in range(0, n, 256)]
    small = np.concatenate(parts)
    exact = small.nbytes <= EXACT
    # In a JPEG, blocks of 8 x 8 pixels are packed together: none of them belongs to two images.
    grid = 1 if exact else 8
    pad = [-size % grid for size in small.shape[2:]]
    tiles = np.pad(small, [(0, 0), (0, 0), (0, pad[0]), (0, pad[1])], mode="edge")
    height, width = tiles.shape[2:]
    columns = max(1, min(n, CANVAS // width, math.ceil(math.sqrt(n * height / width))))
    rows = -(-n // columns)
    canvas = np.zeros((rows * columns, *tiles.shape[1:]), np.uint8)
    canvas[:n] = tiles
    whole = canvas.reshape(rows, columns, shape[0], height, width).transpose(0, 3, 1, 4, 2)
    whole = whole.reshape(rows * height, columns * width, shape[0])
    picture = Image.fromarray(whole[..., 0] if shape[0] == 1 else whole)
    content = io.BytesIO()
    if exact:
        picture.save(content, "PNG", optimize=True)
    else:
        picture.save(content, "JPEG", quality=88, subsampling=0)
    kind = "image/png" if exact else "image/jpeg"
    about = {"type": kind, "columns": columns, "tile": [height, width], "shape": list(small.shape)}
    return about, np.frombuffer(content.getvalue(), np.uint8)
