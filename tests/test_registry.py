"""Records by name: built in, or offered by another package, and imported only when they are asked for."""

import subprocess
import sys

import pytest

from neurosql import children
from neurosql.errors import InputError
from neurosql.modality import MODALITIES, of_shape
from neurosql.registry import imported
from neurosql.settings import BACKBONES, METHODS

PLUGIN = '''
from dataclasses import dataclass

import torch

from neurosql.methods.base import Method
from neurosql.methods.neurosql import QuantileAssignment
from neurosql.settings import MethodRecord, QuantileSettings


@dataclass(frozen=True)
class StillSettings(QuantileSettings):
    """Quantile assignment whose codes never move."""

    every: int = 0
    """K."""
    echo: float = 0.5
    """A setting that no other method has."""


RECORD = MethodRecord("still", "codes that stay where they are", "still:Still", StillSettings, paper={"echo": 0.25})


class Still(QuantileAssignment):
    """Never assigns again."""

    record = RECORD
'''


@pytest.fixture
def package(tmp_path):
    """A package as pip would install it: a module, and its entry points."""
    folder = tmp_path / "site"
    (folder / "still-1.0.dist-info").mkdir(parents=True)
    (folder / "still.py").write_text(PLUGIN)
    points = "[neurosql.methods]\nstill = still:RECORD\nbroken = nowhere:RECORD\nvae = still:RECORD\n"
    (folder / "still-1.0.dist-info" / "entry_points.txt").write_text(points)
    (folder / "still-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: still\nVersion: 1.0\n")
    return folder


def ran(package, code, *arguments):
    environment = children.environment()
    environment["PYTHONPATH"] += f":{package}"
    command = children.command("-c", code, *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_a_method_of_another_package_trains_by_its_name(package, tmp_path):
    code = "import sys; from neurosql import cli; sys.exit(cli.main(sys.argv[1:]))"
    options = ["--generator", "mlp", "--width", "16", "--budget", "smoke", "--limit", "40", "--echo", "0.125"]
    done = ran(package, code, "train", "mnist-sample", "--method", "still", "--out", str(tmp_path / "run"), *options)
    assert done.returncode == 0, done.stderr
    assert "method     still, codes that stay where they are" in done.stdout
    assert '"echo": 0.125' in (tmp_path / "run" / "config.json").read_text()
    for command in (["info"], ["sample"], ["evaluate", "--samples", "30"], ["resume"]):
        done = ran(package, code, command[0], str(tmp_path / "run"), *command[1:])
        assert done.returncode == 0, done.stderr
    helped = ran(package, code, "train", "--method", "still", "--preset", "paper", "--help").stdout
    assert "--echo" in helped and "0.25" in helped and "A setting that no other method has" in helped


def test_names_are_listed_without_importing_anything(package):
    code = (
        "import sys; from neurosql.settings import METHODS; print(*METHODS); assert 'still' in METHODS\n"
        "assert 'still' not in sys.modules and 'torch' not in sys.modules\n"
        "assert METHODS['vae'].title == 'variational autoencoder', 'a built-in name was taken'"
    )
    done = ran(package, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*METHODS, "broken", "still"]


def test_a_package_that_can_not_be_loaded_is_named(package):
    code = (
        "from neurosql import InputError\nfrom neurosql.settings import METHODS\n"
        "try: METHODS['broken']\nexcept InputError as error: print(error)"
    )
    assert "'broken' of nowhere:RECORD can't be loaded: ModuleNotFoundError" in ran(package, code).stdout


def test_records_import_no_torch():
    code = (
        "import sys; from neurosql.settings import METHODS, BACKBONES\n"
        "assert all(METHODS[name].name == name for name in METHODS)\n"
        "assert all(BACKBONES[name].name == name for name in BACKBONES)\n"
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("registry", [METHODS, BACKBONES], ids=["methods", "backbones"])
def test_every_record_names_its_implementation(registry):
    for name in registry:
        kind = imported(registry[name].implementation)
        assert (kind.record.name if registry is METHODS else kind.name) == name
        registry[name].settings().check()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"method must be one of neurosql, vae, .*, got 'flow'"):
        METHODS["flow"]


def test_a_modality_is_known_by_the_axes_of_a_sample():
    shapes = {"vector": (5,), "signal": (1, 64), "image": (3, 8, 8), "volume": (1, 4, 4, 4)}
    assert {name: of_shape(shape).name for name, shape in shapes.items()} == {name: name for name in MODALITIES}
    for modality in MODALITIES.values():
        assert modality.axes in BACKBONES[modality.generator].axes and modality.cost in modality.costs
