"""The page of a report, made of its contents alone: equal contents make equal bytes.

The page needs no script and asks nobody: its style is inside, and its policy forbids requests.
Sections are named as those of a data protection impact assessment (GDPR, Article 35(7)).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.resources import files as package_files
from typing import Any

from fedpriv.reports.assessment import plain_words as words
from fedpriv.reports.assessment.chart import Line, chart
from fedpriv.reports.assessment.contents import embedded
from fedpriv.reports.assessment.evidence import evidence
from fedpriv.reports.assessment.limits import limits
from fedpriv.reports.assessment.parts import (
    Html,
    bullets,
    code,
    facts,
    join,
    number,
    section,
    table,
    tag,
)
from fedpriv.reports.assessment.run_facts import Facts, headline, protects

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
JSON_BEGINS, JSON_ENDS = '<pre id="contents">', "</pre>"
ONE_ROW = "Runs that differ in their seed alone share a row."


def page(values: Facts) -> bytes:
    """The page, UTF-8."""
    values = json.loads(embedded(values))  # in the order in which the page carries them
    title = f"Privacy report: {_title(values)}"
    head = join(
        [
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Html('<meta name="referrer" content="no-referrer">'),
            tag("title", title),
            tag("style", _style()),
        ]
    )
    body = tag("body", _top(values, title), *(part(values) for part in SECTIONS))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n{body}</html>\n'.encode()


@cache
def _style() -> Html:
    return Html((package_files(__package__) / "page.css").read_text())


def _title(values: Facts) -> str:
    runs = values["runs"]
    methods = list(dict.fromkeys(run["method"] for run in runs if run["method"]))
    data = list(dict.fromkeys(run["components"].get("data", "") for run in runs))
    many = f" ({len(runs)} runs)" if values["kind"] == "sweep" else ""
    return (
        f"{', '.join(methods) or 'a training'} on {', '.join(filter(None, data)) or 'data'}{many}"
    )


def _top(values: Facts, title: str) -> Html:
    alarms = [tag("p", line, cls="alarm", role="alert") for line in values["alarms"]]
    made = [
        f"About the folder {values['folder']}, made by {values['made_by']} on {values['made']}. ",
        "Numbers are those that the folder's files state; what was recomputed is said below.",
    ]
    signer = values["signer"]
    if signer is not None:
        signed = f" Signed with the key {signer['fingerprint']}."
        made.append(signed + " Check it with fedpriv report --verify; ask the signer for this key.")
    else:
        made.append(" Not signed: anybody can have changed this page.")
    runs = values["runs"]
    if runs and not alarms and all(map(protects, runs)):
        alarms = [tag("p", words.VALID, cls="valid")]
    return join([tag("h1", title), *alarms, tag("p", *made, cls="quiet"), _headline(runs)])


def _headline(runs: Sequence[Facts]) -> Html:
    """The numbers that stand for the runs, each with what it is of."""
    rows = [(run, headline(run)) for run in runs]
    epsilons = _range([row["certified"] for _, row in rows if row is not None])
    claimed = _range([row["claimed"] for _, row in rows if row is not None])
    first = next((row for _, row in rows if row is not None), None)
    boxes = []
    if first is not None:
        about = f"certified epsilon ({first['observer']}, unit {first['unit']})"
        boxes.append((epsilons, about))
        boxes.append((claimed or "none", "claimed by the method's publication"))
    metrics = [
        run["metrics"][run["metric"]]["value"] for run in runs if run["metric"] in run["metrics"]
    ]
    if metrics:
        boxes.append(
            (_range(metrics), f"{runs[0]['metric'].replace('_', ' ')} after the last round")
        )
    done = sum(run["rounds_done"] == run["rounds"] and run["state"] == "done" for run in runs)
    state = f"{done} of {len(runs)}" if len(runs) > 1 else runs[0]["state"]
    boxes.append((state, "runs finished" if len(runs) > 1 else "state of the run"))
    return tag("div", *(tag("div", tag("b", value), name) for value, name in boxes), cls="headline")


def _range(values: Sequence[Any]) -> str:
    """A number, or the smallest and the largest of several."""
    known = [value for value in values if value is not None]
    ordered = sorted(known, key=lambda value: float(value))
    shown = list(dict.fromkeys(number(value) for value in (ordered[:1] + ordered[-1:])))
    return " to ".join(shown)


def _shared(runs: Sequence[Facts], get: Callable[[Facts], Any]) -> str:
    """What runs have in common, or every different value."""
    found = dict.fromkeys(str(get(run)) for run in runs if get(run) not in (None, ""))
    return "; ".join(found)


def _processing(values: Facts) -> Html:
    runs = values["runs"]

    def component(group: str) -> str:
        return _shared(runs, lambda run: run["components"].get(group))

    aggregations = dict.fromkeys(run["components"].get("aggregation", "") for run in runs)
    summing = " ".join(words.AGGREGATIONS.get(name, "") for name in aggregations).strip()
    nature = facts(
        [
            ("Method", _shared(runs, lambda run: run["method"])),
            (
                "Model",
                f"{component('model')}, {_shared(runs, lambda r: r['parameters'])} parameters",
            ),
            ("How organisations sum", f"{component('aggregation')}. {summing}"),
            ("Bound and noise", component("mechanism")),
            ("Rounds", _shared(runs, lambda run: f"{run['rounds_done']} of {run['rounds']}")),
            ("Randomness", _shared(runs, lambda run: run["randomness"])),
        ]
    )
    scope = facts(
        [
            ("Data", component("data")),
            ("Training records", _shared(runs, lambda run: run["records"])),
            ("Persons", _shared(runs, lambda run: run["users"]["n_users"])),
            ("Organisations (silos)", _shared(runs, lambda run: run["users"]["n_silos"])),
            ("Rule that gave records to persons and silos", component("allocator")),
        ]
    )
    origins = dict.fromkeys(run["users"]["from"] for run in runs)
    context = bullets(words.ORIGINS.get(origin, "") for origin in origins)
    training = (
        "A model is trained on records that stay with the organisations that hold them "
        "(federated learning). Each organisation computes an update, bounds what one unit can "
        "change in it, and noise is added before anything is released."
    )
    return section(
        "Description of the processing",
        tag("h3", "Nature"),
        tag("p", training),
        nature,
        tag("h3", "Scope"),
        scope,
        tag("h3", "Context: where the protected persons come from"),
        context,
        tag("h3", "Purposes"),
        tag("p", values["purpose"] or "To be stated by the controller (--purpose)."),
        facts([("Controller", values["controller"] or "To be stated (--controller).")]),
    )


def _necessity(values: Facts) -> Html:
    """What the model achieves for the privacy that it costs."""
    runs = values["runs"]
    found = values["comparison"]
    parts: list[object] = []
    if found is not None and found["groups"]:
        groups = found["groups"]
        lines = [Line(group["name"], _points(group["curve"])) for group in groups]
        metric = groups[0]["metric"]
        labels = dict.fromkeys(group["label"] for group in groups)
    else:
        lines = [Line(runs[0]["method"], _points(runs[0]["curve"]))]
        metric = runs[0]["metric"]
        labels = dict.fromkeys(
            run["metrics"][run["metric"]]["label"]
            for run in runs
            if run["metric"] in run["metrics"]
        )
    name = metric.replace("_", " ")
    picture = chart(
        [line for line in lines if line.points],
        x="certified epsilon",
        y=name,
        title=f"What a smaller epsilon costs: {name} after each evaluated round.",
    )
    parts.append(picture or tag("p", "There is no curve: no finite epsilon, or no metric."))
    if found is not None and found["rows"]:
        parts.append(table(found["columns"], found["rows"], ONE_ROW))
        parts.append(bullets(found["notes"]))
    elif found is not None:
        parts.append(tag("p", f"There is no table: {found['why_not']}"))
    parts += [
        tag("p", f"Label of {name}: {label}. {words.LABELS.get(label, '')}", cls="quiet")
        for label in labels
    ]
    parts.append(
        tag(
            "p",
            "Whether a smaller epsilon, fewer rounds or fewer records would serve the purpose as "
            "well is for the controller to judge; the curve shows what they cost.",
        )
    )
    return section("Necessity and proportionality", *parts)


def _points(curve: Sequence[Facts]) -> list[tuple[float, float]]:
    return [
        (point["certified"], point["metric"])
        for point in curve
        if isinstance(point["certified"], int | float)
    ]


def _risks(values: Facts) -> Html:
    runs = values["runs"]
    observers = dict.fromkeys(row["observer"] for run in runs for row in run["epsilons"])
    who = [(name, words.OBSERVERS.get(name, words.OTHER_OBSERVER)) for name in observers]
    units = dict.fromkeys(row["unit"] for run in runs for row in run["epsilons"])
    statuses = dict.fromkeys(row["status"] for run in runs for row in run["epsilons"])
    return section(
        "Risks to the persons concerned",
        tag("h3", "Who sees what"),
        facts(who),
        tag("h3", "What is protected"),
        facts((unit, words.UNITS.get(unit, "")) for unit in units),
        tag("h3", "How much each of them can learn"),
        tag(
            "p",
            "“Sure at most” answers: if somebody gave it a chance of 50 % that a person's records "
            "were used, how sure can they become by what they see? (Apart from the small "
            "probability delta.)",
        ),
        limits(runs),
        facts((status, words.STATUSES.get(status, words.DECLARED)) for status in statuses),
        tag("h3", "Attacks that were tried"),
        *_audits(values),
        tag("h3", "What no number on this page covers"),
        bullets(values["not_covered"]),
        tag("p", _diagnostics(values), cls="quiet"),
    )


def _audits(values: Facts) -> Iterator[Html]:
    if not values["audits"]:
        yield tag(
            "p", "No attack was tried, or its results were not given to this report (--audit)."
        )
    for audit in values["audits"]:
        level = f"{100 * (audit['confidence'] or 0):g} %"
        columns = ["observer", "unit", "rounds", "certified", "proven by attack, at least"]
        columns += ["could prove, at most", "estimate (interval)", "result"]
        rows = [
            [
                row["observer"],
                f"{row['unit']} {row['group']}".strip(),
                row["rounds"],
                number(row["certified"]),
                number(row["audited"]),
                number(row["provable"]),
                _estimate(row),
                "REFUTES the certificate" if row["refuted"] else "does not refute it",
            ]
            for row in audit["rows"]
        ]
        about = (
            f"{audit['folder']}, {audit['made']}, {audit['made_by']}; each bound holds with {level}"
        )
        yield table(columns, rows, about)
        refuted = [one["name"] for one in audit["premises"] if one["refuted"]]
        yield tag(
            "p",
            f"{len(audit['premises'])} assumptions were measured, {len(refuted)} refuted. A low "
            "bound proves nothing: another attack may do better. An estimate is not a bound.",
        )
        yield bullets(refuted)


def _estimate(row: Facts) -> str:
    if row["estimate"] is None:
        return ""
    if row["estimate_low"] is None:
        return number(row["estimate"])
    ends = f"{number(row['estimate_low'])} to {number(row['estimate_high'])}"
    return f"{number(row['estimate'])} ({ends})"


def _diagnostics(values: Facts) -> str:
    if values["public"]:
        return (
            "This page was made for the public: what is computed from private records without "
            "noise was left out."
        )
    return (
        "This page itself shows some values that are computed from private records without noise: "
        "the number of training records, digests of data and tables, and every metric that is "
        "called a diagnostic. No epsilon covers them. For a page to publish, use --public."
    )


def _measures(values: Facts) -> Html:
    rows = []
    everybody = {row["observer"] for run in values["runs"] for row in run["epsilons"]}
    for one in values["assumptions"]:
        text = one["text"] if one["holds"] else f"DOES NOT HOLD: {one['text']}"
        against = one["observers"]
        whom = "all of them" if len(against) == len(everybody) > 1 else ", ".join(against)
        rows.append([text, one["meaning"], whom])
    return section(
        "Measures, and what they rest on",
        tag(
            "p",
            "What one unit can contribute is bounded, noise is added, and all of it is accounted. "
            "The limits above hold if every line of this table does.",
        ),
        table(["assumption", "in other words", "needed against"], rows, "Each assumption once.")
        if rows
        else tag("p", "No certificate, so no assumption."),
    )


def _glossary(values: Facts) -> Html:
    return section("Words", facts(words.GLOSSARY.items()))


def _contents(values: Facts) -> Html:
    inside = tag("pre", embedded(values), id="contents")
    return section(
        "For machines",
        tag(
            "p",
            "The contents of this page as JSON, by the schema ",
            code(values["schema"]),
            ". The file report.json has the same.",
        ),
        tag("details", tag("summary", "Contents"), inside, cls="machine"),
    )


SECTIONS = (_processing, _necessity, _risks, _measures, evidence, _glossary, _contents)
