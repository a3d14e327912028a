"""The table of some runs: its lines, the best settings, the comparisons; for a reader, a paper or a
program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from fedpriv.reports.compare import MOST_GROUPS, TEST, Comparison, compared
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, grouped, short
from fedpriv.reports.selection_cost import Selection, selections
from fedpriv.reports.summary import Choice, Line, best, summarised
from fedpriv.runs.labels import RELEASED

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Report:
    """Everything that is said about some groups of runs."""

    groups: Sequence[Group]
    lines: Sequence[Line]
    choices: Sequence[Choice]
    selections: Sequence[Selection]
    comparisons: Sequence[Comparison]
    deltas: Sequence[float]
    simulated: bool

    @staticmethod
    def of(
        runs: Sequence[Run],
        *,
        metric: str | None = None,
        observer: str | None = None,
        method: str | None = None,
        against: str | None = None,
    ) -> Report:
        """Raises FedprivError for runs that do not belong together, and for names that they do not
        have."""
        groups = grouped(runs)
        lines = summarised(groups, metric=metric, observer=observer, method=method)
        selected = selections(runs, metric)
        return Report(
            groups,
            lines,
            [] if selected and len(runs) == sum(s.among(runs) for s in selected) else best(lines),
            selected,
            compared(groups, lines[0].metric, against),
            sorted({run.delta for run in runs}),
            any(run.randomness == "simulation" for run in runs),
        )

    def frame(self) -> pd.DataFrame:
        """A row a group: method, the keys in which groups differ, metric, mean, sd, n, and
        epsilons, unrounded."""
        keys = list(dict.fromkeys(key for group in self.groups for key in group.settings))
        names = _names(keys)
        rows = [
            {
                "method": line.group.method,
                **{names[key]: line.group.settings.get(key) for key in keys},
                "metric": line.metric,
                "label": line.label,
                "mean": line.mean,
                "sd": line.sd,
                "n": line.n,
                "observer": line.observer,
                "unit": line.unit,
                "adjacency": line.adjacency,
                "certified": line.certified,
                "claimed": line.claimed,
            }
            for line in self.lines
        ]
        frame = pd.DataFrame(rows)
        for key in keys:  # numbers as they were given, beside groups that have none
            frame[names[key]] = pd.Series(
                [line.group.settings.get(key) for line in self.lines], dtype=object
            )
        return frame

    def shown(self) -> pd.DataFrame:
        """The same for a reader, as text: mean and deviation in one column, what all lines share
        left to the notes."""
        frame = self.frame()
        for key in (key for key in frame if str(key) not in COLUMNS):
            frame[key] = [_text(value) for value in frame[key]]
        metric = frame["metric"].iloc[0] if frame["metric"].nunique() == 1 else "metric"
        values = [
            f"{mean:.4f}" + (f" ± {sd:.4f}" if n > 1 else "")
            for mean, sd, n in frame[["mean", "sd", "n"]].values
        ]
        frame.insert(frame.columns.get_loc("mean"), metric, values)  # type: ignore[arg-type]
        for kind in ("certified", "claimed"):
            frame[kind] = ["" if pd.isna(value) else f"{value:.4g}" for value in frame[kind]]
        shared_writers = [
            name
            for name in ("label", "observer", "unit", "adjacency")
            if frame[name].nunique() == 1
        ]
        drop = ["mean", "sd", *shared_writers, *(["metric"] if metric != "metric" else [])]
        return frame.drop(columns=drop).astype(str)

    def notes(self) -> list[str]:
        """What the numbers are and rest on, a sentence each."""
        line = self.lines[0]
        about = {(line.observer, line.unit, line.adjacency) for line in self.lines}
        whose = (
            f" of the {line.observer}, unit {line.unit}, adjacency {line.adjacency}"
            if len(about) == 1
            else ""
        )
        deltas = ", ".join(f"{delta:g}" for delta in self.deltas)
        notes = [
            "mean ± standard deviation (n - 1) over n seeds, after the last round; "
            f"epsilon{whose}, delta = {deltas}, the largest over seeds"
        ]
        labels = sorted({(line.metric, line.label) for line in self.lines})
        notes += [f"{metric} is {_article(label)}" for metric, label in labels]
        if self.simulated:
            notes.append(
                "simulation: noise is seeded, the epsilons are those of the same runs with real "
                "noise"
            )
        for choice in self.choices:
            notes.append(
                f"best of {choice.among} settings of {choice.line.group.method} at epsilon "
                f"{choice.line.certified:.4g}: {choice.line.group.name}; selection {choice.cost}"
            )
        notes += [selection.note for selection in self.selections]
        if self.comparisons:
            notes.append(
                f"{self.lines[0].metric}, {TEST} "
                f"({sum(pair.p == pair.p for pair in self.comparisons)} tests):"
            )
            for pair in self.comparisons:
                p = (
                    f"p = {pair.p:.3g}, corrected {pair.holm:.3g}"
                    if pair.p == pair.p
                    else "the same at every seed"
                )
                notes.append(
                    f"{pair.one.name} minus {pair.other.name}: {pair.difference:+.4f}, n = "
                    f"{pair.n}, {p}"
                )
        elif len(self.groups) > MOST_GROUPS:
            notes.append(
                "no tests among so many groups: --against NAME compares each with that one"
            )
        return notes

    def print(self, console: Console) -> None:
        """For a reader."""
        from rich.table import Table

        table = Table()
        frame = self.shown()
        for name in frame.columns:
            table.add_column(str(name), overflow="fold")
        for row in frame.itertuples(index=False):
            table.add_row(*map(str, row))
        console.print(table)
        for note in self.notes():
            console.print(note, markup=False, highlight=False, soft_wrap=True)

    def csv(self) -> str:
        """The numbers, unrounded."""
        return self.frame().to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """The table for a reader, then the notes."""
        frame = self.shown()
        head = [
            "| " + " | ".join(frame.columns) + " |",
            "| " + " | ".join("---" for _ in frame.columns) + " |",
        ]
        rows = [
            "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
            for row in frame.values
        ]
        return "\n".join([*head, *rows, "", *(f"- {note}" for note in self.notes())]) + "\n"

    def latex(self) -> str:
        """The table for a reader, with booktabs; the notes are comments."""
        frame = self.shown()
        frame.columns = pd.Index([_tex(name) for name in frame.columns])
        body = frame.map(_tex).to_latex(index=False, column_format="l" * len(frame.columns))
        return "".join(f"% {note}\n" for note in self.notes()) + body


FORMATS: dict[str, Callable[[Report], str]] = {
    ".csv": Report.csv,
    ".md": Report.markdown,
    ".tex": Report.latex,
}
"""By the suffix of a file."""
COLUMNS = (
    "method",
    "metric",
    "label",
    "mean",
    "sd",
    "n",
    "observer",
    "unit",
    "adjacency",
    "certified",
    "claimed",
)


def _names(keys: Sequence[str]) -> dict[str, str]:
    """A column's name for each key: its last part, or all of it where that is ambiguous or
    taken.
    """
    parts = [short(key) for key in keys]
    return {
        key: key if parts.count(part) > 1 or part in COLUMNS else part
        for key, part in zip(keys, parts)
    }


def _article(label: str) -> str:
    return label if label == RELEASED else f"a {label}, which no epsilon covers"


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)


TEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "inf": r"$\infty$"}


def _tex(text: str) -> str:
    if text in TEX:
        return TEX[text]
    special = {
        **{char: f"\\{char}" for char in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **TEX,
    }
    return "".join(special.get(char, char) for char in text)
