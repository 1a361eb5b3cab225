"""Records by name: built in, or offered by another package, and imported only when they are asked for."""

import subprocess
import sys

import packages
import pytest

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
    """A package with a method, one that can't be loaded, and one of a name that is taken."""
    methods = {"still": "still:RECORD", "broken": "nowhere:RECORD", "vae": "still:RECORD"}
    return packages.install(tmp_path / "site", "still", {"still.py": PLUGIN}, {"neurosql.methods": methods})


def test_a_method_of_another_package_trains_by_its_name(package, tmp_path):
    run = tmp_path / "run"
    options = "--generator mlp --width 16 --budget smoke --limit 40 --image-size 8 --echo 0.125"
    told = packages.commanded(package, f"neurosql train mnist-sample --method still --out {run} {options}")
    assert "method     still, codes that stay where they are" in told
    assert '"echo": 0.125' in (run / "config.json").read_text()
    # A process that has not trained it finds the method by the name in the run.
    again = (f"{command} {run}" for command in ("info", "sample", "evaluate --samples 30", "resume"))
    helped = "train --method still --preset paper --help"
    told = packages.commanded(package, *(f"neurosql {command}" for command in (*again, helped)))
    assert "--echo" in told and "0.25" in told and "A setting that no other method has" in told


def test_names_are_listed_without_importing_anything(package):
    code = (
        "import sys; from neurosql.settings import METHODS; print(*METHODS); assert 'still' in METHODS\n"
        "assert 'still' not in sys.modules and 'torch' not in sys.modules\n"
        "assert METHODS['vae'].title == 'variational autoencoder', 'a built-in name was taken'"
    )
    assert packages.ran(package, "-c", code).split() == [*METHODS, "broken", "still"]


def test_a_package_that_can_not_be_loaded_is_named(package):
    code = (
        "from neurosql import InputError\nfrom neurosql.settings import METHODS\n"
        "try: METHODS['broken']\nexcept InputError as error: print(error)"
    )
    told = packages.ran(package, "-c", code)
    assert "'broken' of nowhere:RECORD can't be loaded: ModuleNotFoundError" in told


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
