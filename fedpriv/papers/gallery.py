"""outputs/figures/index.html: the latest version of every figure, with command, settings, run time
and the ledger's answers.

The page needs no server: it loads nothing but the figures beside it. `gallery.html.jinja` has its
text.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fedpriv
from fedpriv.papers.ledger.entries import QUESTIONS, entries
from fedpriv.reports.templates import environment
from fedpriv.util.durable_files import replace_file
from fedpriv.util.source_commit import source_commit
from fedpriv.util.untrusted_files import read_json

ABOUT = "about.json"
INDEX = Path("figures") / "index.html"


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
    path = outputs / INDEX
    latest: dict[str, dict[str, Any]] = {}
    for file in sorted(outputs.rglob(ABOUT), key=lambda file: file.parent.name):
        facts = read_json(file)
        folder = file.parent
        if (folder / "figure.png").exists():
            configs = sorted(folder.rglob("config.yaml"))
            paths = {"picture": [folder / "figure.png"], "config": configs[:1]}
            paths["tables"] = sorted(folder.glob("*.csv"))
            links = {key: _links(found, path.parent) for key, found in paths.items()}
            latest[facts["name"]] = facts | links
    known = entries()
    order = {name: number for number, name in enumerate(known)}
    figures = sorted(latest.values(), key=lambda facts: order.get(facts["name"], len(order)))
    template = environment(Path(__file__).parent).get_template("gallery.html.jinja")
    page = template.render(figures=figures, known=known, questions=QUESTIONS)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page.encode())
    return path


def _links(files: list[Path], start: Path) -> list[tuple[str, str]]:
    """Each file's address seen from a folder, and its name."""
    return [(Path(os.path.relpath(file, start)).as_posix(), file.name) for file in files]
