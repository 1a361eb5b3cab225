"""A run as one HTML file: the explorer's page with the run in it and a model that runs in the browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from neurosql import files
from neurosql.app import card
from neurosql.app.explorer import Opened
from neurosql.app.portable import bundle, target
from neurosql.app.portable.embedding import Embedded, embedded
from neurosql.checkpoint import SCORES
from neurosql.metrics.copies import as_judged_today
from neurosql.metrics.score import Score

ENTRY = "single"


@dataclass(frozen=True)
class Page:
    """A page that was written."""

    path: Path
    size: int
    """Bytes of the file."""
    shows: bool
    """Whether single training samples are in it."""
    holds: list[str]
    """What whoever gets it can see of the training samples or, if they are not in it, what the model gives away."""
    notes: list[str]
    """What is other than in the run: one sentence each."""


def to_html(
    path: str | Path, out: str | Path | None = None, *, with_images: bool = True, source: str | None = None
) -> Page:
    """Write a finished run to a new .html file, by default in the current folder.

    `source` is where the training samples are, if they have moved. Without images, nothing in the file is about single
    training samples.
    """
    target.check_finished(path)
    where = target.target(path, out, ".html")
    opened = Opened(path, source)
    made = embedded(opened, where.stem, with_images)
    content = written(made).encode()
    files.replace(where, content)
    shows = made.head["description"]["capabilities"]["points"]
    return Page(where, len(content), shows, _holds(opened, made) if shows else _gives_away(opened), made.notes)


def written(made: Embedded) -> str:
    """The page."""
    content = base64.b64encode(made.content()).decode()
    # Nothing in the JSON can end the element that it is in.
    head = json.dumps(made.head, ensure_ascii=False).replace("<", "\\u003c")
    code = bundle.script(ENTRY)
    style = (bundle.STATIC / "style.css").read_text("utf-8")
    title = escape(made.head["description"]["name"])
    page = re.sub(r'<link rel="icon"[^>]*>\n?', "", (bundle.STATIC / "index.html").read_text("utf-8"))
    allowed = f'<meta http-equiv="Content-Security-Policy" content="{policy(style, code)}">'
    data = (
        f'<script type="application/json" id="embedded">{head}</script>\n'
        f'<script type="application/octet-stream" id="content">{content}</script>\n'
    )
    for loaded, held in {
        '<link rel="stylesheet" href="style.css">': f"{allowed}\n<style>{style}</style>",
        '<script type="module" src="main.js"></script>': "",
        "<title>neurosql</title>": f"<title>{title} · neurosql</title>",
        "</body>": f"{data}<script>{code}</script>\n</body>",
    }.items():
        if page.count(loaded) != 1:
            raise RuntimeError(f"index.html no longer has {loaded}")
        page = page.replace(loaded, held)
    return page


def policy(style: str, code: str) -> str:
    """The page may show its own style and pictures and run its own script; it can load and send nothing."""
    return (
        f"default-src 'none'; script-src '{_digest(code)}'; style-src '{_digest(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _holds(opened: Opened, made: Embedded) -> list[str]:
    """What a recipient can see of the training samples, in phrases."""
    modality, able = opened.run.data.modality, made.head["description"]["capabilities"]
    small = f"the training {modality.plural}, {'small' if modality.is_picture else 'as they are'}"
    labels = " and labels" if "labels" in made.arrays else ""
    return [
        small if able["images"] else f"reconstructions of the training {modality.plural}",
        f"their codes, losses{labels}; no names of files, no positions, no paths",
    ]


def _gives_away(opened: Opened) -> list[str]:
    """What the model gives away, in sentences."""
    records = opened.folder.read_object(SCORES).values()
    return card.gives_away(opened.run, [as_judged_today(Score.from_record(record)) for record in records])
