"""The page of a run: one HTML file that needs nothing else to open."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

from neurosql.run import Run

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p.lead { margin: 0 0 1.2rem; opacity: .8; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: 0; }
dt { opacity: .7; } dd { margin: 0; font-variant-numeric: tabular-nums; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem; }
figure { margin: 0; } figure.wide { grid-column: 1 / -1; }
figure img { width: 100%; height: auto; border-radius: 4px; background: #fff; }
figcaption { font-size: .9rem; opacity: .75; }
pre { overflow-x: auto; padding: .8rem; border-radius: 4px;
  background: color-mix(in srgb, currentColor 8%, transparent); }
"""
WIDE = {"curves.png"}


def write(run: Run, path: Path, pictures: dict[str, str], scores: dict[str, Any]) -> None:
    """`report.html` beside the run's pictures, which are embedded in it."""
    folder = path.parent
    last = run.history[-1] if run.history else {}
    seconds = sum(sum(record["seconds"].values()) for record in run.history)
    facts = {
        "data": run.data["description"],
        "trained on": f"{run.data['trained']} samples, {run.data['heldout']} held out",
        "method": f"{run.settings.method}, {run.method.title}",
        **run.method.facts(),
        "epochs": f"{len(run.history)}, {seconds:.0f} s of training",
        "training loss": _number(last.get("loss")),
        "held-out loss": _number(next((r["heldout_loss"] for r in reversed(run.history) if "heldout_loss" in r), None)),
        "codes' variance / lattice's": _number(last.get("drift")),
    }
    facts |= {f"{s['name']} ({s['mode']}, n = {s['n']})": _number(s["value"]) for s in scores.values()}
    definitions = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items() if v)
    figures = "".join(_figure(folder / name, caption) for name, caption in pictures.items())
    settings = html.escape(json.dumps(run.config()["settings"], indent=2))
    path.write_text(
        f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(folder.name)} · neurosql</title><style>{STYLE}</style>
<h1>{html.escape(folder.name)}</h1>
<p class="lead">{html.escape(_lead(run))}</p>
<dl>{definitions}</dl>
<h2>Pictures</h2><div class="pictures">{figures}</div>
<h2>Settings</h2><details><summary>all settings of this run</summary><pre>{settings}</pre></details>
</html>
""",
        encoding="utf-8",
    )


def _lead(run: Run) -> str:
    if run.settings.method == "neurosql":
        return f"One generator; its codes are a permutation of {run.data['trained']} quantiles of the prior."
    return f"Trained by {run.method.title}, to be compared with quantile assignment on the same generator and budget."


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    kind = ' class="wide"' if path.name in WIDE else ""
    text = html.escape(caption)
    return (
        f'<figure{kind}><img src="data:image/png;base64,{data}" alt="{text}"><figcaption>{text}</figcaption></figure>'
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
