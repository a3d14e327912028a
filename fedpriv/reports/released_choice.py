"""What a sweep with a random number of runs may publish: the best run's bundle, with the cost of
the choice in place of the run's own. No certificate covers anything else in the sweep's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.bundles.bundle import FOLDER, read_bundle
from fedpriv.bundles.write import write_bundle
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.selection_cost import find_selections
from fedpriv.runs.labels import CHARGED
from fedpriv.runs.tables import ASSUMPTIONS, EPSILON, STATISTICS, Tables
from fedpriv.settings.run_options import BY_METRICS
from fedpriv.sweeps.random_number import Cost

BEST = "best"
"""Its folder, in that of the sweep."""


def release_choices(runs: Sequence[Run]) -> list[Path]:
    """Write the bundle of each choice among the runs that is covered. Returns the folders."""
    written = []
    for selection in find_selections(runs, None):
        if selection.not_covered:
            continue
        best, draw = selection.best, selection.draw
        bundle = read_bundle(best.folder / FOLDER)
        rows = _priced(best, draw.cost, draw.cost.unit)
        metrics, labels = bundle.metrics, bundle.labels
        if draw.evaluation_cost is not None:
            scored = selection.evaluations[best.folder.name]
            rows += _priced(scored, draw.evaluation_cost, "test person")
            metrics, labels = _scores(scored.folder), {**labels, "metrics": CHARGED}
        covered = [text for text in bundle.not_covered if text != BY_METRICS]
        folder = selection.folder / BEST
        write_bundle(
            replace(bundle, certificate=rows, metrics=metrics, labels=labels, not_covered=covered),
            folder,
        )
        written.append(folder)
    return written


def _priced(run: Run, cost: Cost, unit: str) -> list[dict[str, str]]:
    """The row of a certificate with what the choice costs, on the assumptions of a run.

    unit: its name for a reader.
    """
    tables = Tables(run.folder)
    texts = {row["number"]: row["assumption"] for row in tables.rows(ASSUMPTIONS)}
    about = (RELEASED_MODEL, cost.unit, cost.adjacency)
    rows = tables.rows(EPSILON)
    own = [row for row in rows if (row["observer"], row["unit"], row["adjacency"]) == about]
    assumptions = "; ".join(texts[number] for number in own[-1]["assumptions"].split("; "))
    certified = {"unit": unit, "certified": str(cost.certified), "assumptions": assumptions}
    return [{**own[-1], "method": "selection", "claimed": "", **certified}]


def _scores(evaluation: Path) -> dict[str, str]:
    """Name of a score: its value with its interval, for a reader."""
    found = {}
    for row in Tables(evaluation).rows(STATISTICS):
        value, low, high = (float(row[name]) for name in ("value", "low", "high"))
        name = f"{row['statistic']} {row['of']}".strip()
        interval = f"95 % from {low:.4g} to {high:.4g}"
        found[name] = f"{value:.4g} ({CHARGED}, of test persons, {interval})"
    return found
