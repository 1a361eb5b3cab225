"""The page of a run, of a bench, or of a folder of benches."""

from __future__ import annotations

from pathlib import Path

from neurosql import run as runs
from neurosql.bench.experiments import find
from neurosql.checkpoint import CONFIG, SCORES, RunFolder
from neurosql.errors import InputError
from neurosql.report import bench, page


def report(path: str | Path) -> list[Path]:
    """Write the page of a run, a table of results or a folder of tables; returns the files that were written."""
    place = Path(path)
    if (place / CONFIG).is_file():
        folder = RunFolder.existing(path)
        run = runs.open_run(path)
        with folder.writing(), runs.damage_of(path):
            return page.write(run, folder.path, folder.read_object(SCORES))
    if place.is_dir():
        return bench.write_all(place)
    if place.suffix == ".csv" and place.is_file():
        return bench.write(find(place.stem), place)
    raise InputError(f"{path} is neither a run folder, nor a .csv of results, nor a folder of them")
