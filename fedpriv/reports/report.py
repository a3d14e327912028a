"""A table of runs with their best settings and comparisons, as text, CSV, Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fedpriv.reports.compare import MAX_PAIRED_GROUPS, TEST, Comparison, compare_groups
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, alike_keyed, group_runs, short
from fedpriv.reports.noted_table import NotedTable
from fedpriv.reports.selection_cost import Selection, find_selections
from fedpriv.reports.summary import (
    NOT_COVERED,
    UNTOLD,
    BestSetting,
    GroupSummary,
    best_settings,
    summarise,
)
from fedpriv.runs.labels import RELEASED

SUMMARY_COLUMNS = ("metric", "label", "mean", "sd", "n", "observer", "unit", "adjacency")
EPSILON_COLUMNS = ("certified", "claimed")
COLUMNS = ("method", *SUMMARY_COLUMNS, *EPSILON_COLUMNS, "empty_rounds")


@dataclass(frozen=True)
class Report(NotedTable):
    """What a table says about groups of runs.

    groups: the rows.
    summaries: final metric and epsilon of each group.
    best: the best setting of each method, where it is chosen by looking at all.
    selections: the best run of each sweep with a random number of runs.
    comparisons: paired tests between groups.
    deltas: all deltas of the runs, sorted.
    simulated: whether the noise of some run is seeded.
    """

    groups: Sequence[Group]
    summaries: Sequence[GroupSummary]
    best: Sequence[BestSetting]
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
        """The report on some runs; see `summarise` and `compare_groups` for the arguments.

        Raises FedprivError for runs on several data sets, and for names that the runs do not have.
        """
        groups = group_runs(runs)
        summaries = summarise(groups, metric=metric, observer=observer, method=method)
        selected = find_selections(runs, metric)
        covered = selected and len(runs) == sum(len(one.runs) for one in selected)
        return Report(
            groups,
            summaries,
            [] if covered else best_settings(summaries),
            selected,
            compare_groups(groups, summaries[0].metric, against),
            sorted({run.status.delta for run in runs}),
            any(run.status.randomness == "simulation" for run in runs),
        )

    def frame(self) -> pd.DataFrame:
        """A row a group: `COLUMNS`, and the keys in which groups differ. Numbers are unrounded."""
        settings = [one.group.settings for one in self.summaries]
        names = _column_names(list(dict.fromkeys(key for own in settings for key in own)))
        return pd.DataFrame(
            {
                "method": [one.group.method for one in self.summaries],
                # Type object: 1 stays 1 beside a group without the key.
                **{
                    name: pd.Series([own.get(key) for own in settings], dtype=object)
                    for key, name in names.items()
                },
                **{name: [getattr(one, name) for one in self.summaries] for name in COLUMNS[1:-1]},
                "empty_rounds": [one.group.empty_rounds for one in self.summaries],
            }
        )

    def shown(self) -> pd.DataFrame:
        """The table as text for a reader.

        Mean and deviation share a column. A value that all rows share is left to the notes.
        """
        frame = self.frame()
        for key in (key for key in frame if str(key) not in COLUMNS):
            frame[key] = [_text(value) for value in frame[key]]
        metric = frame["metric"].iloc[0] if frame["metric"].nunique() == 1 else "metric"
        values = [
            UNTOLD if one.group.untold else _mean_and_deviation(one) for one in self.summaries
        ]
        frame.insert(frame.columns.get_loc("mean"), metric, values)  # type: ignore[arg-type]
        for name in EPSILON_COLUMNS:
            frame[name] = ["" if pd.isna(value) else f"{value:.4g}" for value in frame[name]]
        same = ("label", "observer", "unit", "adjacency")
        equal = [name for name in same if frame[name].nunique() == 1]
        drop = ["mean", "sd", *equal, *(["metric"] if metric != "metric" else [])]
        drop += [] if frame["empty_rounds"].any() else ["empty_rounds"]
        return frame.drop(columns=drop).astype(str)

    def notes(self) -> list[str]:
        """What the numbers are and what they rest on, a sentence each."""
        about = {
            f" of the {one.observer}, unit {one.unit}, adjacency {one.adjacency}"
            for one in self.summaries
        }
        whose = about.pop() if len(about) == 1 else ""
        deltas = ", ".join(f"{delta:g}" for delta in self.deltas)
        notes = [
            "mean ± standard deviation (n - 1) over n seeds, after the last round; "
            f"epsilon{whose}, delta = {deltas}, the largest over seeds"
        ]
        told = (line for line in self.summaries if not line.group.untold)
        labels = sorted({(line.metric, line.label) for line in told})
        notes += [f"{metric} is {_article(label)}" for metric, label in labels]
        if not alike_keyed([run for group in self.groups for run in group.runs]):
            notes.append(
                "several secrets have keyed the digests of the runs' data: nothing proves that the "
                "runs share their data"
            )
        notes += self._empty_rounds()
        if self.simulated:
            notes.append(
                "simulation: noise comes from a seed; epsilons are those of the same runs with "
                "real noise"
            )
        notes += self._unprotected()
        notes += sorted(
            {
                f"engine: {run.status.simulated}"
                for group in self.groups
                for run in group.runs
                if run.status.simulated and run.status.randomness == "system"
            }
        )
        for best in self.best:
            group = best.summary.group
            notes.append(
                f"best of {best.among} settings of {group.method} at epsilon "
                f"{best.summary.certified:.4g}: {group.name}; selection {NOT_COVERED}"
            )
        notes += [selection.note for selection in self.selections]
        if self.comparisons:
            tests = sum(pair.p == pair.p for pair in self.comparisons)
            notes.append(f"{self.summaries[0].metric}, {TEST} ({tests} tests):")
            for pair in self.comparisons:
                p = f"p = {pair.p:.3g}, corrected {pair.holm:.3g}"
                notes.append(
                    f"{pair.one.name} minus {pair.other.name}: {pair.difference:+z.4f}, n = "
                    f"{pair.n}, {p if pair.p == pair.p else 'the same at every seed'}"
                )
        elif len(self.groups) > MAX_PAIRED_GROUPS:
            notes.append(
                "no tests: too many groups; --against NAME compares each with the group NAME"
            )
        return notes

    def _unprotected(self) -> list[str]:
        """A sentence about each row with real noise that protects nobody all the same."""
        return [
            f"WARNING: {group.name}: NOT private: its runs say that they protect nobody (dp_valid "
            "is false)"
            for group in self.groups
            if any(
                run.status.randomness == "system" and run.status.dp_valid is False
                for run in group.runs
            )
        ]

    def _empty_rounds(self) -> list[str]:
        """A sentence about each row with rounds that learned nothing."""
        notes = []
        for group in self.groups:
            found = [
                (run, reason) for run in group.runs for reason in run.status.empty_rounds.values()
            ]
            if found:
                run, reason = found[0]
                notes.append(
                    f"WARNING: {group.name}: {len(found)} rounds learned nothing, "
                    f"{len(run.status.empty_rounds)} of {run.rounds} with seed {run.seed}: {reason}"
                )
        return notes


def _column_names(keys: Sequence[str]) -> dict[str, str]:
    """The column of each key: its last part, or the whole key if that part is not unique."""
    parts = [short(key) for key in keys]
    return {
        key: key if parts.count(part) > 1 or part in COLUMNS else part
        for key, part in zip(keys, parts)
    }


def _article(label: str) -> str:
    return label if label == RELEASED else f"a {label}, which no epsilon covers"


def _mean_and_deviation(one: GroupSummary) -> str:
    return f"{one.mean:.4f}" + (f" ± {one.sd:.4f}" if one.n > 1 else "")


def _text(value: object) -> str:
    return "" if value is None or value != value else str(value)
