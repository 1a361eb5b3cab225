"""The parts of every page: one HTML file that needs nothing else to open, and prints well."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
body.broad { max-width: 108rem; --text: .8rem; --gap: .45rem; } .broad > p { max-width: 62rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; } h3 { font-size: .95rem; margin: 1.4rem 0 .3rem; }
p.lead { margin: 0 0 1.2rem; opacity: .8; }
p.warning { padding: .6rem .8rem; border-left: 4px solid #c60; background: color-mix(in srgb, #c60 12%, transparent); }
dl { display: grid; grid-template-columns: fit-content(45%) 1fr; gap: .2rem 1.2rem; margin: 0; }
dt { opacity: .7; } dd { margin: 0; font-variant-numeric: tabular-nums; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem; }
.pictures.small { grid-template-columns: repeat(auto-fill, minmax(min(13rem, 100%), 1fr)); }
figure { margin: 0; } figure.wide { grid-column: 1 / -1; }
figure img { width: 100%; height: auto; border-radius: 4px; background: #fff; }
@media (max-width: 44rem) { figure.wide { overflow-x: auto; } figure.wide img { width: 44rem; } }
figcaption { font-size: .9rem; opacity: .75; }
pre { overflow-x: auto; padding: .8rem; border-radius: 4px;
  background: color-mix(in srgb, currentColor 8%, transparent); }
code { padding: .05rem .3rem; border-radius: 3px; overflow-wrap: anywhere;
  background: color-mix(in srgb, currentColor 8%, transparent); }
summary { cursor: pointer; margin: .5rem 0; }
.opening { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem; }
.opening h2 { margin: 1.1rem 0 .1rem; } .opening div > h2:first-child { margin-top: 0; } .opening p { margin: 0; }
.opening p { overflow-wrap: anywhere; } .opening figure { margin-bottom: 1rem; }
table.scores { width: 100%; table-layout: fixed; font-size: .9rem; }
table.scores th, table.scores td { text-align: left; white-space: normal; vertical-align: top; font-weight: 400; }
table.scores thead th { font-size: .8rem; opacity: .75; border: 0; padding-bottom: 0; }
table.scores tbody tr { border-top: 1px solid color-mix(in srgb, currentColor 15%, transparent); }
table.scores th:nth-child(2) { width: 13rem; } table.scores thead th:nth-child(2) span:last-child { float: right; }
table.scores th:nth-child(3) { width: 4.5rem; } table.scores th:nth-child(4) { width: 11.5rem; }
table.scores tbody th { border: 0; } table.scores .value { font-weight: 600; }
.scores svg { display: block; width: 100%; height: auto; }
.scores .track { stroke: color-mix(in srgb, currentColor 30%, transparent); stroke-width: 2; }
.scores .interval { stroke: color-mix(in srgb, currentColor 45%, transparent); stroke-width: 7; }
.scores .mark { stroke: currentColor; stroke-width: 2; }
.scores circle { stroke: Canvas; stroke-width: 1.5; fill: #d1495b; }
.scores circle.fair { fill: #d9902f; } .scores circle.good { fill: #2f9e6e; }
@media (max-width: 44rem) { table.scores thead { display: none; } table.scores, table.scores tbody { display: block; }
  table.scores tr { display: grid; grid-template-columns: 1fr auto; padding: .4rem 0; }
  table.scores th, table.scores td { padding: .1rem 0; }
  table.scores .value { grid-area: 1 / 2; text-align: right; }
  table.scores tbody th { grid-area: 1 / 1; padding-right: .8rem; }
  table.scores .line { grid-area: 2 / 1; max-width: 14rem; min-width: 8rem; }
  table.scores .beside { grid-area: 2 / 2; text-align: right; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: var(--text, .86rem); font-variant-numeric: tabular-nums; }
th, td { padding: .25rem var(--gap, .6rem); text-align: right; white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; border-bottom: 1px solid currentColor; }
th small, td small { display: block; font-weight: 400; opacity: .65; }
th.text, td.text { text-align: left; } .stays { position: sticky; left: 0; z-index: 1; background: Canvas; }
td.prose { white-space: normal; min-width: 14rem; }
tbody tr.first td { border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
tr.floor td { color: color-mix(in srgb, currentColor 65%, transparent); font-style: italic; }
table.sortable th { cursor: pointer; } table.sortable th:focus-visible { outline: 2px solid; }
th[aria-sort=ascending]::after { content: " ▲"; } th[aria-sort=descending]::after { content: " ▼"; }
@media print { body { max-width: none; padding: 0; font-size: 11px; } details { display: none; }
  .scroll { overflow: visible; } .stays { position: static; } table { font-size: 8px; }
  th, td { padding: .1rem .25rem; }
  h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
"""
# A click on a heading sorts by that column, numbers as numbers; empty cells stay at the end.
SORT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(h => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const rows = [...table.tBodies[0].rows];
      rows.forEach(row => row.classList.remove("first"));
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
"""


def policy(script: str = "") -> str:
    """The Content-Security-Policy of a page: its own style, its own script if it has one, embedded pictures, no more.

    Whatever a name or a caption may hold, a browser runs no other script, sends no request and submits no form.
    """
    scripts = f"; script-src {_digest(script)}" if script else ""
    return (
        f"default-src 'none'; img-src data:; style-src {_digest(STYLE)}{scripts}; base-uri 'none'; form-action 'none'"
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    value: float | None = None
    """The value to sort by, if it isn't the text."""
    below: str = ""
    """Small print under the text."""
    bold: bool = False
    left: bool = False
    wraps: bool = False
    """Whether the text is broken into lines if the table would be too wide."""
    stays: bool = False
    """Whether the cell stays visible when the table is scrolled sideways."""

    def html(self, tag: str = "td") -> str:
        """The cell as an element of a table."""
        text = escape(self.text)
        content = (f"<b>{text}</b>" if self.bold else text) + (
            f"<small>{escape(self.below)}</small>" * bool(self.below)
        )
        kinds = "text" * self.left + " prose" * self.wraps + " stays" * self.stays
        kind = f' class="{kinds.strip()}"' if kinds else ""
        sorted_by = "" if self.value is None else f' data-value="{self.value!r}"'
        return f"<{tag}{kind}{sorted_by}>{content}</{tag}>"


def page(title: str, lead: str, body: str, broad: bool = False) -> str:
    """The whole document."""
    sorts = 'class="sortable"' in body
    script = f"<script>{SORT}</script>" if sorts else ""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(SORT if sorts else "")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · neurosql</title><style>{STYLE}</style>
<body{' class="broad"' if broad else ""}>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
{body}
{script}
</html>
"""


def definitions(facts: dict[str, str]) -> str:
    """A list of names and values, without empty values."""
    return f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in facts.items() if v)}</dl>"


def table(heads: Sequence[Cell], rows: Sequence[Sequence[Cell]], kinds: Sequence[str] | None = None) -> str:
    """A sortable table; `kinds` are the CSS classes of the rows."""
    head = "".join(cell.html("th") for cell in heads)
    lines = []
    for number, row in enumerate(rows):
        kind = f' class="{kinds[number]}"' if kinds and kinds[number] else ""
        lines.append(f"<tr{kind}>{''.join(cell.html() for cell in row)}</tr>")
    body = "\n".join(lines)
    whole = f'<table class="sortable"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
    return f'<div class="scroll">{whole}</div>'


def figure(picture: Path | bytes, caption: str, wide: bool = False) -> str:
    """A PNG, embedded, with its caption."""
    data = base64.b64encode(picture if isinstance(picture, bytes) else picture.read_bytes()).decode()
    text = escape(caption)
    kind = ' class="wide"' if wide else ""
    return (
        f'<figure{kind}><img src="data:image/png;base64,{data}" alt="{text}"><figcaption>{text}</figcaption></figure>'
    )


def fold(summary: str, content: str) -> str:
    """A section that the reader can open."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"
