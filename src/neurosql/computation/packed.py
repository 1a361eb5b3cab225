"""A recorded computation as plain values and bytes, for `web/static/forward.js`, which follows it for one code.

Large constants are whole numbers of 16 bits with one scale for each row, which takes half the bytes of float32 and
loses an eighth of what half precision loses. All others are float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neurosql.computation.steps import Computation, sized

LARGE = 1024
"""Numbers of a constant that is packed."""
MOST = 2**15 - 1


@dataclass(frozen=True)
class Packed:
    """A computation that can be embedded in a page."""

    plan: dict[str, Any]
    """Steps and shapes for one code, and where in `content` each constant is; ready for JSON."""
    content: bytes


def pack(computation: Computation, compact: bool = True) -> Packed:
    """Pack a computation; without `compact`, all constants are float32."""
    content = bytearray()
    constants = {}
    for number, array in computation.constants.items():
        where: dict[str, Any] = {"shape": list(array.shape), "at": len(content)}
        if compact and array.size >= LARGE:
            scales, whole = _in_steps(array)
            where |= {"rows": len(scales)}
            content += scales.tobytes() + whole.tobytes()
        else:
            content += np.asarray(array, "<f4").tobytes()
        # Arrays of four bytes begin at a multiple of four.
        content += bytes(-len(content) % 4)
        constants[str(number)] = where
    steps = []
    for step in computation.steps:
        attributes = {name: value for name, value in step.attributes.items() if name != "shape"}
        steps.append({"op": step.op, "inputs": list(step.inputs), "output": step.output, **attributes})
    plan = {
        "codes": computation.codes,
        "labels": computation.labels,
        "output": computation.output,
        "steps": steps,
        "shapes": {str(number): sized(shape, 1) for number, shape in computation.shapes.items()},
        "constants": constants,
    }
    return Packed(plan, bytes(content))


def _in_steps(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as whole numbers (rows, m), int16, and the scale of each row, float32."""
    rows = array.reshape(len(array) if array.ndim > 1 else 1, -1).astype(np.float64)
    scales = np.maximum(np.abs(rows).max(1), np.finfo(np.float32).tiny) / MOST
    scales = scales.astype("<f4")
    return scales, np.clip(np.round(rows / scales[:, None].astype(np.float64)), -MOST, MOST).astype("<i2")
