"""Findings as a table, as JSON and as a page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from fedpriv.claims.schema import PrivacyClaim
from fedpriv.claims.verdicts import Finding
from fedpriv.reports.templates import environment

COLUMNS = ("observer", "unit", "adjacency", "claimed", "certified", "attack", "verdict")


def number(value: float | None) -> str:
    """An epsilon for a table: four digits, rounded to the nearest."""
    if value is None or math.isnan(value):
        return ""
    return "∞" if math.isinf(value) else f"{value:.4g}"


def cells(finding: Finding) -> list[str]:
    """One row of the table."""
    attack = number(finding.attack.epsilon) if finding.attack.epsilon > 0 else ""
    return [
        finding.observer,
        finding.unit,
        finding.adjacency,
        number(finding.claimed),
        number(finding.certified.epsilon),
        attack,
        finding.verdict,
    ]


def notes(finding: Finding) -> list[str]:
    """What is said below the table about a finding with a verdict."""
    if not finding.verdict:
        return []
    about = f"{finding.observer}, {finding.unit}, {finding.adjacency}: {finding.verdict}"
    lines = [f"{about} (elsewhere: {finding.elsewhere})" if finding.elsewhere else about]
    if finding.certified.rests_on:
        lines.append(f"certified by: {finding.certified.rests_on}")
    if finding.refuted:
        lines.append(f"refuted in the worst case: {finding.attack.how}")
    shown = finding.questions or finding.certified.reasons
    lines += [f"{reason.path}: {reason.text}" for reason in shown]
    if finding.responsible and not finding.questions:
        lines.append(f"responsible: {', '.join(finding.responsible)}")
    if finding.change:
        lines.append(f"would hold with {finding.change}")
    return lines


def show(console: Console, claim: PrivacyClaim, findings: Sequence[Finding]) -> None:
    """Print the table and its notes."""
    deltas = sorted({finding.delta for finding in findings if not math.isnan(finding.delta)})
    at = f", delta = {', '.join(f'{delta:g}' for delta in deltas)}" if deltas else ""
    columns = [Column(name, overflow="fold") for name in COLUMNS]
    table = Table(*columns, title=Text(f"{claim.name or 'claim'}{at}"))
    for finding in findings:
        table.add_row(*map(Text, cells(finding)))
    console.print(table)
    for finding in findings:
        for place, line in enumerate(notes(finding)):
            console.print(Text(f"{'  ' * bool(place)}{line}"), soft_wrap=True)


def as_data(claim: PrivacyClaim, findings: Sequence[Finding]) -> dict[str, Any]:
    """Findings as plain data; infinite epsilons are the text "inf"."""
    return {
        "name": claim.name,
        "source": claim.source,
        "findings": [
            {
                "observer": finding.observer,
                "unit": finding.unit,
                "adjacency": finding.adjacency,
                "delta": None if math.isnan(finding.delta) else finding.delta,
                "claimed": finding.claimed,
                "certified": _plain(finding.certified.epsilon),
                "rests_on": finding.certified.rests_on,
                "attack": _plain(finding.attack.epsilon),
                "attack_by": finding.attack.how,
                "refuted": finding.refuted,
                "verdict": finding.verdict,
                "elsewhere": finding.elsewhere,
                "responsible": list(finding.responsible),
                "change": finding.change,
                "questions": [[q.path, q.text] for q in finding.questions],
                "reasons": [[r.path, r.text] for r in finding.certified.reasons],
            }
            for finding in findings
        ],
    }


def _plain(value: float) -> float | str:
    return "inf" if math.isinf(value) else value


def as_json(reports: Sequence[tuple[PrivacyClaim, Sequence[Finding]]]) -> str:
    """A JSON list with one entry for each claim."""
    data = [as_data(claim, findings) for claim, findings in reports]
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_html(reports: Sequence[tuple[PrivacyClaim, Sequence[Finding]]]) -> str:
    """A page that loads nothing from elsewhere. All text of the claims is escaped."""
    template = environment(Path(__file__).parent).get_template("report.html.jinja")
    return template.render(reports=reports, columns=COLUMNS, cells=cells, notes=notes) + "\n"
