"""The finished runs of a sweep side by side: the rows of `fedpriv table`, and their curves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedpriv.errors import FedprivError
from fedpriv.reports.assessment.folder_files import text
from fedpriv.reports.assessment.run_facts import Facts
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.report import Report
from fedpriv.reports.summary import curve_of


def comparison(folder: Path) -> Facts:
    """Rows of groups of runs that differ in their seed alone, and notes; or why there are none."""
    try:
        report = Report.of(find_runs([folder], lambda line: None))
    except FedprivError as error:
        return {"why_not": text(error), "columns": [], "rows": [], "notes": [], "groups": []}
    frame = report.shown()
    return {
        "why_not": "",
        "columns": [text(name) for name in frame.columns],
        "rows": [[text(cell) for cell in row] for row in frame.values.tolist()],
        "notes": [text(note) for note in report.notes()],
        "groups": [
            {
                "name": text(summary.group.name),
                "metric": text(summary.metric),
                "label": text(summary.label),
                "mean": _plain(summary.mean),
                "sd": _plain(summary.sd),
                "n": summary.n,
                "certified": _plain(summary.certified),
                "claimed": _plain(summary.claimed),
                "curve": curve_of(summary)[["certified", "mean"]]
                .rename(columns={"mean": "metric"})
                .to_dict("records"),
            }
            for summary in report.summaries
        ],
    }


def _plain(value: float) -> Any:
    return None if math.isnan(value) else "inf" if math.isinf(value) else value
