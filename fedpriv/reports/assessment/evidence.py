"""The section of a report on how each run was made, what was recomputed, and digests."""

from __future__ import annotations

from collections.abc import Iterator

from fedpriv.reports.assessment.parts import Html, code, facts, section, table, tag
from fedpriv.reports.assessment.run_facts import Facts


def evidence(values: Facts) -> Html:
    """The section; each run of a sweep folded in."""
    parts: list[object] = [
        tag(
            "p",
            "Digests of files were computed when this report was made. Digests marked “recorded” "
            "are those that the run wrote down; the data themselves were not read again. None of "
            "this proves that a training took place: it shows whether files fit together.",
        )
    ]
    for run in values["runs"]:
        shown = list(_evidence_of(run))
        if len(values["runs"]) == 1:
            parts += shown
        else:
            parts.append(tag("details", tag("summary", f"Run {run['folder']}"), *shown))
    return section("Evidence", *parts)


def _evidence_of(run: Facts) -> Iterator[Html]:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    yield facts(
        [
            ("Command", code(run["command"]) if run["command"] else "not recorded"),
            ("Seed", str(run["seed"]) if run["seed"] is not None else ""),
            ("Last written", run["updated"]),
            ("Versions", versions),
            ("Commit of fedpriv", code(run["commit"]) if run["commit"] else "not recorded"),
            ("Trained on", run["device"]),
            ("Simulated", run["simulated"]),
            ("Repeated rounds", run["rounds_repeated"] or ""),
            ("Ended by", run["reason"]),
            *((f"Warning {n}", line) for n, line in enumerate(run["warnings"], 1)),
        ]
    )
    checks = [[one["what"], one["result"], one["why"]] for one in run["checks"]]
    explained = 2 + any(one["why"] for one in run["checks"])
    columns = ["check", "result", "why"][:explained]
    yield table(
        columns, [row[:explained] for row in checks], "What was recomputed from the folder's files."
    )
    digests = [
        [DIGESTS.get(name, name), "recomputed" if name in RECOMPUTED else "recorded", code(value)]
        for name, value in run["digests"].items()
    ]
    digests += [[name, "recomputed", code(value)] for name, value in run["files"].items()]
    yield table(["of", "", "SHA-256"], digests, "Digests.")
    settings = "\n".join(f"{key}: {value}" for key, value in run["settings"].items())
    yield tag("details", tag("summary", "All settings"), tag("pre", settings))


RECOMPUTED = ("settings", "settings_of_audits")
DIGESTS = {
    "settings": "settings (config.yaml, as values)",
    "settings_of_audits": "settings that an audit must share",
    "source": "data, as read from their files",
    "records": "records, as loaded",
    "allocation": "allocation: owner and silo of each record",
    "effective": "plan: noise, encodings, events",
    "code": "code of fedpriv and of own components",
}
