"""The result of a comparison as a table: for the terminal, as CSV, Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from fedpriv.aggregation.epsilon_target import SolvedTarget, noise_text
from fedpriv.comparisons.request import Request
from fedpriv.comparisons.trials import Choice, promise
from fedpriv.reports.compare import MAX_PAIRED_GROUPS, TEST, Comparison, compare_groups
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, short
from fedpriv.reports.noted_table import FORMATS, NotedTable
from fedpriv.reports.report import Report
from fedpriv.reports.summary import LOWER_IS_BETTER, GroupSummary, summarise

STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Corrected p-values below these are marked."""
DIVERGED = "diverged"
EQUAL = 1e-3
"""Certified epsilons that differ relatively by more are named."""


def stars(p: float) -> str:
    """The mark of a corrected p-value; empty for NaN."""
    return next((mark for level, mark in STARS if p < level), "")


@dataclass(frozen=True)
class Line:
    """One method of the table.

    name: of the method on the command line.
    summary: final metric and epsilon.
    choice: its setting, and how it was chosen.
    solved: what its epsilon means, for the first seed; None: it has no privacy.
    difference: mean over common seeds of its metric minus the reference's.
    p: of the test of this difference.
    holm: p after Holm's correction. All three are NaN for the reference, and without a test.
    """

    name: str
    summary: GroupSummary
    choice: Choice
    solved: SolvedTarget | None
    difference: float
    p: float
    holm: float

    @property
    def label(self) -> str:
        """The method in tables."""
        return self.summary.group.method + ("" if self.solved else " (no privacy)")

    @property
    def value(self) -> str:
        """Mean ± deviation."""
        return f"{self.summary.mean:.4f} ± {self.summary.sd:.4f}"

    @property
    def noise(self) -> str:
        """Its noise multipliers; they depend on the seed where queries depend on the
        allocation."""
        found = sorted({noise_text(run.status.noise) for run in self.summary.group.runs})
        return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"

    @property
    def setting(self) -> str:
        """The tuned keys by their last part."""
        pairs = (word.partition("=") for word in self.choice.setting)
        return " ".join(f"{short(key)}={value}" for key, _, value in pairs)


@dataclass(frozen=True)
class ComparisonTable(NotedTable):
    """Methods at one epsilon, the best first.

    request: what was asked.
    lines: a line for each method.
    reference: name of the method that the marks compare with: the best private one, unless one was
        named.
    report: the tests of all pairs, and what the numbers rest on.
    diverged: name of each method without a line: which of its runs diverged. A mean over the
        others would flatter it.
    """

    request: Request
    lines: Sequence[Line]
    reference: str
    report: Report
    diverged: Mapping[str, str]

    @staticmethod
    def of(
        request: Request,
        runs: Mapping[str, Sequence[Run]],
        choices: Mapping[str, Choice],
        solved: Mapping[str, SolvedTarget | None],
        diverged: Mapping[str, str],
    ) -> ComparisonTable:
        """The table of finished runs, by the method's name. Raises ConfigError for a metric that
        they do not have."""
        labels = _labels({name: own[0].status.label for name, own in runs.items()})
        groups = [Group(labels[name], {}, tuple(own)) for name, own in runs.items()]
        summaries = dict(zip(runs, summarise(groups, metric=request.metric)))
        metric = next(iter(summaries.values())).metric
        lower = any(word in metric for word in LOWER_IS_BETTER)

        def rank(name: str) -> float:
            mean = summaries[name].mean
            return math.inf if math.isnan(mean) else mean if lower else -mean

        order = sorted(runs, key=rank)
        named = [name for name in order if name == request.against]
        reference = next(name for name in named or order if named or solved[name])
        against = labels[reference] if named else None
        tests = compare_groups(groups, metric, against)
        lines = [
            Line(
                name,
                summaries[name],
                choices[name],
                solved[name],
                *_against(tests, labels[name], labels[reference]),
            )
            for name in order
        ]
        everything = [run for own in runs.values() for run in own]
        report = Report(
            [line.summary.group for line in lines],
            [line.summary for line in lines],
            [],
            [],
            tests,
            sorted({run.status.delta for run in everything}),
            any(run.status.randomness == "simulation" for run in everything),
        )
        return ComparisonTable(request, lines, reference, report, diverged)

    @property
    def metric(self) -> str:
        return self.lines[0].summary.metric

    @property
    def reference_label(self) -> str:
        return next(line.label for line in self.lines if line.name == self.reference)

    @property
    def tuned(self) -> bool:
        return any(line.choice.mean is not None for line in self.lines)

    def frame(self) -> pd.DataFrame:
        """A row for each method with unrounded numbers."""
        rows = [self._row(line) for line in self.lines]
        tried = {one.name: len(one.grid) for one in self.request.methods}
        about = {"metric": self.metric, "label": DIVERGED, "n": 0}
        for name in self.diverged:
            rows.append({"method": name, "name": name, "tried": tried[name], **about})
        return pd.DataFrame(rows)

    def _row(self, line: Line) -> dict[str, Any]:
        one = line.summary
        return {
            "method": line.label,
            "name": line.name,
            "setting": " ".join(line.choice.setting),
            "tried": line.choice.among + line.choice.diverged,
            "metric": one.metric,
            "label": one.label,
            "mean": one.mean,
            "sd": one.sd,
            "n": one.n,
            "noise": line.noise,
            "observer": one.observer,
            "unit": one.unit,
            "adjacency": one.adjacency,
            "certified": one.certified,
            "claimed": one.claimed,
            "difference": line.difference,
            "p": line.p,
            "corrected_p": line.holm,
        }

    def shown(self) -> pd.DataFrame:
        """The table as text for a reader."""
        rows = []
        for line in self.lines:
            row = {"method": line.label} | ({"setting": line.setting} if self.tuned else {})
            row |= {
                self.metric: line.value,
                "n": str(line.summary.n),
                "noise": line.noise,
                "certified": f"{line.summary.certified:.4f}",
                f"minus {self.reference_label}": f"{line.difference:+z.4f}",
                "corrected p": f"{line.holm:.3g}{stars(line.holm)}",
            }
            rows.append(row)
        rows += [{"method": name, self.metric: DIVERGED, "n": "0"} for name in self.diverged]
        return pd.DataFrame(rows).replace(["nan", "+nan"], "").fillna("")

    def notes(self) -> list[str]:
        """What was compared, how, and what the numbers rest on."""
        epsilon = self.request.epsilon
        private = [line for line in self.lines if line.solved]
        protects = dict.fromkeys(promise(line.solved) for line in self.lines if line.solved)
        seeds = ", ".join(map(str, self.request.seeds))
        notes = [
            f"every private method at certified epsilon {epsilon:g}, for "
            f"{' and for '.join(protects)}; "
            f"its noise is solved for it; seeds {seeds}"
        ]
        notes.append(
            "each epsilon is that of one run: it covers neither the publication of several, nor a "
            "choice among the methods by their numbers"
        )
        if len(protects) > 1:
            notes.append("WARNING: equal epsilons of these methods do not mean equal privacy")
        off = [ln for ln in private if abs(ln.summary.certified / epsilon - 1) > EQUAL]
        notes += [
            f"WARNING: {line.label} certifies {line.summary.certified:.4f}, not {epsilon:g}"
            for line in off
        ]
        notes += [f"WARNING: {name} has no mean: {why}" for name, why in self.diverged.items()]
        notes += self._tuning_notes()
        if self.report.comparisons:
            levels = ", ".join(f"{mark} p < {level:g}" for level, mark in reversed(STARS))
            notes.append(f"{levels}: against {self.reference_label}, {TEST}")
        elif len(self.lines) > MAX_PAIRED_GROUPS:
            notes.append(
                f"no tests: more than {MAX_PAIRED_GROUPS} methods; --against METHOD tests the "
                "others against one"
            )
        return notes + self.report.notes()

    def _tuning_notes(self) -> list[str]:
        if not self.tuned:
            return ["no method was tuned: each has the settings of its file or of the command line"]
        seeds = ", ".join(map(str, self.request.tuning_seeds))
        notes = [
            f"settings chosen by mean {self.metric} over other seeds ({seeds}); the epsilon does "
            "not cover this choice"
        ]
        for line in self.lines:
            choice = line.choice
            more = f", {choice.diverged} more diverged" if choice.diverged else ""
            how = " ".join(choice.setting) or "not tuned"
            notes.append(f"{line.label}: {how}, of {choice.among} settings{more}")
        if len({line.choice.among + line.choice.diverged for line in self.lines}) > 1:
            notes.append("WARNING: methods had grids of different sizes")
        return notes

    def json(self) -> str:
        """Everything as plain values; what does not exist is null."""
        request = self.request
        found = {
            "epsilon": request.epsilon,
            "metric": self.metric,
            "seeds": list(request.seeds),
            "tuning_seeds": list(request.tuning_seeds),
            "words": list(request.words),
            "reference": self.reference_label,
            "test": TEST,
            "methods": [self._record(line) for line in self.lines],
            "diverged": dict(self.diverged),
            "tests": [
                {
                    "one": pair.one.name,
                    "other": pair.other.name,
                    "n": pair.n,
                    "difference": pair.difference,
                    "p": pair.p,
                    "corrected_p": pair.holm,
                }
                for pair in self.report.comparisons
            ],
            "notes": self.notes(),
        }
        plain = json.loads(json.dumps(found), parse_constant=lambda name: None)
        return json.dumps(plain, indent=2) + "\n"

    def _record(self, line: Line) -> dict[str, Any]:
        finals = line.summary.group.finals(self.metric)
        return self._row(line) | {
            "tuning_mean": line.choice.mean,
            "solved": asdict(line.solved) if line.solved else None,
            "values": {str(seed): float(value) for seed, value in finals.items()},
            "folders": [
                str(run.folder.relative_to(self.request.folder)) for run in line.summary.group.runs
            ],
        }


WRITERS: dict[str, Callable[[ComparisonTable], str]] = {**FORMATS, ".json": ComparisonTable.json}
"""Writer of each file suffix."""


def _labels(own: Mapping[str, str]) -> dict[str, str]:
    """Name of each method: its label, with the name if that names more than the algorithm, or if
    several methods share the label."""
    shared = list(own.values())
    return {
        name: f"{label} ({name})" if "=" in name or shared.count(label) > 1 else label
        for name, label in own.items()
    }


def _against(tests: Sequence[Comparison], label: str, reference: str) -> tuple[float, float, float]:
    """Difference, p and corrected p of a method against the reference; NaN without a test."""
    for test in tests:
        if {test.one.name, test.other.name} == {label, reference}:
            sign = 1 if test.one.name == label else -1
            return sign * test.difference, test.p, test.holm
    return math.nan, math.nan, math.nan
