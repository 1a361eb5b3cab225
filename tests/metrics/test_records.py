"""Score records: what they promise holds, and a function and a record are enough to add a score."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from neurosql import InputError, fit
from neurosql.data import from_array
from neurosql.evaluate import Options, evaluate
from neurosql.metrics.records import FLOORS, RESOURCE, SCORES, ScoreRecord, record_of
from neurosql.registry import Registry, imported

QUICK = dict(generator="mlp", width=16, epochs=1, every=1, batch_size=50, validation_share=0.0, latent_dim=2)


def far(made, real):
    """Of two sets of features: a number."""
    return float(np.abs(made.mean(0) - real.mean(0)).max())


def darker(made, real):
    """Of pairs: a value for each."""
    return (made - real).flatten(1).mean(1)


def spread(codes, labels):
    """Of codes: a number."""
    return float(codes.std()) * len(np.unique(labels))


calls = []


def twins(context):
    """Of everything: two scores in one call."""
    calls.append(len(context.samples))
    return {"first twin": 1.0, "second twin": {"sampled": 2.0, "codes": 3.0}}


def record(name, family, function, **more):
    return ScoreRecord(name, "lower", family, f"{__name__}:{function}", **more)


PLUGGED = {
    "far": record("far", "sets", "far", features=("pixels", "random net"), modes=("sampled",)),
    "darker": record("darker", "pairs", "darker", modes=("sampled", "paired-train", "paired-heldout")),
    "spread": record("spread", "codes", "spread", modes=("codes",)),
    "first twin": record("first twin", "whole", "twins", modes=("sampled",)),
    "second twin": record("second twin", "whole", "twins", modes=("sampled", "codes")),
}


@pytest.fixture
def plugged(monkeypatch):
    """Records from another package's entry points, one of them broken."""
    module = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, "plugged_scores", module)
    for name, found in PLUGGED.items():
        monkeypatch.setattr(module, f"RECORD_{name.replace(' ', '_')}", found, raising=False)
    points = {
        name: EntryPoint(name, f"plugged_scores:RECORD_{name.replace(' ', '_')}", SCORES.group) for name in PLUGGED
    }
    points["broken"] = EntryPoint("broken", "no_such_module:RECORD", SCORES.group)
    registry = Registry("score", ScoreRecord, SCORES.group, SCORES.built_in)
    registry.__dict__["_plugged"] = points
    monkeypatch.setattr("neurosql.metrics.records.SCORES", registry)
    monkeypatch.setattr("neurosql.evaluate.SCORES", registry)


def test_a_score_of_another_package_runs_in_every_place_that_its_record_names(plugged, digits):
    train, heldout = from_array(digits[0][:100], digits[1][:100]), from_array(digits[0][100:160], digits[1][100:160])
    calls.clear()
    found = evaluate(fit(train, **QUICK), train, heldout, Options(samples=40, image_pairs=8))
    by_column = {(s.name, s.features, s.mode): s for s in found.scores if s.name in PLUGGED}
    assert set(by_column) == {
        *(("far", "pixels", "sampled"), ("far", "random net", "sampled")),
        *(("darker", None, mode) for mode in ("sampled", "paired-train", "paired-heldout")),
        *(("spread", None, "codes"), ("first twin", None, "sampled")),
        *(("second twin", None, "sampled"), ("second twin", None, "codes")),
    }
    assert by_column["far", "pixels", "sampled"].floor is not None
    paired = by_column["darker", None, "paired-train"]
    assert paired.floor is not None and paired.interval[0] <= paired.value <= paired.interval[1]
    assert calls == [40]
    assert any("broken" in sentence and "no_such_module" in sentence for sentence in found.left_out)


@pytest.mark.parametrize("name", SCORES.names())
def test_every_record_names_a_function_and_a_floor_that_exist(name):
    found = record_of(name)
    assert found.floor in ("", *FLOORS)
    assert (found.family == RESOURCE) or callable(imported(found.function))


def test_records_that_say_nonsense_are_refused():
    for wrong in ({"family": "sats"}, {"modes": ("sompled",)}, {"direction": "sideways"}, {"modes": ()}):
        fields = {"name": "x", "direction": "lower", "family": "sets", "function": "a:b", "modes": ("sampled",)}
        with pytest.raises(InputError, match="'x'"):
            ScoreRecord(**fields | wrong)


def test_a_function_that_asks_for_what_its_family_has_not_is_told_so(monkeypatch, digits):
    train = from_array(digits[0][:60])
    asking = record("asking", "codes", "spread", modes=("codes",), takes=("codes", "weather"))
    monkeypatch.setitem(PLUGGED, "asking", asking)
    monkeypatch.setattr("neurosql.evaluate._records", lambda context: [asking])
    with pytest.raises(InputError, match="'asking' takes 'weather'"):
        evaluate(fit(train, **QUICK), train, None, Options(samples=20))


def test_records_columns_and_declarations_import_no_torch():
    script = (
        "import sys; from neurosql.metrics import column, records; [records.record_of(n) for n in records.SCORES]\n"
    )
    script += "import neurosql.bench.experiments; assert 'torch' not in sys.modules and 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
