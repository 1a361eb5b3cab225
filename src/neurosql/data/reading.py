"""From a listing to pixels: files are decoded in parallel, once, into the cache."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from neurosql.data import obstacles, store, worker
from neurosql.data.decode import Bad, Decoded, Prep, decoder_of
from neurosql.data.listing import Item
from neurosql.data.tree import Tree
from neurosql.errors import Obstacles

FORMAT = 2
# With fewer samples, starting a second process takes longer than decoding.
FEW = 300
CHUNK_ROWS = 64
CHUNK_BYTES = 2**24
MAX_WORKERS = 16
LEAST = 2
"""Samples without which nothing can be learnt."""
FACTS = ("bad", "sizes", "modes", "channels", "remarks")
"""What the cache holds about the files, besides the pixels."""


@dataclass
class Pixels:
    """What was decoded, and what the files were."""

    values: np.ndarray
    """(n, c, ...), uint8 or float32, one row per entry of `kept`."""
    kept: np.ndarray
    """Positions, in the list of items, of those that could be read."""
    bad: list[tuple[str, str]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)
    """How many samples have each number of channels."""
    remarks: list[tuple[str, str]] = field(default_factory=list)
    notice: str = ""
    """Why the cache could not be used."""


def read(tree: Tree, items: list[Item], prep: Prep, skip_bad: bool = False, cache: bool = True) -> Pixels:
    """Decode the items, or take them from the cache.

    Raises `Obstacles` with all that is in the way: files that can't be read, unless they are to be skipped, and files
    of different sizes.
    """
    key = _key(tree, items, prep)
    found = store.look_up(key) if cache else None
    if found is not None:
        values, meta = found
        facts = {name: meta[name] for name in FACTS if name in meta}
        pixels = Pixels(values, np.array(meta["kept"], np.int64), **facts)
        pixels.bad = [(name, reason) for name, reason in pixels.bad]
    else:
        place = store.Place(key, cache)
        try:
            reading = _Reading(tree, items, prep, skip_bad, place.folder)
            pixels = reading.run()
            if reading.folder is not None:
                pixels.values = _keep(pixels, place)
            else:
                place.drop()
            pixels.notice = pixels.notice or place.why
        except BaseException:
            place.drop()
            raise
    if (bad := tree.skipped + pixels.bad) and not skip_bad:
        raise Obstacles([obstacles.unreadable(bad)], {"skip_bad": True})
    return pixels


def _key(tree: Tree, items: list[Item], prep: Prep) -> str:
    version = decoder_of(prep.decoder).version
    digest = hashlib.sha256(json.dumps([FORMAT, version, str(tree.path.resolve()), asdict(prep)]).encode())
    for item in items:
        entry = item.entry
        words = f"{item.name}\0{entry.size}\0{entry.mtime}\0{entry.mark}\n"
        digest.update(words.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _keep(pixels: Pixels, place: store.Place) -> np.ndarray:
    """Put the decoded array into the cache; returns it memory-mapped."""
    assert place.folder is not None
    values = pixels.values
    meta: dict[str, Any] = {"shape": list(values.shape), "type": values.dtype.str, "kept": pixels.kept.tolist()}
    place.keep(meta | {name: getattr(pixels, name) for name in FACTS})
    again = store.look_up(place.key, verify=False)
    return values if again is None else again[0]


class _Reading:
    """One pass over the items, in processes of their own: in several if that is faster."""

    def __init__(self, tree: Tree, items: list[Item], prep: Prep, skip_bad: bool, folder: Path | None) -> None:
        self.tree, self.items, self.prep, self.skip_bad, self.folder = tree, items, prep, skip_bad, folder
        self.decoder = decoder_of(prep.decoder)
        self.values: np.ndarray | None = None
        self.good = np.zeros(len(items), bool)
        self.bad: dict[int, str] = {}
        self.sizes: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.channels: Counter[str] = Counter()
        self.remarks: list[tuple[str, str]] = []
        self.shapes: Counter[tuple[int, ...]] = Counter()
        self.first: dict[tuple[int, ...], str] = {}
        self.lock = threading.Lock()
        self.failure: BaseException | None = None
        self.notice = ""

    def run(self) -> Pixels:
        count = max(1, min(worker.processors(), MAX_WORKERS, len(self.items) // CHUNK_ROWS))
        with tqdm(
            total=len(self.items), desc="reading", unit="sample", leave=False, disable=None, dynamic_ncols=True
        ) as bar:
            self._in_processes(1 if len(self.items) < FEW else count, bar)
        bad = [(self.items[row].name, reason) for row, reason in sorted(self.bad.items())]
        self._refuse(self.tree.skipped + bad)
        kept = np.flatnonzero(self.good)
        counted = {"sizes": dict(self.sizes), "modes": dict(self.modes), "channels": dict(self.channels)}
        return Pixels(self._compact(kept), kept, bad, remarks=self.remarks, notice=self.notice, **counted)

    def _in_processes(self, count: int, bar: tqdm) -> None:
        chunks = self._chunks()
        workers = [worker.Worker(self.prep) for _ in range(count)]

        def drive(process: worker.Worker) -> None:
            try:
                while self.failure is None:
                    with self.lock:
                        chunk = next(chunks, None)
                    if chunk is None:
                        return
                    answer = iter(process.ask([(p, [self.items[r].slice for r in rows]) for p, rows in chunk]))
                    with self.lock:
                        for _, rows in chunk:
                            self._take(rows, [next(answer) for _ in rows])
                            bar.update(len(rows))
            except BaseException as error:
                self.failure = self.failure or error

        threads = [threading.Thread(target=drive, args=(process,), daemon=True) for process in workers]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:
            self.failure = error
        finally:
            for process in workers:
                process.stop()
            for thread in threads:
                thread.join()
            for process in workers:
                process.close()
        if self.failure is not None:
            raise self.failure

    def _chunks(self) -> Iterator[list[tuple[bytes | str, list[int]]]]:
        return worker.in_chunks(self._tasks(), CHUNK_ROWS, CHUNK_BYTES)

    def _tasks(self) -> Iterator[tuple[bytes | str, list[int]]]:
        """Files, as paths or as bytes, with the rows that they hold."""
        limit = self.decoder.max_bytes
        groups = [list(rows) for _, rows in groupby(range(len(self.items)), key=lambda r: self.items[r].entry.name)]
        wanted: dict[str, list[int]] = {}
        for rows in groups:
            entry = self.items[rows[0]].entry
            if entry.size > limit or entry.size == 0:
                words = "is empty" if entry.size == 0 else f"has {entry.size:,} bytes: more than {limit:,} are refused"
                self._take(rows, [Bad(words)] * len(rows))
            elif (path := self.tree.location(entry)) is not None:
                yield str(path), rows
            else:
                wanted[entry.name] = rows
        if wanted:
            for entry, content in self.tree.stream((self.items[rows[0]].entry for rows in wanted.values()), limit):
                yield content, wanted.pop(entry.name)

    def _take(self, rows: list[int], results: list[Decoded | Bad]) -> None:
        for row, result in zip(rows, results):
            if isinstance(result, Bad):
                self.bad[row] = str(result)
                continue
            self.good[row] = True
            self.sizes[result.size] += 1
            self.modes[result.mode] += 1
            if result.remark:
                self.remarks.append((self.items[row].name, result.remark))
            array = result.array
            self.channels[str(len(array))] += 1
            self.shapes[array.shape[1:]] += 1
            self.first.setdefault(array.shape[1:], self.items[row].name)
            if len(self.shapes) > 1:
                continue
            if self.values is None:
                self.values = self._new((len(self.items), *array.shape), array.dtype)
            elif len(array) > self.values.shape[1]:
                # The first picture in colour: the ones before it get three channels too.
                grey = self.values
                self.values = self._new((len(self.items), *array.shape), array.dtype, "colour")
                for done in np.array_split(np.flatnonzero(self.good), 1 + len(self.items) // 1000):
                    self.values[done] = grey[done]
            self.values[row] = array

    def _new(self, shape: tuple[int, ...], dtype: Any, name: str = "") -> np.ndarray:
        if self.folder is not None:
            try:
                return store.mapped(self.folder / (name + store.PIXELS), shape, dtype)
            except OSError as error:
                self.notice = f"the cache has no room ({error.strerror}): images will be decoded again next time"
                self.folder = None
        return store.empty(shape, dtype)

    def _compact(self, kept: np.ndarray) -> np.ndarray:
        """The array in its final file, without the rows of bad files."""
        values = self.values
        assert values is not None
        if self.folder is None:
            return store.gather(values, kept)
        final = self.folder / store.PIXELS
        if len(kept) == len(values):
            coloured = self.folder / ("colour" + store.PIXELS)
            if coloured.exists():
                coloured.replace(final)
            return values
        self.values = self._new((len(kept), *values.shape[1:]), values.dtype, "kept")
        for start in range(0, len(kept), 1000):
            self.values[start : start + 1000] = values[kept[start : start + 1000]]
        if self.folder is not None:
            (self.folder / ("kept" + store.PIXELS)).replace(final)
        return self.values

    def _refuse(self, bad: list[tuple[str, str]]) -> None:
        """Raise all that is in the way, if anything is."""
        found, settled_by = [], {}
        if self.values is None:
            raise Obstacles([obstacles.all_unreadable(bad)], {})
        if bad and not self.skip_bad:
            found.append(obstacles.unreadable(bad))
            settled_by["skip_bad"] = True
            if self.good.sum() < LEAST:
                found.append(f"only {self.good.sum()} of the files can be read: at least {LEAST} are needed")
        if len(self.shapes) > 1:
            first = self.first[self.shapes.most_common()[1][0]]
            words, settled = obstacles.differing(str(self.tree.path), self.shapes, first, self.decoder.cure)
            found.append(words)
            settled_by |= settled
        if found:
            error = Obstacles(found, settled_by)
            error.shape = self.values.shape[1:] if len(self.shapes) == 1 else None
            raise error
