"""`load`: from a path to an ImageSet with its parts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from neurosql.data import duplicates, mnist_sample, obstacles, readers, reading, splits, store
from neurosql.data.decode import Prep, decoder_of
from neurosql.data.imageset import ImageSet, channels_first, encode_labels, from_array, guess_layout, layout_of
from neurosql.data.listing import PARTS, Arrays, Listing, Reading
from neurosql.data.picture import centre
from neurosql.data.readers import NoSettings, ReaderRecord
from neurosql.data.tree import Tree
from neurosql.errors import InputError, Obstacles
from neurosql.settings import DataSettings


def load(
    source: str | Path,
    limit: int | None = None,
    *,
    seed: int = 0,
    settings: DataSettings | None = None,
    like: ImageSet | None = None,
    **options: Any,
) -> ImageSet:
    """Read `mnist-sample`, a path, or `NAME:PATH` with the name of a reader.

    `limit` and the `options` are fields of `DataSettings` or the reader's own settings; `settings` replaces them all.
    `seed` decides which samples a limit draws. If `like` is given, vectors are standardised as in that set. The result
    has the official validation and test parts of the source, if any; `divide` carves out those that are missing.
    """
    source = str(source)
    if settings is None:
        settings = readers.settings_of({"limit": limit, **options}, _named_in(source))
    settings.check()
    if source == mnist_sample.NAME:
        return _sample(settings, seed)
    reader, path = find(source)
    tree = Tree(path)
    if reader is None:
        reader = next((reader for reader in readers.built_in() if reader.recognises(tree)), None)
    if reader is None:
        raise InputError(
            f"can't read {source!r}: give mnist-sample, a folder or archive of images, volumes or sounds, "
            "or a .npy, .npz, .csv, .parquet or idx file"
        )
    settings.of(reader.own).check()
    unopened = [] if settings.skip_bad else tree.skipped
    try:
        found = reader.scan(tree, settings)
        if isinstance(found, Arrays):
            found.check(source)
    except InputError as error:
        raise obstacles.together(error, unopened) from None
    chosen = _choose(found, settings, seed)
    if isinstance(found, Listing):
        whole, chosen = _decoded(reader, source, tree, found, chosen, settings, seed)
    elif unopened:
        raise Obstacles([obstacles.unreadable(unopened)], {"skip_bad": True})
    else:
        whole = _converted(reader.name, source, found, _rows(chosen), settings, like)
    return _parted(whole, chosen, settings, reader.own, seed)


def load_in_parts(source: str | Path, how: DataSettings, validation_share: float, seed: int) -> ImageSet:
    """Read a source to train on, in parts: official ones, those of a split file, or drawn by seed."""
    images = load(source, seed=seed, settings=how)
    return images if how.split is not None else images.divide(validation_share, how.test_share, seed)


def find(source: str) -> tuple[ReaderRecord | None, Path]:
    """The reader that `NAME:PATH` names, if any, and the path. An InputError if the path does not exist."""
    name, colon, rest = source.partition(":")
    reader = _named_in(source)
    path = Path(source if reader is None else rest)
    is_name = name.replace("-", "").isalnum() and len(name) > 1
    if reader is None and colon and is_name and not _exists(path):
        raise InputError(f"no reader is called {name!r}: the readers are {', '.join(readers.names())}")
    path = expanded(path)
    if not _exists(path):
        raise InputError(f"no such data: {source!r} is neither mnist-sample nor an existing file or folder")
    return reader, path


def _named_in(source: str) -> ReaderRecord | None:
    """The reader whose name a source begins with, unless the whole source is a path."""
    name, colon, _ = source.partition(":")
    return readers.named(name) if colon and not _exists(Path(source)) else None


def expanded(path: Path) -> Path:
    """The path with `~` replaced; an InputError if there is no such home folder."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise InputError(f"{str(path)!r} names a home folder that is not known: give the whole path") from None


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError, RuntimeError):
        return False


def absolute(source: str) -> str:
    """The source with an absolute path."""
    if source == mnist_sample.NAME:
        return source
    try:
        _, path = find(source)
    except InputError:
        return source
    named = "" if _named_in(source) is None else source.partition(":")[0] + ":"
    return f"{named}{path.resolve()}"


def _sample(settings: DataSettings, seed: int) -> ImageSet:
    """The embedded digits. They are in random order, so the first ones are a random draw."""
    found = mnist_sample.read()
    assert found.parts is not None
    if settings.split is not None:
        chosen = splits.read_split(settings.split, len(found))
    else:
        chosen = {part: np.flatnonzero(found.parts == part) for part in PARTS}
        chosen["train"] = chosen["train"][: settings.limit]
    whole = _converted(mnist_sample.NAME, mnist_sample.NAME, found, _rows(chosen), settings)
    return _parted(whole, chosen, settings, NoSettings, seed)


def _rows(chosen: dict[str, np.ndarray]) -> np.ndarray:
    """All positions of some parts, sorted."""
    return np.sort(np.concatenate(list(chosen.values())))


def _choose(
    found: Listing | Arrays, settings: DataSettings, seed: int, usable: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Positions of the samples to read, by part: as many as the limit allows of those that are `usable` (n,)."""
    n = len(found)
    if settings.split is not None:
        return splits.read_split(settings.split, n)
    if isinstance(found, Listing):
        parts = np.array([item.part for item in found.items])
        names = [item.label for item in found.items]
        labels = None if None in names else encode_labels(names, n)[0]
    else:
        parts = np.full(n, "train") if found.parts is None else found.parts
        labels = encode_labels(found.labels, n)[0]
    if not (parts == "train").any():
        if usable is None:
            found.notes.append("there is no training part, so all samples are treated as one part")
        parts = np.full(n, "train")
    return splits.draw_parts(parts, settings.limit, seed, labels, usable)


def _decoded(
    reader: ReaderRecord,
    source: str,
    tree: Tree,
    found: Listing,
    chosen: dict[str, np.ndarray],
    settings: DataSettings,
    seed: int,
) -> tuple[ImageSet, dict[str, np.ndarray]]:
    """The files of these positions, decoded; under a limit, others take the place of those that can't be read."""
    size = found.image_size if settings.image_size is None else settings.image_size
    if reader.decoder is None:
        raise InputError(f"reader {reader.name!r} lists files but has no decoder for them")
    wanted = decoder_of(reader.decoder).settings
    prep = Prep(reader.decoder, size or None, settings.channels, None if wanted is None else settings.of(wanted))
    all_names = [item.label for item in found.items]
    codes, classes = (None, ()) if None in all_names else encode_labels(all_names, len(all_names))
    usable = np.ones(len(found), bool)
    bad: list[tuple[str, str]] = []
    while True:
        rows = _rows(chosen)
        try:
            pixels = reading.read(tree, [found.items[row] for row in rows], prep, settings.skip_bad, settings.cache)
        except Obstacles as error:
            error.labelled = codes is not None
            raise
        bad += pixels.bad
        usable[np.delete(rows, pixels.kept)] = False
        if not pixels.bad or settings.limit is None or settings.split is not None or len(rows) == usable.size:
            break
        chosen = _choose(found, settings, seed, usable)
    rows = rows[pixels.kept]
    items = [found.items[row] for row in rows]
    skipped = tree.skipped + bad
    notes = list(found.notes)
    if pixels.notice:
        notes.append(pixels.notice)
    subjects = None
    if any(item.subject is not None for item in items):
        subjects = np.array([item.subject or item.name for item in items])
    images = ImageSet(
        pixels.values,
        None if codes is None else codes[rows],
        classes,
        subjects,
        layout_of(pixels.values.shape[1:]),
        source=source,
        names=np.array([item.name for item in items]),
        rows=rows,
        reading=Reading(
            reader.name,
            preparation=_record(prep),
            notes=notes,
            skipped=skipped,
            sizes=pixels.sizes,
            modes=pixels.modes,
            channels=pixels.channels,
            remarks=pixels.remarks,
            ignored=found.ignored,
            found=len(found),
            undrawn=len(found) - len(rows) - len(bad),
        ),
    )
    return images, chosen


def _record(prep: Prep) -> dict[str, Any]:
    """What was done to every file, as `config.json` records it."""
    decoder = decoder_of(prep.decoder)
    record: dict[str, Any] = {"decoder": decoder.name}
    if prep.size:
        record |= {"image_size": prep.size, "crop": "centre", "resize": "bilinear, antialiased"}
    return record | decoder.record(prep)


def _converted(
    reader: str,
    source: str,
    found: Arrays,
    rows: np.ndarray,
    settings: DataSettings,
    like: ImageSet | None = None,
) -> ImageSet:
    """The rows of whole arrays."""
    layout = found.layout or guess_layout(found.values)
    codes, classes = encode_labels(found.labels, len(found))
    values = store.gather(found.values, rows)
    try:
        if settings.image_size and layout in ("nhw", "nhwc", "nchw"):
            values, layout = _resized(values, layout, settings.image_size), "nchw" if layout == "nchw" else layout
        if values.dtype == np.uint8 and layout != "np":
            # Bytes stay bytes until they are used.
            from_array(values[:1], layout=layout)
            images = ImageSet(np.ascontiguousarray(channels_first(values, layout)), layout=layout)
        else:
            mean, std = (None, None) if like is None else (like.mean, like.std)
            images = from_array(values, layout=layout, mean=mean, std=std)
        channels = {str(images.shape[0]): len(images)} if images.modality.is_picture else {}
        images = _channels(images, settings.channels)
        if images.columns is not None:
            images = replace(images, columns=replace(images.columns, names=found.columns))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    except MemoryError:
        raise InputError(f"{source} needs more memory than there is: use fewer samples with --limit") from None
    record: dict[str, Any] = {"decoder": "array", "channels": settings.channels}
    if settings.image_size and images.modality.is_picture:
        record |= {"image_size": settings.image_size, "crop": "centre", "resize": "bilinear, antialiased"}
    return replace(
        images,
        labels=None if codes is None else codes[rows],
        classes=classes,
        subjects=None if found.subjects is None else found.subjects[rows],
        source=source,
        rows=rows,
        reading=Reading(
            reader,
            preparation=record,
            notes=found.notes,
            skipped=found.skipped,
            channels=channels,
            found=len(found),
            undrawn=len(found) - len(rows),
        ),
    )


def _resized(values: np.ndarray, layout: str, side: int) -> np.ndarray:
    """Images of any layout, centre-cropped and resized, in the same layout."""
    first = channels_first(values, layout)
    n, channels, height, width = first.shape
    box = centre(width, height)
    result = store.empty((n, channels, side, side), values.dtype if values.dtype == np.uint8 else np.float32)
    for i in range(n):
        for c in range(channels):
            plane = np.ascontiguousarray(first[i, c], dtype=result.dtype)
            result[i, c] = np.asarray(Image.fromarray(plane).crop(box).resize((side, side), Image.Resampling.BILINEAR))
    if layout == "nhw":
        return result[:, 0]
    return np.moveaxis(result, 1, -1) if layout == "nhwc" else result


def _channels(images: ImageSet, channels: str) -> ImageSet:
    """Grey from colour by the usual luma weights, or colour from grey by repetition."""
    if not images.modality.is_picture or channels == "auto":
        return images
    pixels = images.pixels
    if channels == "grey" and pixels.shape[1] == 3:
        luma = np.tensordot(pixels, np.array([0.299, 0.587, 0.114], np.float32), axes=(1, 0))[:, None]
        return replace(images, pixels=luma.round().astype(np.uint8) if pixels.dtype == np.uint8 else luma, layout="nhw")
    if channels == "colour" and pixels.shape[1] == 1:
        return replace(images, pixels=np.repeat(pixels, 3, axis=1), layout="nhwc")
    return images


def _parted(
    whole: ImageSet, chosen: dict[str, np.ndarray], settings: DataSettings, own: type[Any], seed: int
) -> ImageSet:
    """The training part, with the other parts; `own` is the class of the reader's settings."""
    rows = whole.rows
    assert rows is not None and whole.reading is not None
    kept = replace(settings, split=None, own=asdict(settings.of(own))).flat()
    reading = replace(whole.reading, settings=kept, seed=seed, divided=settings.split is not None)
    whole = replace(whole, reading=reading)
    if settings.group == "none":
        whole = replace(whole, subjects=None)
    elif settings.group == "near-duplicates":
        whole = replace(whole, subjects=duplicates.groups(whole))
    sets: dict[str, Any] = {}
    for part, wanted in chosen.items():
        members = np.flatnonzero(np.isin(rows, wanted))
        if len(members):
            sets[part] = whole.take(members)
    train = sets.pop("train", None)
    if train is None or len(train) < 2:
        bad = [obstacles.unreadable(reading.skipped)] if reading.skipped and not settings.skip_bad else []
        left = f"{whole.source} holds {0 if train is None else len(train)} image(s)"
        but = f" that can be read, and {len(reading.skipped):,} that can't" if reading.skipped else ""
        raise Obstacles([*bad, f"{left}{but}: at least 2 are needed"], {})
    return replace(train, **sets).standardised() if sets else train
