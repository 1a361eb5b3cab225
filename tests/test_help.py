"""What `help(NeuroSQL)` says: every argument, with the one text that its setting has."""

import dataclasses
import inspect
import re
import subprocess
import sys

from neurosql import NeuroSQL, presets
from neurosql.estimator.parameters import documented
from neurosql.settings import QuantileSettings, TrainingSettings, words


def entries():
    """The entries of the section Parameters: name, type and text on one line."""
    section = inspect.getdoc(NeuroSQL).partition("Parameters\n----------\n")[2].partition("\n\nAttributes\n")[0]
    found = re.findall(r"^(\w+) : (.*)\n((?:    .*\n?)+)", section, re.MULTILINE)
    return {name: (kind, " ".join(text.split())) for name, kind, text in found}


def test_every_argument_is_documented_in_its_order():
    assert list(entries()) == list(inspect.signature(NeuroSQL).parameters)
    assert all(kind and text for kind, text in entries().values())


def test_the_text_is_that_of_the_field():
    shown = entries()
    for kind in (QuantileSettings, TrainingSettings):
        texts = words.of_fields(kind)
        assert texts.keys() == {field.name for field in dataclasses.fields(kind)}
        for name in texts.keys() - {"seed"}:
            assert shown[name][1].startswith(texts[name])


def test_it_says_what_none_stands_for():
    shown = entries()
    assert shown["momentum"][1].endswith("None takes the preset's value: 0.7; 0.2 in samples; 0.02 in photographs.")
    for preset in ("paper", "plain", "map", "samples", "photographs"):
        chosen = presets.settings(preset=preset).flat()
        for name in shown.keys() & chosen.keys():
            if "None takes" in shown[name][1]:
                assert repr(chosen[name]) in shown[name][1].partition("None takes the preset's value: ")[2]


def test_types_are_in_words():
    shown = entries()
    assert shown["latent_dim"][0] == 'int or "auto", default=None'
    assert shown["start"][0] == '{"pca", "scores", "random"}, default=None'
    assert shown["steps"][0] == "int, default=None"
    assert "or Prior" in shown["prior"][0]


@dataclasses.dataclass(frozen=True)
class Base:
    """A class of settings."""

    first: int = 1
    """The first one,
    on two lines."""
    bare: int = 2


@dataclasses.dataclass(frozen=True)
class Derived(Base):
    """Settings that add to others."""

    second: str | None = None
    """The second one."""


def test_fields_of_a_base_class_keep_their_text():
    assert words.of_fields(Derived) == {"first": "The first one, on two lines.", "second": "The second one."}


def test_a_class_without_source_has_no_texts():
    made = dataclasses.make_dataclass("Made", [("first", int, 1)])
    assert words.of_fields(made) == {}
    (parameter,) = words.of_settings([made], {}).values()
    assert parameter.text == "None takes the preset's value: 1."


def test_without_docstrings_nothing_is_put_into_them():
    class Bare:
        def __init__(self, epochs=None):
            self.epochs = epochs

    assert documented(Bare).__doc__ is None
    # The texts of fields are no docstrings to Python: they stay where -OO leaves docstrings out.
    program = "from neurosql.settings import QuantileSettings, words; print(words.of_fields(QuantileSettings)['snap'])"
    run = subprocess.run([sys.executable, "-OO", "-c", program], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == words.of_fields(QuantileSettings)["snap"], run.stderr


def test_importing_the_package_does_not_import_torch_or_read_the_texts():
    program = "import neurosql, sys; print({'torch', 'neurosql.settings.words'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "set()", run.stderr
