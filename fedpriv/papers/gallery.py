"""outputs/figures/index.html: the latest version of every figure, with command, settings, run time
and the ledger's answers.

The page needs no server: it loads nothing but the figures beside it.
"""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import Any

import fedpriv
from fedpriv.papers.ledger.entries import QUESTIONS, Entry, entries
from fedpriv.util.durable_files import replace_file
from fedpriv.util.source_commit import source_commit

ABOUT = "about.json"
INDEX = Path("figures") / "index.html"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; }
article { border-top: 1px solid #ccc; padding: 1rem 0; }
img { max-width: 100%; border: 1px solid #eee; }
code { background: #f4f4f4; padding: .1em .3em; }
.yes { color: #146c2e; } .no { color: #a11; } .not-resolved, .not-run { color: #765400; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
"""


def write_about(
    folder: Path, name: str, *, profile: str, seconds: float, processor_seconds: float
) -> None:
    """Write about.json, which says how a figure was made, into its folder."""
    option = f" --profile {profile}" if profile != "quick" else ""
    facts = {
        "name": name,
        "command": f"fedpriv reproduce {name}{option}",
        "profile": profile,
        "version": fedpriv.__version__,
        "commit": source_commit(),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "processors": os.cpu_count(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / ABOUT, (json.dumps(facts, indent=2) + "\n").encode())


def write_index(outputs: Path) -> Path:
    """Write the page of the latest folder of each figure below `outputs`; returns its path."""
    latest: dict[str, tuple[Path, dict[str, Any]]] = {}
    for file in sorted(outputs.rglob(ABOUT), key=lambda file: file.parent.name):
        facts = json.loads(file.read_text())
        if (file.parent / "figure.png").exists():
            latest[facts["name"]] = (file.parent, facts)
    known = entries()
    order = [*known]
    names = sorted(latest, key=lambda name: order.index(name) if name in known else len(known))
    path = outputs / INDEX
    drawn = [_entry(*latest[name], judged=known.get(name), start=path.parent) for name in names]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>fedpriv: '
        "figures</title>"
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>\n<body><h1>Figures</h1>\n'
        f"<p>{len(drawn)} of the ledger's {len(known)} entries have been drawn "
        f"here.</p>\n{''.join(drawn)}</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page.encode())
    return path


def _entry(folder: Path, facts: dict[str, Any], *, judged: Entry | None, start: Path) -> str:
    """One figure; links are relative to `start`."""
    picture = Path(os.path.relpath(folder / "figure.png", start)).as_posix()
    tables = ", ".join(_link(file, start) for file in sorted(folder.glob("*.csv")))
    rows = [
        ("command", f"<code>{html.escape(facts['command'])}</code>"),
        ("made by", html.escape(f"fedpriv {facts['version']} {facts['commit']}".strip())),
        ("profile and time", _time(facts)),
        ("numbers", tables or "none"),
    ]
    if config := next(iter(sorted(folder.rglob("config.yaml"))), None):
        rows.append(("configuration", _link(config, start) + " of the first run"))
    if judged:
        rows.append(("the paper says", html.escape(judged.claim)))
        for question, one in judged.answers.items():
            word = f'<strong class="{one.answer.replace(" ", "-")}">{one.answer}</strong>'
            why = f": {html.escape(one.found)}" if one.found else ""
            rows.append((QUESTIONS[question], f"{word}{why}"))
    listed = "".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in rows)
    name = html.escape(facts["name"])
    return (
        f'<article id="{name}"><h2>{name}</h2><img src="{picture}" '
        f'alt="{name}"><dl>{listed}</dl></article>\n'
    )


def _time(facts: dict[str, Any]) -> str:
    return (
        f"{facts['profile']} profile, {facts['seconds']:g} s, {facts['processor_seconds']:g} "
        f"processor seconds, on a machine with {facts['processors']} processors"
    )


def _link(file: Path, start: Path) -> str:
    where = Path(os.path.relpath(file, start)).as_posix()
    return f'<a href="{html.escape(where)}">{html.escape(file.name)}</a>'
