"""outputs/figures/index.html: every figure that has been drawn, with its command, settings, run
time and verdict.

A page without a server: it asks for nothing but the pictures beside it.
"""

from __future__ import annotations

import html
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import fedpriv
from fedpriv.papers.verdicts import Verdict, verdicts
from fedpriv.util.durable_files import replace_file

ABOUT = "about.json"
PLACE = Path("figures") / "index.html"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; }
article { border-top: 1px solid #ccc; padding: 1rem 0; }
img { max-width: 100%; border: 1px solid #eee; }
code { background: #f4f4f4; padding: .1em .3em; }
.confirmed { color: #146c2e; } .refuted { color: #a11; } .open { color: #765400; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
"""


def about(
    folder: Path, name: str, *, profile: str, seconds: float, processor_seconds: float
) -> None:
    """Note in a figure's folder how it came to be."""
    facts = {
        "name": name,
        "command": f"fedpriv reproduce {name}"
        + (f" --profile {profile}" if profile != "quick" else ""),
        "profile": profile,
        "version": fedpriv.__version__,
        "commit": _commit(),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "processors": os.cpu_count(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / ABOUT, (json.dumps(facts, indent=2) + "\n").encode())


def _commit() -> str:
    """Of the checkout that this package lies in; empty elsewhere."""
    root = Path(fedpriv.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    done = subprocess.run(
        ["git", "-C", root, "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def write(outputs: Path) -> Path:
    """Write the page of the latest folder of each figure below `outputs`; returns its path."""
    latest: dict[str, tuple[Path, dict[str, Any]]] = {}
    for file in sorted(outputs.rglob(ABOUT), key=lambda file: file.parent.name):
        facts = json.loads(file.read_text())
        if (file.parent / "figure.png").exists():
            latest[facts["name"]] = (file.parent, facts)
    known = verdicts()
    order = sorted(
        latest, key=lambda name: list(known).index(name) if name in known else len(known)
    )
    path = outputs / PLACE
    entries = [_entry(*latest[name], verdict=known.get(name), start=path.parent) for name in order]
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>fedpriv: '
        "figures</title>"
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>\n<body><h1>Figures</h1>\n'
        f"<p>{len(entries)} of {len(known)} figures have been drawn "
        f"here.</p>\n{''.join(entries)}</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page.encode())
    return path


def _entry(folder: Path, facts: dict[str, Any], *, verdict: Verdict | None, start: Path) -> str:
    picture = Path(os.path.relpath(folder / "figure.png", start)).as_posix()
    rows = [
        ("command", f"<code>{html.escape(facts['command'])}</code>"),
        ("made by", html.escape(f"fedpriv {facts['version']} {facts['commit']}".strip())),
        ("profile and time", _time(facts)),
        (
            "numbers",
            ", ".join(_link(file, start) for file in sorted(folder.glob("*.csv"))) or "none",
        ),
    ]
    if config := next(iter(sorted(folder.rglob("config.yaml"))), None):
        rows.append(("configuration", _link(config, start) + " of the first run"))
    if verdict:
        kind = f'<strong class="{verdict.verdict}">{verdict.verdict}</strong>'
        rows += [
            ("the paper reports", html.escape(verdict.reports)),
            ("verdict", f"{kind}: {html.escape(verdict.found)}"),
        ]
    listed = "".join(f"<dt>{key}</dt><dd>{value}</dd>" for key, value in rows)
    name = html.escape(facts["name"])
    return (
        f'<article id="{name}"><h2>{name}</h2><img src="{picture}" '
        f'alt="{name}"><dl>{listed}</dl></article>\n'
    )


def _time(facts: dict[str, Any]) -> str:
    own = (
        f", of one processor {facts['processor_seconds']:g} s"
        if "processor_seconds" in facts
        else ""
    )
    return f"{facts['profile']}, {facts['seconds']:g} s{own}, where there are {facts['processors']}"


def _link(file: Path, start: Path) -> str:
    where = Path(os.path.relpath(file, start)).as_posix()
    return f'<a href="{html.escape(where)}">{html.escape(file.name)}</a>'
