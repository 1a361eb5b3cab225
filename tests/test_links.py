"""Every link and picture of the pages leads to something, also on the site; headings are in order."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def website():
    spec = importlib.util.spec_from_file_location("website", ROOT / "docs" / "website.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(website):
    """The text of each page by its path: those in docs/, and those that they and the README link to."""
    files, _ = website.reached(sorted(path.name for path in ROOT.glob("*.md")))
    inside = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    names = sorted(inside | {name for name in files if name.endswith(".md")})
    return {name: (ROOT / name).read_text("utf-8") for name in names}


def lost(website, page, text, anchors):
    """The links of a page that lead to no file, or to no heading of a page."""
    for link in website.links(text):
        target, _, anchor = link["target"].partition("#")
        if target and not website.local(target):
            continue
        path = website.place(page, target) if target else page
        exists = (ROOT / path).exists() and not path.startswith("..")
        if not exists or (anchor and path in anchors and anchor not in anchors[path]):
            yield link["target"]


def test_links_lead_to_files_and_headings(website, pages):
    anchors = {page: website.anchors(text) for page, text in pages.items()}
    assert [(page, link) for page, text in pages.items() for link in lost(website, page, text, anchors)] == []
    assert sum(len(list(website.links(text))) for text in pages.values()) > 100


def test_a_lost_link_is_found(website):
    text = "# A b\n\n[x](README.md) [y](nowhere.md) [z](#a-b) [w](#c) `[v](no.md)`\n\n```\n[u](no.md)\n```\n"
    assert list(lost(website, "README.md", text, {"README.md": website.anchors(text)})) == ["nowhere.md", "#c"]


def test_headings_are_in_order(website, pages):
    for page, text in pages.items():
        if page.startswith("results/laptop/tables/"):
            continue  # a table alone; the site puts a heading above it
        levels = [level for level, _ in website.headings(text)]
        assert levels.count(1) == 1 and levels[0] == 1, page
        assert all(after <= before + 1 for before, after in zip(levels, levels[1:])), page


def test_pictures_have_alternative_texts(website, pages):
    pictures = [(page, link) for page, text in pages.items() for link in website.links(text) if link["picture"]]
    assert len(pictures) > 10
    assert [page for page, link in pictures if not link["text"].strip()] == []


def test_links_of_the_site_stay_on_it(website):
    text = (
        "[a](../SECURITY.md#x) [b](../src/neurosql/prior.py) [c](data.md) ![d](../results/engine.png) [e](https://e.f)"
    )
    shown = {"SECURITY.md", "data.md", "results/engine.png"}
    made = website.for_site("docs/page.md", text, shown.__contains__)
    assert made == "[a](SECURITY.md#x) b [c](data.md) ![d](results/engine.png) [e](https://e.f)"
    linked = website.for_site("docs/page.md", text, shown.__contains__, "https://forge/files/")
    assert "[b](https://forge/files/src/neurosql/prior.py)" in linked
    assert website.for_site("README.md", "[a](docs/data.md)", shown.__contains__) == "[a](data.md)"
    assert website.for_site("results/README.md", "[a](../docs/data.md)", shown.__contains__) == "[a](../data.md)"


def test_code_and_comments_are_left_alone_and_out(website):
    text = "<!-- value x -->0.5<!-- end --> `[a](b.py)`\n\n```sh\necho '<!-- [a](b.py) -->'\n```\n"
    made = website.for_site("docs/page.md", text, lambda _: False)
    assert made == "0.5 `[a](b.py)`\n\n```sh\necho '<!-- [a](b.py) -->'\n```\n"
