"""What a person sees on a terminal of 80 columns while a model is trained."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosql
from neurosql import children
from neurosql.app.observer import Terminal, wrapped
from neurosql.data import from_array


class Screen(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self):
        return True


TEXTS = st.lists(st.text("abc/-=.", min_size=1, max_size=12), min_size=1, max_size=40).map(" ".join)


@given(st.sampled_from(["data       ", "parts      ", "finding 3  ", ""]), TEXTS, st.integers(30, 120))
def test_wrapping_keeps_every_word_whole_and_in_its_order(label, text, width):
    lines = wrapped(label + text, width).splitlines()
    assert " ".join(lines).split() == (label + text).split()
    assert all(len(line) <= width for line in lines)


def test_what_follows_a_label_stays_in_its_column():
    first, *rest = wrapped("parts      " + "word " * 40, 80).splitlines()
    assert first.startswith("parts      word") and rest
    assert all(line.startswith(" " * 11 + "word") for line in rest)


@pytest.mark.parametrize("line", ["next       neurosql sample " + "x" * 90 + " -n 64", "look at    " + "a b/" * 30])
def test_what_people_copy_stays_on_one_line(line):
    assert wrapped(line, 80) == line


def test_lines_are_wrapped_on_a_terminal_alone(monkeypatch, capsys):
    line = "data       " + "word " * 30
    Terminal().say(line)
    assert capsys.readouterr().out == line + "\n"
    screen = Screen()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", screen)
    Terminal().say(line)
    assert all(len(shown) <= 80 for shown in screen.getvalue().splitlines())


def test_the_progress_bar_fits_and_says_how_far_it_is_and_how_good(monkeypatch):
    screen = Screen()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", screen)
    images = from_array(np.random.default_rng(0).random((40, 8, 8)))
    neurosql.fit(images, preset="plain", generator="mlp", width=8, epochs=3, validate_every=1, progress=True)
    shown = [re.sub(r"\x1b\[A", "", line).strip() for line in re.split(r"[\r\n]", screen.getvalue())]
    assert max(map(len, shown)) <= 80
    last = [line for line in shown if "held out" in line][-1]
    assert re.match(r"(epoch|closing) \d+/\d+ +\d+% \|.*\| [\d:?]+ left, loss \d\.\d{3}, held out \d\.\d{3}$", last)


def test_a_run_is_described_without_torch(tmp_path):
    images = from_array(np.random.default_rng(0).random((40, 8, 8)))
    neurosql.fit(images, preset="plain", generator="mlp", width=8, epochs=1, out=tmp_path / "run")
    code = "import sys; from neurosql.cli import main; main(['info', sys.argv[1]]); print('torch' in sys.modules)"
    done = subprocess.run(
        children.command("-c", code, str(tmp_path / "run")),
        capture_output=True,
        text=True,
        check=True,
        env=children.environment(),
    )
    assert "state      finished after 1 epochs" in done.stdout and done.stdout.splitlines()[-1] == "False"
