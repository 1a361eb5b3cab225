"""What each command does, once its arguments are parsed. Apart from `cli` because it needs torch."""

from __future__ import annotations

import dataclasses
import itertools
import json
import platform
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

import neurosql
from neurosql import data, engine
from neurosql import evaluate as evaluation
from neurosql import run as runs
from neurosql.checkpoint import CODES, CONFIG, HISTORY, MODEL, SPLIT, USED, RunFolder
from neurosql.data import catalogue, check, fetch
from neurosql.errors import InputError
from neurosql.metrics import weights
from neurosql.metrics.pairs import reconstruction_score
from neurosql.metrics.score import Score, table
from neurosql.report import page, pictures
from neurosql.run import Run
from neurosql.settings import DataSettings, Sampling, Settings
from neurosql.training import Stopped

SCORES = "scores.json"


def train(source: str, settings: Settings, out: str | None, how: DataSettings) -> None:
    images = read(source, how, settings)
    print(check.brief(images))
    path = Path(out) if out else _claimed(source)
    try:
        run = runs.train(images, settings, path, progress=True, say=print)
    except Stopped:
        raise KeyboardInterrupt(_stopped(path)) from None
    except InputError:
        if not out:
            with suppress(OSError):  # only where nothing was written
                path.rmdir()
        raise
    _finish(run, images.x[run.index], path)


def read(source: str, how: DataSettings, settings: Settings) -> data.ImageSet:
    """The samples of a training, in parts: official ones, those of a split file, or drawn by the run's seed."""
    training = settings.training
    images = data.load(source, seed=training.seed, settings=how)
    if how.split is not None:
        return images
    return images.divide(training.validation_share, how.test_share, training.seed)


def resume(path: str, source: str | None) -> None:
    folder = RunFolder.existing(path)
    if runs.is_finished(folder) and folder.has(page.NAME):
        print(f"finished   {path} has come to its end: nothing was changed")
        print(f"next       neurosql sample {path} -n 64, or neurosql evaluate {path}")
        return
    seen: list[data.ImageSet] = []

    def load(source: str, how: tuple[DataSettings, int]) -> data.ImageSet:
        seen.append(data.load(source, settings=how[0], seed=how[1]))
        return seen[-1]

    try:
        run = runs.resume(path, load, source, progress=True, say=print)
    except Stopped:
        raise KeyboardInterrupt(_stopped(Path(path))) from None
    images = seen[-1] if seen else _sets(run, path)[0]
    _finish(run, images.x[run.index] if seen else images.x, Path(path))


def sample(path: str, n: int, label: str | None, seed: int, how: Sampling, out: str | None) -> None:
    run = runs.open_run(path)
    images, labels = run.sample(n, label, seed, **dataclasses.asdict(how))
    of_class = "" if label is None else f"-{label}"
    of_class += "" if how.sampler is None else f"-{how.sampler}"
    is_image = run.data["kind"] == "image"
    target = Path(out) if out else Path(path) / f"samples-seed{seed}{of_class}{'.png' if is_image else '.npy'}"
    _make_parent(target)
    if target.suffix == ".png":
        if not is_image:
            raise InputError(f"{run.data['kind']}s have no picture sheet: give a .npy or .npz file")
        pictures.sheet(images, target, columns=max(1, round(n**0.5)))
    elif target.suffix == ".npy":
        np.save(target, run.like.restore(images))
    elif target.suffix == ".npz":
        named = {} if labels is None else {"labels": np.array(run.like.classes)[labels]}
        np.savez_compressed(target, images=run.like.restore(images), **named)
    elif target.suffix == "" and is_image:
        target.mkdir(parents=True, exist_ok=True)
        for i, image in enumerate(images):
            pictures.sheet(image[None], target / f"{i:05d}.png", gap=0, pixels=0)
    else:
        raise InputError(f"can't write samples to {target}: give a .png, .npy or .npz file, or a folder")
    print(f"wrote {n} samples to {target}")


def encode(path: str, source: str, limit: int | None, skip_bad: bool, part: str, out: str | None) -> None:
    run = runs.open_run(path)
    how, _ = runs.reading_of(RunFolder.existing(path))
    how = dataclasses.replace(how, limit=limit, skip_bad=skip_bad, split=None, group="none")
    # New images are brought to the shape of the old ones by the same steps.
    done = run.data.get("preparation", {})
    if how.image_size is None and "image_size" in done:
        how = dataclasses.replace(how, image_size=done["image_size"])
    if how.channels == "auto" and run.data["kind"] == "image" and done.get("decoder") == "image":
        how = dataclasses.replace(how, channels="colour" if run.data["shape"][0] == 3 else "grey")
    images = data.load(source, settings=how, like=run.like)
    if part not in images.parts:
        raise InputError(f"{source} has no {part} part of its own: it has {', '.join(images.parts)}")
    images = images.parts[part]
    if images.shape != tuple(run.data["shape"]):
        raise InputError(f"the model's samples have shape {tuple(run.data['shape'])}, those of {source} {images.shape}")
    target = Path(out) if out else Path(path) / f"codes-{_stem(source)}.npz"
    if target.suffix not in (".npz", ".csv"):
        raise InputError(f"can't write codes to {target}: give a .npz or a .csv file")
    _make_parent(target)
    codes, labels, losses = run.encode(images.x, progress=True)
    named = {} if labels is None else {"labels": np.array(run.like.classes)[labels]}
    if images.names is not None:
        named["names"] = images.names
    if target.suffix == ".npz":
        np.savez_compressed(target, codes=codes, losses=losses, **named)
    else:
        columns = [f"z{i + 1}" for i in range(codes.shape[1])] + ["loss"] + [name.removesuffix("s") for name in named]
        rows = np.column_stack([codes, losses, *map(_quoted, named.values())]).tolist()
        target.write_text("\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n", encoding="utf-8")
    print(f"mean loss  {losses.mean():.4f} over {len(losses)} samples")
    print(f"wrote codes of {len(codes)} samples to {target}")


def evaluate(path: str, against: str | None, options: evaluation.Options) -> None:
    run = runs.open_run(path)
    folder = RunFolder.existing(path)
    train, heldout = _sets(run, path)
    if against is not None:
        heldout = data.load(against)
        if heldout.shape != train.shape:
            raise InputError(f"{against} holds samples of shape {heldout.shape}, the model's have {train.shape}")
    found = evaluation.evaluate(run, train, heldout, options, progress=True)
    folder.write_json(SCORES, {score.key: score.record() for score in found.scores})
    print(table(found.scores))
    if found.memorisation is not None:
        print(found.memorisation.sentence())
        assert found.samples is not None
        drawn = pictures.draw_copies(run, found.samples, train.x, found.memorisation, folder.path)
        print(f"wrote {', '.join(drawn)} to {path}")
    written = page.write(run, folder.path, folder.read_json(SCORES))
    for sentence in found.left_out:
        print(f"left out: {sentence}")
    print(f"wrote {', '.join(str(path) for path in [folder.path / SCORES, *written])}")


def report(path: str) -> None:
    from neurosql.bench.experiments import find
    from neurosql.report import bench

    place = Path(path)
    if (place / CONFIG).is_file():
        folder = RunFolder.existing(path)
        scores = folder.read_json(SCORES) if folder.has(SCORES) else {}
        written = page.write(runs.open_run(path), folder.path, scores)
    elif place.is_dir():
        written = bench.write_all(place)
    elif place.suffix == ".csv" and place.is_file():
        written = bench.write(find(place.stem), place)
    else:
        raise InputError(f"{path} is neither a run folder, nor a .csv of results, nor a folder of them")
    for file in written:
        print(f"wrote {file}")


def fetch_weights(name: str, file: str | None) -> None:
    print(f"wrote {weights.fetch(name, file, say=print)}")


def list_weights() -> None:
    for name in weights.KNOWN:
        path = weights.path_of(name)
        print(f"{name:<11} {path if path.is_file() else f'not here: neurosql weights fetch {name}'}")


def _sets(run: Run, path: str) -> tuple[data.ImageSet, data.ImageSet | None]:
    """The images that a run was trained on, in its order, and those that it was not."""
    how, seed = runs.reading_of(RunFolder.existing(path))
    images = data.load(run.data["path"], settings=how, seed=seed)
    if images.fingerprint != run.data["fingerprint"]:
        raise InputError(f"{run.data['path']} no longer holds the images that {path} was trained on")
    train = images.take(run.index)
    unseen = images.test or images.validation
    if unseen is not None:
        return train, unseen
    rest = np.setdiff1d(np.arange(len(images)), run.index)
    return train, images.take(rest) if len(rest) else None


def info(path: str | None) -> None:
    if path is None:
        print(f"neurosql   {neurosql.__version__}")
        print(f"python     {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}")
        print(f"devices    cpu ({torch.get_num_threads()} threads)" + (", cuda" if torch.cuda.is_available() else ""))
        for part, how in engine.describe().items():
            print(f"{part:<10} {how}")
        return
    folder = RunFolder.existing(path)
    config = folder.config()
    settings = runs.settings_of(config)
    records = folder.history()
    described = config["data"]
    print(f"run        {path} (neurosql {config['version']}, {config['created']})")
    print(f"data       {described['description']}, from {described['source']}")
    print(f"method     {settings.method}{', class-conditional' if settings.generator.conditional else ''}")
    for name, network in config["networks"].items():
        kind = f"{network['name']}, latent dimension {network['latent_dim']}, " if "name" in network else ""
        print(f"{name:<10} {kind}{network['parameters']:,} parameters")
    if folder.has(USED):
        used = folder.read_json(USED)
        print(
            f"used       {used['steps']:,} steps, {used['images']:,} images, {used['seconds']:.0f} s, "
            f"{used['peak_memory'] / 2**30:.2f} GiB"
        )
    finished = runs.is_finished(folder)
    print(f"state      {'finished' if finished else 'stopped'} after {len(records)} epochs")
    if records:
        last = records[-1]
        figures = {k: v for k, v in last.items() if isinstance(v, float) and k != "learning_rate"}
        print("last epoch " + ", ".join(f"{name} {value:.4f}" for name, value in figures.items()))
    if folder.has(SCORES):
        print(table(map(Score.from_record, folder.read_json(SCORES).values())))
    print(f"next       {f'neurosql sample {path} -n 64' if finished else f'neurosql resume {path}'}")


def _finish(run: Run, x: np.ndarray, path: Path) -> None:
    """Scores, pictures and the page of a run trained on x (n, *shape)."""
    scores = {}
    if run.data["kind"] != "vector" and run.has_codes:
        score = reconstruction_score(x, run.reconstruct())
        scores[score.key] = score.record()
    (path / SCORES).write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    drawn = pictures.draw_all(run, x, path, run.settings.training.seed)
    report = page.write(run, path, scores)[0]
    for record in scores.values():
        print(f"{record['name']}  {record['value']:.4f} ({record['mode']}, n = {record['n']})")
    print(f"wrote {path}: {', '.join([MODEL, CODES, HISTORY, USED, SPLIT, SCORES, *drawn, page.NAME])}")
    print(f"look at    {report}")
    print(f"next       neurosql sample {path} -n 64, or neurosql evaluate {path}")


def data_check(source: str, how: DataSettings, seed: int, sheet: str | None) -> None:
    images = data.load(source, seed=seed, settings=dataclasses.replace(how, skip_bad=True))
    print(check.report(images))
    target = Path(sheet) if sheet else Path(f"{_stem(source)}-check.png")
    _make_parent(target)
    if check.contact_sheet(images, target):
        print(f"wrote {target}")


def data_fetch(name: str, out: str | None) -> None:
    folder = fetch.fetch(name, Path(out) if out else Path("data"), say=print)
    print(f"next       neurosql train {folder}")


def _quoted(values: np.ndarray) -> np.ndarray:
    """Names as cells of a .csv file."""
    return np.array(['"' + v.replace('"', '""') + '"' if any(c in v for c in ',"\n') else v for v in map(str, values)])


def _stopped(path: Path) -> str:
    return f"stopped; the run is saved. Go on with: neurosql resume {path}"


def _claimed(source: str) -> Path:
    """runs/NAME-1, or the next number that is free: made here, so that nobody else takes it."""
    stem = _stem(source)
    for number in itertools.count(1):
        path = Path("runs") / f"{stem}-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("unreachable")


def _stem(source: str) -> str:
    try:
        path = catalogue.find(source)[1].resolve()
    except InputError:
        path = Path(source)
    return (path.name if path.is_dir() else path.stem) or "run"


def _make_parent(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
