"""What `fedpriv audit` found for the settings of a report's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.errors import ConfigError
from fedpriv.reports.assessment import folder_files as files
from fedpriv.reports.assessment.folder_files import Facts
from fedpriv.reports.audit_file import AUDIT, SCHEMA, comparable
from fedpriv.util.untrusted_files import read_json, readable

NUMBERS = (
    "certified",
    "claimed",
    "audited",
    "provable",
    "estimate",
    "estimate_low",
    "estimate_high",
)


def audit_facts(folder: Path, runs: Sequence[Facts]) -> Facts:
    """The rows of an audit of the same settings as one of the runs.

    Raises ConfigError if there is none, FedprivError for a file that cannot be read.
    """
    path = folder / AUDIT
    if not path.is_file():
        raise ConfigError("--audit", folder, f"a folder of fedpriv audit (with {AUDIT})")
    with readable(path):
        found = read_json(path)
    jobs = found.get("jobs")
    if found.get("schema") != SCHEMA or not isinstance(jobs, list):
        raise ConfigError("--audit", folder, f"an {AUDIT} of the schema {SCHEMA}")
    known = {run["digests"]["settings_of_audits"] for run in runs}
    own = [job for job in jobs if isinstance(job, dict) and _digest(job) in known]
    if not own:
        allowed = "an audit of this run's settings; seeds may differ, and rounds without a target"
        raise ConfigError("--audit", folder, allowed)
    return {
        "folder": files.text(folder.resolve().name),
        "file": files.file_digest(path),
        "made": files.text(found.get("made")),
        "made_by": files.text(found.get("made_by")),
        "confidence": files.finite(found.get("confidence")),
        "rows": [_row(row) for job in own for row in job["rows"] if isinstance(row, dict)],
        "premises": [
            {"name": files.text(one.get("name")), "refuted": bool(one.get("refuted"))}
            for job in own
            for one in job["premises"]
            if isinstance(one, dict)
        ],
    }


def _digest(job: Mapping[str, Any]) -> str:
    """The digest of a job's settings; empty for a job that no audit writes."""
    kinds = {"settings": dict, "rows": list, "premises": list}
    whole = all(isinstance(job.get(name), kind) for name, kind in kinds.items())
    return files.digest_of(comparable(job["settings"])) if whole else ""


def _row(row: Mapping[str, Any]) -> Facts:
    texts = ("observer", "unit", "adjacency", "group", "assumed")
    shown: Facts = {name: files.text(row.get(name)) for name in texts}
    numbers = {name: files.number(row.get(name)) for name in NUMBERS}
    shown |= {k: "inf" if v == float("inf") else v for k, v in numbers.items()}
    return shown | {"rounds": files.count(row.get("rounds")), "refuted": bool(row.get("refuted"))}
