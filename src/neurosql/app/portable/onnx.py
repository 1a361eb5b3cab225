"""The generator of a run as an ONNX file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import neurosql
from neurosql import files
from neurosql.app.portable import target
from neurosql.app.portable.decoding import decoding, generator_of
from neurosql.app.portable.laws import law_of
from neurosql.computation import onnx_file
from neurosql.fitted import Run


@dataclass(frozen=True)
class OnnxFile:
    """A generator that was written."""

    path: Path
    size: int
    """Bytes of the file."""
    inputs: list[str]
    """Its inputs, one phrase each."""
    output: str
    """Its output, in a phrase."""
    note: str
    """What the model in the file does not do that the run does; may be empty."""


def to_onnx(path: str | Path, out: str | Path | None = None) -> OnnxFile:
    """Write the generator of a finished run to a new .onnx file, by default in the current folder."""
    run = target.finished(path)
    where = target.target(path, out, ".onnx")
    content = onnx_file.model(decoding(run), entries(run))
    files.replace(where, content)
    labelled = ["labels (n,), int64: numbers of classes"] if run.method.classes else []
    shape = ", ".join(map(str, ("n", *run.data.shape)))
    return OnnxFile(
        where,
        len(content),
        [f"codes (n, {generator_of(run).latent_dim}), float32", *labelled],
        f"samples ({shape}), float32, {_units(run)}",
        _note(run),
    )


def entries(run: Run) -> dict[str, str]:
    """What the file says about the model: `onnx.load(file).metadata_props`."""
    found = {
        "neurosql": neurosql.__version__,
        "method": run.settings.method,
        "kind": run.data.kind,
        "shape": json.dumps(list(run.data.shape)),
        "latent_dim": str(generator_of(run).latent_dim),
        "codes": "float32 (n, latent_dim); draw them from `law`",
        "law": json.dumps(law_of(run)),
        "samples": f"float32 (n, *shape), {_units(run)}",
    }
    if run.data.modality.bounded:
        found["range"] = "[0, 1]"
    if run.data.columns:
        found["columns"] = json.dumps(list(run.data.columns))
    if run.method.classes:
        found |= {"labels": "int64 (n,); numbers of `classes`", "classes": json.dumps(list(run.like.classes))}
    return found


def _units(run: Run) -> str:
    return "channels first, from 0 to 1" if run.data.modality.bounded else "in the units of the table"


def _note(run: Run) -> str:
    """A sentence if the run's usual sampler is more than codes from the law."""
    chosen = run.method.default_sampling(run.usual)
    sampler, _ = run.method.record.sampling(chosen)
    if sampler is run.method.record.samplers[0]:
        return ""
    return (
        f"`neurosql sample` uses the sampler {sampler.name} for this run; codes from the law in the file correspond to "
        f"`--sampler {run.method.record.samplers[0].name}`"
    )
