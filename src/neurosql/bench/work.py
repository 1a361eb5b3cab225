"""One run of an experiment, from its declaration to a row: `python -m neurosql.bench.work FOLDER`."""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

import neurosql
from neurosql import evaluate, files
from neurosql import run as runs
from neurosql.bench import rows, sources
from neurosql.bench.declare import Job
from neurosql.bench.jobs import JOB, LOCK, PLANE, REASON, RUN, SAMPLES
from neurosql.bench.jobs import RESULT as ROW
from neurosql.checkpoint import CHECKPOINT, CONFIG, MODEL, SPLIT
from neurosql.errors import InputError
from neurosql.fitted import Run

SHOWN = 36
PLANE_DIM = 2


def carry_out(job: Job, source: str, folder: Path) -> rows.Row:
    """Train or resume, then evaluate; returns the row, and also writes it to `folder`."""
    images = sources.read(job, source, folder / SPLIT)
    run = _trained(job, images, folder / RUN)
    row = rows.identity(job) | {"status": rows.DONE, "reason": ""} | _taken(run) | machine()
    if job.samples:
        began = time.perf_counter()
        row |= _scores(job, run, images)
        row["scoring seconds"] = round(time.perf_counter() - began, 2)
        if job.seed == 0:
            _leave(run, folder)
    files.replace(folder / ROW, (json.dumps(rows.record(row)) + "\n").encode())
    shutil.rmtree(folder / RUN / "checkpoints", ignore_errors=True)
    return row


def machine() -> rows.Row:
    """Versions and machine behind the figures of a row."""
    return {
        "version": neurosql.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
    }


def is_trained(folder: Path) -> bool:
    """Whether the run in a job's folder is finished: it then has a model and no checkpoint."""
    return (folder / RUN / MODEL).is_file() and not (folder / RUN / CHECKPOINT).is_file()


def _trained(job: Job, images: Any, path: Path) -> Run:
    if is_trained(path.parent):
        return runs.open_run(path)
    if (path / CONFIG).is_file():
        return runs.resume(path, lambda *_: images)
    twin = None if job.alone else _twin(job, path.parent)
    return runs.train(images, job.settings, path) if twin is None else runs.open_run(twin / RUN)


def _twin(job: Job, folder: Path) -> Path | None:
    """The folder of another job that has trained the same model, and differs in how it is sampled or scored."""
    own = _model(job)
    for other in sorted(folder.parent.iterdir()):
        if other == folder or other.is_symlink() or not (other / ROW).is_file() or not is_trained(other):
            continue
        try:
            theirs = Job.from_record(json.loads((other / JOB).read_text("utf-8"))["job"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _model(theirs) == own:
            return other
    return None


def _model(job: Job) -> tuple[Any, ...]:
    """What decides a trained model."""
    return job.data, job.images, job.pixels, job.settings


def _taken(run: Run) -> rows.Row:
    """Time, memory and parameters of a trained run; epochs exclude validation."""
    used, epochs = run.used, len(run.history)
    assert used is not None
    spent = sum(seconds for r in run.history for part, seconds in r["seconds"].items() if part != "validation")
    return {
        "epochs": epochs,
        "steps": used.steps,
        "seconds": round(used.seconds, 2),
        "epoch seconds": round(spent / max(epochs, 1), 4),
        "peak megabytes": round(used.peak_memory / 1e6, 1),
        "parameters trained": used.parameters_trained,
        "parameters sampling": used.parameters_sampling,
    }


def _scores(job: Job, run: Run, images: Any) -> rows.Row:
    options = evaluate.Options(
        samples=job.samples,
        image_pairs=min(evaluate.PAIRS, job.samples),
        sampling=job.sampling,
        seed=job.seed,
        downstream=job.synthetic > 0,
        vgg=job.vgg,
        synthetic=job.synthetic,
        classifier_steps=job.classifier_steps,
    )
    found = evaluate.evaluate(run, images.take(run.index), images.test, options)
    row: rows.Row = {rows.SCORES: {score.column: rows.Found(score.value, score.floor) for score in found.scores}}
    if found.memorisation is not None:
        row[rows.VERDICT] = found.memorisation.verdict
    return row


def _leave(run: Run, folder: Path) -> None:
    """Save arrays for the sheets of a page: some samples, and the codes if they are in a plane."""
    if run.data.modality.is_picture:
        samples = run.sample(SHOWN, seed=0)[0]
        _save(folder / SAMPLES, samples=(samples.clip(0, 1) * 255).round().astype(np.uint8))
    if run.has_codes and run.settings.generator.latent_dim == PLANE_DIM:
        labels = {} if run.labels is None else {"labels": np.asarray(run.labels)}
        _save(folder / PLANE, codes=run.method.codes.cpu().numpy(), classes=np.array(run.like.classes, str), **labels)


def _save(path: Path, **arrays: np.ndarray) -> None:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    files.replace(path, content.getvalue())


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main(folder: Path) -> int:
    """Run the job in `folder`; if it fails, the reason is written there too."""
    record = json.loads((folder / JOB).read_text("utf-8"))
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    lock = locked(folder)
    try:
        if (folder / ROW).is_file():
            return 0
        carry_out(Job.from_record(record["job"]), record["source"], folder)
    except KeyboardInterrupt:
        return 130
    except InputError as error:
        files.replace(folder / REASON, f"{error}\n".encode())
        return 2
    except BaseException:
        files.replace(folder / REASON, traceback.format_exc().encode())
        return 1
    finally:
        lock.close()
    return 0


def _follow(parent: int) -> None:
    """End this process when its queue is gone: a killed queue can't stop its runs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def locked(folder: Path) -> IO[str]:
    """Wait for the lock of a job's folder and return it; closing it frees the folder."""
    lock = (folder / LOCK).open("w")
    try:
        import fcntl
    except ImportError:  # Windows
        return lock
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


if __name__ == "__main__":
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.exit(main(Path(sys.argv[1])))
