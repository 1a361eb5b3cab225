"""The page of a run: in a real browser, and what it says about how to reproduce the run."""

import csv
import html
import io
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from neurosql import fit, open_run
from neurosql.cli import main
from neurosql.metrics.records import MODES
from neurosql.metrics.score import Score
from neurosql.report import again, document, scores
from neurosql.report.document import Cell

BROWSER = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def page(digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    np.savez(folder / "digits.npz", images=digits[0][:60], labels=digits[1][:60])
    flags = ["--generator", "mlp", "--width", "32", "--epochs", "4", "--every", "2"]
    assert main(["train", str(folder / "digits.npz"), "--out", str(folder / "run"), *flags]) == 0
    return folder / "run" / "report.html"


@pytest.fixture(scope="module")
def evaluated(page, tmp_path_factory):
    """The page of an evaluated class-conditional run, whose classes have names that must be escaped."""
    folder = tmp_path_factory.mktemp("evaluated")
    with np.load(page.parent.parent / "digits.npz") as left:
        names = np.array(["<b>even</b> & long " * 3, "odd"])[left["labels"] % 2]
        np.savez(folder / "digits.npz", images=np.tile(left["images"], (3, 1, 1)), labels=np.tile(names, 3))
    flags = ["--generator", "mlp", "--width", "16", "--epochs", "1", "--conditional", "--test-share", "0.2"]
    assert main(["train", str(folder / "digits.npz"), "--out", str(folder / "a <run>"), *flags]) == 0
    assert main(["evaluate", str(folder / "a <run>"), "--samples", "30", "--image-pairs", "5"]) == 0
    return folder / "a <run>" / "report.html"


def test_before_an_evaluation_the_page_says_what_to_run(page):
    text = page.read_text("utf-8")
    assert text.count("Not measured yet.") == 3
    assert text.count(f"<code>neurosql evaluate {page.parent.as_posix()}</code>") == 3
    assert "<h2>Scores</h2>" not in text and "permutation" not in text.partition("<h2>Details</h2>")[0]


def test_what_a_stranger_asks_comes_first_and_details_are_folded(evaluated):
    text = evaluated.read_text("utf-8")
    order = [
        "data:image/png",
        "What did it learn from?",
        "Are the samples like",
        "Are any of them copies?",
        "Can others tell",
    ]
    order += ["<h2>The map</h2>", "<h2>Scores</h2>", "<h2>Use this run</h2>", "<h2>Details</h2>", "<details>"]
    places = [text.index(part) for part in order[:-1]] + [text.rindex(order[-1])]
    assert places == sorted(places)
    assert text.count("<details>") == text.count("</details>") >= 5 and "bit for bit" in text[places[-1] :]


def test_a_class_conditional_page_says_how_to_sample_one_class_and_escapes_its_names(evaluated):
    text = evaluated.read_text("utf-8")
    label = shlex.quote("<b>even</b> & long " * 3)
    assert html.escape(f"neurosql sample {shlex.quote(evaluated.parent.as_posix())} --label {label}") in text
    assert "<b>even" not in text and "<run>" not in text


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_renders_wide_and_narrow(page, width, tmp_path):
    shot = tmp_path / "shot.png"
    options = [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},3200", f"--screenshot={shot}"]
    subprocess.run([BROWSER, *FLAGS, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
    with Image.open(shot) as picture:
        pixels = np.asarray(picture.convert("L"))
    assert pixels.shape[1] >= width
    # Text and pictures all the way down, not a blank page or a broken first picture.
    assert all(part.std() > 5 for part in np.array_split(pixels[:1600], 4))


def without_policy(text):
    """A page that also runs scripts of a test."""
    changed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert changed != text
    return changed


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
def test_the_policy_lets_a_page_s_own_parts_through_and_nothing_else(evaluated, tmp_path):
    own = document.table([Cell("name"), Cell("value")], [[Cell("a"), Cell("1")]])
    picture = "".join(re.findall(r"<figure.*?</figure>", evaluated.read_text("utf-8"), re.DOTALL)[:1])
    foreign = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    shown, complaints = {}, {}
    for name, body in {"clean": own + picture, "foreign": own + foreign}.items():
        path = tmp_path / f"{name}.html"
        path.write_text(document.page("kept", "", body), "utf-8")
        command = [BROWSER, *FLAGS, "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
        done = subprocess.run([*command, path.as_uri()], check=True, capture_output=True, text=True, timeout=120)
        shown[name], complaints[name] = done.stdout, done.stderr.count("Content Security Policy")
    assert complaints["clean"] == 0 and complaints["foreign"] >= 2
    assert all('tabindex="0"' in text and "<title>kept" in text for text in shown.values())


def test_every_page_has_a_policy_without_unsafe_parts(evaluated):
    text = evaluated.read_text("utf-8")
    (found,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    assert found == document.policy(document.SORT if "<script>" in text else "")
    assert found.startswith("default-src 'none'") and "unsafe" not in found and "http" not in found
    # The policy comes before anything that it rules on.
    assert text.index("Content-Security-Policy") < text.index("<style>")


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
@pytest.mark.parametrize("width", [1100, 400])
def test_the_page_is_not_wider_than_its_window(evaluated, width, tmp_path):
    """With everything unfolded, too; a frame can be as narrow as a phone, a window can't."""
    text = without_policy(evaluated.read_text("utf-8")).replace("<details>", "<details open>")
    script = "<script>parent.document.title = document.documentElement.scrollWidth</script>"
    frame = f'<body><iframe style="border: 0" width="{width}" height="900" srcdoc="{html.escape(text + script)}">'
    (tmp_path / "frame.html").write_text(f"<!doctype html><meta charset=utf-8><title></title>{frame}", "utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command.append((tmp_path / "frame.html").as_uri())
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert int(re.search(r"<title>(\d+)</title>", shown)[1]) <= width


@pytest.mark.skipif(BROWSER is None, reason="needs a browser: install chromium")
def test_a_click_sorts_a_table_by_its_numbers(tmp_path):
    heads = [Cell("name", left=True), Cell("value")]
    values = {"a": 10.0, "b": 9.0, "none": None, "c": -2.5, "d": 1e-5}
    rows = [[Cell(name, left=True), Cell("" if v is None else f"{v:.1e}", v)] for name, v in values.items()]
    click = "<script>document.querySelectorAll('th')[1].click();</script>"
    orders = []
    for clicks in (1, 2):
        page = tmp_path / f"{clicks}.html"
        text = without_policy(document.page("t", "", document.table(heads, rows)))
        page.write_text(text + click * clicks, encoding="utf-8")
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        orders.append(re.findall(r'<td class="text">(\w+)</td>', shown))
    assert orders == [["c", "d", "b", "a", "none"], ["a", "b", "d", "c", "none"]]


@pytest.mark.parametrize(
    "flags",
    [
        "--generator mlp --width 32 --no-anneal --momentum 0.5 --limit 40 --seed 3 --epochs 2",
        "--method vae --encoder mlp --beta 0.01 --conditional --test-share 0 --preset paper --budget smoke --limit 40",
        "--method gan --latent-dim 3 --validation-share 0 --budget smoke --image-size 12 --batch-size 16 --limit 40",
    ],
)
def test_the_command_of_a_page_makes_the_same_model_to_the_bit(flags, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "mnist-sample", "--out", "first run", *flags.split()]) == 0
    command = again.how(open_run("first run"), Path("first run"))
    assert html.escape(command) in Path("first run", "report.html").read_text("utf-8")
    program, *arguments = shlex.split(command)
    assert program == "neurosql" and main([*arguments, "--out", "second"]) == 0
    first, second = (Path(folder, "model.safetensors").read_bytes() for folder in ("first run", "second"))
    assert first == second
    assert open_run("first run").settings == open_run("second").settings


def test_a_run_of_samples_in_memory_is_made_again_by_a_call(digits, tmp_path):
    run = fit(digits[0][:40], generator="mlp", width=16, epochs=1, seed=2, out=str(tmp_path / "run"))
    call = again.how(open_run(tmp_path / "run"), tmp_path / "run")
    assert call.startswith("neurosql.fit(samples, ")
    second = eval(call, {"neurosql": sys.modules["neurosql"], "samples": digits[0][:40]})
    assert second.settings == run.settings
    np.testing.assert_array_equal(run.sample(4, seed=0)[0], second.sample(4, seed=0)[0])


def test_scores_of_a_run_as_html_csv_and_latex_hold_the_same_figures():
    found = [
        Score("ssim", 0.1234567, "sampled", "higher", 50, interval=(0.1, 0.2), floor=0.11, note="a note & more"),
        Score("proxy-fid", 3.5, "sampled", "lower", 64, 60, features="random net", spread=0.25),
        Score("trustworthiness", 0.9, "codes", "higher", 30),
    ]
    rows = list(csv.DictReader(io.StringIO(scores.to_csv(reversed(found)))))
    assert {tuple(row) for row in rows} == {scores.FIELDS} and float(rows[1]["value"]) == 0.1234567
    assert [row["mode"] for row in rows] == ["sampled", "sampled", "codes"] and rows[1]["note"] == "a note & more"
    assert rows[1]["reference is"] == "two real: perfect model" and rows[1]["reference"] == "0.11"
    latex, page = scores.to_latex(found, "A run of 50 %"), scores.to_html(found)
    for text in ("0.1235", "0.1000 to 0.2000", "3.5000", "sd 0.2500 over nets", "0.9000"):
        assert text in latex and text in page
    assert r"A run of 50 \%" in latex and latex.count(r"\midrule") == 2 and MODES["codes"] in latex
    cells = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in cells} == {5}
