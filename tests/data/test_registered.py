"""Readers by record: their names, their settings, and readers and decoders that another package offers."""

import json
import subprocess
import sys
from dataclasses import asdict, fields

import numpy as np
import packages
import pytest

from neurosql import InputError, cli, data
from neurosql.data import decode, readers
from neurosql.data.audio import AudioSettings
from neurosql.data.nifti import NiftiSettings
from neurosql.settings import DataSettings

PLUGIN = '''
from dataclasses import dataclass

import numpy as np

from neurosql.data import Bad, Decoded, Decoder, Item, Listing, ReaderRecord
from neurosql.errors import InputError


@dataclass(frozen=True)
class GridSettings:
    """How grids are read."""

    gain: float = 1.0
    """Grids: factor on every number."""
    corner: tuple[int, int] = (0, 0)
    """Grids: first row and column that are kept."""
    axis: str = "down"
    """Grids: a setting of a name that NIfTI has too."""

    def check(self):
        if not self.gain > 0:
            raise InputError(f"gain must be positive, got {self.gain}")


def recognises(tree):
    raise AssertionError("readers of other packages are not asked")


def scan(tree, settings):
    found = [Item(entry, entry.base[0]) for entry in tree.matching(".grid")]
    return Listing(found, notes=[f"grids are read {settings.of(GridSettings).axis}"])


def sample(payload, number, prep):
    text = payload.decode() if isinstance(payload, bytes) else open(payload).read()
    rows = [[float(cell) for cell in line.split()] for line in text.splitlines()]
    if not rows:
        raise Bad("has no rows")
    down, right = prep.own.corner
    kept = np.array(rows, np.float32)[None, down:, right:] * prep.own.gain
    return Decoded(kept.clip(0, 1).astype(np.float32), f"{len(rows)} rows", "numbers")


DECODER = Decoder("grid", "a grid", sample, GridSettings, lambda prep: {"gain": prep.own.gain}, cure="--corner")
RECORD = ReaderRecord("grid", "grids", decoder="grids:DECODER", settings="grids:GridSettings")
'''


@pytest.fixture
def package(tmp_path):
    """A package with a reader, two of names that are taken, and one that can't be loaded."""
    names = {"grid": "grids:RECORD", "wav": "grids:RECORD", "folder": "grids:RECORD", "broken": "nowhere:X"}
    return packages.install(tmp_path / "site", "grids", {"grids.py": PLUGIN}, {"neurosql.readers": names})


@pytest.fixture
def grids(tmp_path):
    """320 files of numbers: enough for the processes that decode."""
    folder = tmp_path / "set"
    folder.mkdir()
    values = np.random.default_rng(0).integers(0, 9, (320, 6, 5)) / 20
    for i, rows in enumerate(values):
        np.savetxt(folder / f"{'ab'[i % 2]}{i:03d}.grid", rows, "%.2f")
    np.save(tmp_path / "values.npy", values[[*range(0, 320, 2), *range(1, 320, 2)]].astype(np.float32))
    return folder


READ = """
import sys
import numpy as np
from neurosql import InputError, data
from neurosql.data import reading, worker

folder, expected = sys.argv[1], np.load(sys.argv[2])
worker.processors = lambda: 2
started = []
begin = worker.Worker.__init__
worker.Worker.__init__ = lambda self, prep: (started.append(prep), begin(self, prep))[1]
images = data.load("grid:" + folder, gain=2.0, corner=(1, 2), cache=False)
assert len(started) == 2, "the workers were not used"
reading.FEW = 10**6
alone = data.load("grid:" + folder, gain=2.0, corner=[1, 2], cache=False)
assert len(started) == 3 and np.array_equal(images.pixels, alone.pixels)
assert np.allclose(images.x[:, 0], (2 * expected[:, 1:, 2:]).clip(0, 1)) and images.classes == ("a", "b")
assert images.reading.reader == "grid" and images.reading.notes == ["grids are read down"]
assert images.reading.preparation == {"decoder": "grid", "gain": 2.0}
assert images.reading.settings["corner"] == (1, 2) and images.reading.settings["axis"] == "down"
assert "audio" not in images.reading.settings
for options, words in (({"gain": 0}, "gain must be positive"), ({"depth": 1}, "unknown setting(s) of data: depth")):
    try:
        data.load("grid:" + folder, **options)
    except InputError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
"""


def test_a_reader_of_another_package_decodes_in_one_process_and_in_several(package, grids):
    packages.ran(package, "-c", READ, str(grids), str(grids.parent / "values.npy"))


def test_files_that_a_foreign_decoder_refuses_are_named(package, grids):
    (grids / "a999.grid").write_text("1 x\n")
    (grids / "b999.grid").write_text("0 1\n")
    code = (
        "import sys; from neurosql import InputError, data\n"
        "for skip in (False, True):\n"
        "    try: data.load('grid:' + sys.argv[1], skip_bad=skip)\n"
        "    except InputError as error: print(error)\n"
    )
    refused, differing = packages.ran(package, "-c", code, str(grids)).splitlines()
    assert "a999.grid can't be read as a grid: could not convert string to float: 'x'" in refused
    assert "2 sizes" in differing and differing.endswith("with --corner")


TRAINED = """
import sys
from pathlib import Path
from neurosql import cli

source, run, options = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
assert cli.main(["train", source, "--out", str(run), *options]) == 0
(run / "checkpoints" / "last.safetensors").unlink()
(run / "model.safetensors").unlink()
assert cli.main(["resume", str(run)]) == 0
assert cli.main(["encode", str(run), source, "--limit", "4", "--out", str(run / "z.npz")]) == 0
"""


def test_a_run_of_another_package_s_reader_is_resumed_with_its_settings(package, grids, tmp_path):
    source, run = f"grid:{grids}", tmp_path / "run"
    options = ["--gain", "2", "--corner", "1", "2", "--axis", "up", "--generator", "mlp", "--width", "8"]
    packages.ran(package, "-c", TRAINED, source, str(run), "--budget", "smoke", "--limit", "60", *options)
    kept = json.loads((run / "config.json").read_text())["data"]
    assert kept["reader"] == "grid" and kept["path"] == source and kept["shape"] == [1, 5, 3]
    assert {k: kept["settings"][k] for k in ("gain", "corner", "axis")} == {"gain": 2, "corner": [1, 2], "axis": "up"}
    page = (run / "report.html").read_text()
    assert "--gain 2.0 --corner 1 2 --axis up" in page and "--audio" not in page


def test_a_reader_of_another_package_has_flags_where_it_is_named(package, grids):
    shown = packages.commanded(package, f"neurosql data check grid:{grids} --help")
    assert "Grids: factor on every number" in shown
    shown = packages.commanded(package, f"neurosql data check {grids} --help")
    assert "--gain" not in shown and "--axis" in shown and "--audio-rate" in shown


def test_nothing_foreign_is_imported_unless_it_is_named(package, grids):
    code = (
        "import sys; from neurosql import InputError, cli, data; from neurosql.data import readers\n"
        "assert 'grid' in data.READERS and 'broken' in readers.names()\n"
        "try: data.load(sys.argv[1])\nexcept InputError as error: print(error)\n"
        "cli.train_command(['train', sys.argv[1]])\n"
        "assert readers.named('wav').name == 'audio' and readers.named('folder').name == 'folder'\n"
        "assert 'grids' not in sys.modules\n"
        "try: data.load('broken:' + sys.argv[1])\nexcept InputError as error: print(error)"
    )
    lines = packages.ran(package, "-c", code, str(grids)).splitlines()
    assert "no images in" in lines[0] and "'broken' of nowhere:X can't be loaded: ModuleNotFoundError" in lines[1]


def test_built_in_readers_are_asked_in_their_order():
    order = ["mnist", "medmnist", "celeba", "afhq", "oasis", "nifti", "audio", "table", "array", "folder"]
    assert [record.name for record in readers.built_in()] == order == list(data.READERS.built_in)
    others = {"fashion-mnist": "mnist", "kmnist": "mnist", "emnist": "mnist", "idx": "mnist", "npz": "array"}
    others |= {"npy": "array", "csv": "table", "parquet": "table", "wav": "audio"}
    assert {name: readers.named(name).name for name in others} == others
    assert set(readers.names()) == {*order, *others} and readers.named("celebb") is None


def test_settings_of_readers_import_no_numpy():
    code = (
        "import sys; from neurosql.data import readers\n"
        "assert all(record.name in readers.names() and record.own() for record in readers.built_in())\n"
        "assert not {'torch', 'numpy', 'PIL'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_reader_of_files_names_its_decoder():
    for record in readers.built_in():
        record.own().check()
        if record.decoder is not None:
            decoder = decode.decoder_of(record.decoder)
            assert decoder.settings in (None, record.own)
    with pytest.raises(InputError, match=r"decoder nowhere:X can't be loaded"):
        decode.decoder_of("nowhere:X")
    with pytest.raises(InputError, match="must be a Decoder, got function"):
        decode.decoder_of("neurosql.data.decode:decode")


def test_a_preparation_reaches_a_worker_whole():
    prep = decode.Prep("neurosql.data.volume:DECODER", 8, "grey", NiftiSettings(2, (0.0, 5.0)))
    assert decode.Prep.from_json(prep.to_json()) == prep
    plain = decode.Prep(readers.IMAGES)
    assert decode.Prep.from_json(plain.to_json()) == plain


def test_a_worker_of_pictures_imports_neither_settings_nor_torch():
    code = (
        "import sys, neurosql.data.worker, neurosql.data.picture\n"
        "assert not {'torch', 'scipy', 'neurosql.settings', 'neurosql.registry'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_two_built_in_settings_share_a_name():
    kinds = [DataSettings, *(record.own for record in readers.built_in())]
    names = [field.name for kind in kinds for field in fields(kind)]
    assert len(names) == len(set(names))


def test_settings_of_one_reader_come_back_from_a_flat_record():
    settings = readers.settings_of({"limit": 5, "axis": 2, "window": [0, 200], "audio": "waveform"})
    assert settings.limit == 5 and settings.of(NiftiSettings) == NiftiSettings(2, (0, 200))
    assert settings.of(AudioSettings) == AudioSettings("waveform")
    assert DataSettings.from_record(json.loads(json.dumps(settings.flat()))) == settings
    old = DataSettings().flat() | asdict(NiftiSettings()) | asdict(AudioSettings(audio_rate=4000))
    assert readers.changed(old, "audio") == {"audio_rate": 4000}


def test_settings_of_another_reader_do_not_disturb():
    settings = DataSettings(limit=4, own={"gain": 2.0, "axis": 2})
    images = data.load("mnist-sample", settings=settings)
    assert len(images) == 4 and images.reading.settings == DataSettings(limit=4).flat()


BAD_OPTIONS = {
    "axis must be 0, 1 or 2, got 7": {"axis": 7},
    "window must be two increasing numbers, got 2 and 1": {"window": (2, 1)},
    "audio must be one of log-mel, waveform, got 'loud'": {"audio": "loud"},
    r"audio_seconds must be in \(0, 600\], got 0": {"audio_seconds": 0},
    "audio_rate must be at least 1, got 0": {"audio_rate": 0},
    r"unknown setting\(s\) of data: axes": {"axes": 1},
}


@pytest.mark.parametrize("words", BAD_OPTIONS)
def test_a_setting_that_no_reader_can_use_is_refused(words):
    with pytest.raises(InputError, match=words):
        data.load("mnist-sample", **BAD_OPTIONS[words])


def test_flags_of_built_in_readers_are_checked_whatever_is_read(capsys):
    assert cli.main(["data", "check", "mnist-sample", "--axis", "7"]) == 2
    assert "axis must be 0, 1 or 2, got 7" in capsys.readouterr().err
