"""The contents of a report as plain values. The page is made of them alone.

`report.schema.json` describes them. Every text of a folder stays a text; the page escapes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path

import fedpriv
from fedpriv.errors import FedprivError
from fedpriv.reports.assessment import folder_files as files
from fedpriv.reports.assessment.audits import audit_facts
from fedpriv.reports.assessment.checks import checks, contradictions
from fedpriv.reports.assessment.folder_files import Facts, text
from fedpriv.reports.assessment.plain_words import gloss
from fedpriv.reports.assessment.run_facts import headline, run_facts
from fedpriv.reports.audit_file import plain
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.finished_runs import run_folders as all_runs
from fedpriv.reports.report import Report
from fedpriv.reports.summary import curve_of
from fedpriv.runs.status import STATUS
from fedpriv.runs.stopping import STOPPING

SCHEMA = "fedpriv-report/1"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")
MOST_RUNS = 500
"""Runs of a sweep in one report."""


def contents(
    folder: Path,
    *,
    audits: Sequence[Path] = (),
    purpose: str = "",
    controller: str = "",
    public: bool = False,
    recompute: bool = True,
) -> Facts:
    """The report of a run's or a sweep's folder.

    audits: folders that `fedpriv audit` wrote for the same settings.
    purpose: what the training is for, in the words of the person who is responsible.
    controller: who is responsible for the processing.
    public: leave out what is computed from private records without noise.
    recompute: account the certified epsilons anew.

    Raises FedprivError for a folder without a run, and for files that cannot be read.
    """
    runs = []
    for path in run_folders(folder):
        facts = run_facts(path, name=run_name(path, folder), public=public)
        facts["checks"] = checks(path, facts, recompute=recompute)
        runs.append(facts)
    sweep = not (folder / STATUS).exists()
    return {
        "schema": SCHEMA,
        "kind": "sweep" if sweep else "run",
        "folder": files.text(folder.resolve().name),
        "made": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "made_by": f"fedpriv {fedpriv.__version__}",
        "renderer": renderer_digest(),
        "purpose": files.text(purpose),
        "controller": files.text(controller),
        "public": public,
        "alarms": alarms(runs),
        "runs": runs,
        "assumptions": assumptions(runs),
        "not_covered": list(dict.fromkeys(line for run in runs for line in run["not_covered"])),
        "comparison": comparison(folder) if sweep else None,
        "audits": [audit_facts(path, runs) for path in audits],
        "signer": None,
    }


def run_folders(folder: Path) -> list[Path]:
    """The folder of a run, or those of all runs at or below a sweep's folder and of their private
    evaluations, in their order. Raises FedprivError if there is none, or if there are too many for
    one page."""
    if not folder.is_dir():
        raise FedprivError(f"{folder}: there is no such folder")
    if (folder / STATUS).exists():
        return [folder]
    places = (place for run in all_runs(folder) for place in (run, run / STOPPING))
    found = [place for place in places if (place / STATUS).exists()]
    if not found:
        raise FedprivError(f"{folder}: no run at or below it (a run has a status.json)")
    if len(found) > MOST_RUNS:
        raise FedprivError(f"{folder}: {len(found)} runs are too many for one report ({MOST_RUNS})")
    return found


def run_name(path: Path, folder: Path) -> str:
    """The name of a run in a report on `folder`: of its own folder, or within a sweep the way to
    it, since the runs of several methods may have folders of one name."""
    inside = path != folder
    return files.text(path.relative_to(folder).as_posix() if inside else path.resolve().name)


def assumptions(runs: Sequence[Facts]) -> list[Facts]:
    """Every assumption of a certificate once: its text, its meaning, and whose certificates rest on
    it. Those that do not hold come first."""
    found: dict[tuple[bool, str], dict[str, None]] = {}
    for run in runs:
        for row in run["epsilons"]:
            for holds, name in ((False, "fails"), (True, "assumptions")):
                for line in row[name]:
                    found.setdefault((holds, line), {})[row["observer"]] = None
    return [
        {"text": line, "meaning": gloss(line), "holds": holds, "observers": list(observers)}
        for (holds, line), observers in sorted(found.items(), key=lambda item: item[0][0])
    ]


ALARMS = {
    "running": "STILL RUNNING: this run has not ended; its numbers will change.",
    "killed": "UNFINISHED: this run was cut off; no process works on it.",
    "interrupted": "INTERRUPTED: this run was stopped before its end.",
    "failed": "FAILED: this run ended with an error.",
}
"""What is said of a run that is not done."""
SIMULATION = (
    "SIMULATION: the noise comes from a known seed, so this model protects NOBODY. The numbers are "
    "those of the same training with real noise."
)
INVALID = "NOT PRIVATE: the run itself says that it protects nobody (dp_valid is false)."
INVENTED = (
    "INVENTED PERSONS: the software drew who owns which records. No number about a person covers a "
    "real one."
)
UNSAID = "NO PROTECTION STATED: the folder does not say that this run protects anybody."
CONTRADICTORY = "THE FILES OF THIS FOLDER CONTRADICT EACH OTHER. Do not rely on this report."


def alarms(runs: Sequence[Facts]) -> list[str]:
    """What a reader must know first, once each; with the runs that it is about, if not all."""
    found: dict[str, list[str]] = {}
    for run in runs:
        own = [CONTRADICTORY] if contradictions(run) else []
        if run["state"] != "done":
            own.append(ALARMS.get(run["state"], f"UNFINISHED: the run's state is {run['state']}."))
        if run["randomness"] != "system":
            own.append(SIMULATION)
        elif run["dp_valid"] is False:
            own.append(INVALID)
        elif run["dp_valid"] is None and run["state"] == "done":
            own.append(UNSAID)
        row = headline(run)
        if run["users"]["from"] in ("allocator", "invented") and row and row["unit"] == "user":
            own.append(INVENTED)
        for line in own:
            found.setdefault(line, []).append(run["folder"])
    return [
        line if len(names) == len(runs) else f"{line} (runs {', '.join(names)})"
        for line, names in found.items()
    ]


@cache
def renderer_digest() -> str:
    """A digest of the code that makes a page from contents: equal renderers make equal pages."""
    found = hashlib.sha256()
    here = package_files(__package__).iterdir()
    for entry in sorted(here, key=lambda entry: entry.name):
        if entry.name.endswith((".py", ".css", ".jinja")):
            text = entry.read_bytes()
            found.update(f"{entry.name} {len(text)} ".encode() + text)
    return found.hexdigest()[:16]


def embedded(values: Facts) -> str:
    """Contents as the text that a page carries: canonical JSON in one line."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


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
                "mean": plain(summary.mean),
                "sd": plain(summary.sd),
                "n": summary.n,
                "certified": plain(summary.certified),
                "claimed": plain(summary.claimed),
                "curve": curve_of(summary)[["certified", "mean"]]
                .rename(columns={"mean": "metric"})
                .to_dict("records"),
            }
            for summary in report.summaries
        ],
    }
