"""The epsilon of choosing the best run of a sweep with a random number of runs.

`fedpriv.sweeps.random_number` has the theory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.bundles.bundle import FOLDER, Bundle, read_bundle
from fedpriv.bundles.write import write_bundle
from fedpriv.data.allocate import INVENTED
from fedpriv.reports.finished_runs import Run, read_evaluation, sweep_order
from fedpriv.reports.summary import best_by
from fedpriv.runs.labels import CHARGED, RELEASED
from fedpriv.runs.run_evaluation import TEST_PERSON
from fedpriv.runs.stopping import STOPPING
from fedpriv.runs.tables import STATISTICS
from fedpriv.settings.run_options import BY_METRICS
from fedpriv.sweeps.random_number import DRAW, Cost, SweepDraw

BEST = "best"
"""Folder of a sweep with what may be published of it."""


@dataclass(frozen=True)
class Selection:
    """The best run of a sweep with a random number of runs.

    folder: of the sweep.
    draw: which runs were drawn, and what they cost.
    best: the run with the best value of the metric.
    metric: name of the metric.
    value: of the metric, in the best run.
    runs: the runs that it is the best of.
    evaluations: those of each run, if private scores choose.
    """

    folder: Path
    draw: SweepDraw
    best: Run
    metric: str
    value: float
    runs: Sequence[Run]
    evaluations: Sequence[Run]

    @property
    def cost(self) -> str:
        """The certified epsilon of the best run's model, or why there is none.

        The choice must be by a metric of the released model on records of nobody who trains, or by
        a charged score, fixed when the runs were drawn. It must be made among exactly the runs that
        were drawn, with the planned rounds, and no round repeated with new noise.
        """
        cost, tests = self.draw.cost, self.draw.tests_cost
        about = f"unit {cost.unit}, adjacency {cost.adjacency}, delta = {cost.delta:g}"
        paid = f"epsilon {cost.certified:.4g} (one run: {cost.one:.4g}), {about}"
        if why := self.not_covered:
            return f"not covered{why}"
        if tests is None:
            return f"covered: {paid}, if only this model is released"
        about = f"unit {tests.unit}, adjacency {tests.adjacency}, delta = {tests.delta:g}"
        return (
            f"covered: {paid}; test persons: epsilon {tests.certified:.4g} (of one run: "
            f"{tests.one:.4g}), {about}; if only this model and its score are released"
        )

    @cached_property
    def not_covered(self) -> str:
        """Why there is no epsilon; empty: there is one."""
        if labels := self._labels - {RELEASED, CHARGED}:
            return f" ({self.metric} is a {min(labels)})"
        fixed = self.draw.asked.metric
        if fixed != self.metric:
            return f": the number of runs was drawn for a choice by {fixed}"
        if others := self._others:
            return f": {others}"
        if any(INVENTED in run.status.not_covered for run in self.runs):
            return ": users are drawn over those that the data set names"
        why = _failing("runs", self.runs, self.draw.cost)
        if self.draw.tests_cost is not None:
            why = why or _failing("evaluations", self.evaluations, self.draw.tests_cost)
        return f": {why}" if why else ""

    @property
    def _labels(self) -> set[str]:
        """The labels of what chooses."""
        if self.draw.tests_cost is None:
            return {run.status.metric_label(self.metric) for run in self.runs}
        return {one.status.label_of(STATISTICS, "value") for one in self.evaluations}

    @property
    def _others(self) -> str:
        """How the runs differ from those that were drawn, by folder and seed; empty if they do
        not."""
        seeds = {str(number): self.draw.seed(number) for number in range(len(self.draw.chosen))}
        found = {run.folder.name: run.seed for run in self.runs}
        if extra := sorted(found.keys() - seeds.keys()):
            return f"{', '.join(extra)} were not drawn"
        if missing := sorted(seeds.keys() - found.keys(), key=int):
            return f"of the runs drawn {', '.join(missing)} are not done, or not looked at"
        if changed := [name for name in found if found[name] != seeds[name]]:
            return f"{', '.join(changed)} have other seeds than drawn"
        for run in self.runs:
            if keys := self.draw.changed(int(run.folder.name), run.config):
                return f"{run.folder.name} has other settings than drawn: {', '.join(keys)}"
            if run.status.rounds != self.draw.rounds[self.draw.chosen[int(run.folder.name)]]:
                return f"{run.folder.name} has other rounds than planned"
        return ""

    @property
    def bundle(self) -> Bundle:
        """What may be published of the sweep, if the choice is covered: the best run's bundle, with
        the cost of the choice in place of the run's own."""
        draw, bundle = self.draw, read_bundle(self.best.folder / FOLDER)
        rows = [_priced(bundle, draw.cost, draw.cost.unit)]
        if draw.tests_cost is not None:
            rows.append(_priced(bundle, draw.tests_cost, TEST_PERSON))
        covered = [text for text in bundle.not_covered if text != BY_METRICS]
        return replace(bundle, certificate=rows, not_covered=covered)

    @property
    def note(self) -> str:
        """A sentence for a table."""
        asked = self.draw.asked
        return (
            f"best of a random number of runs ({len(self.draw.chosen)} drawn, mean "
            f"{asked.mean:g}, shape {asked.shape:g}): {self.best.folder} with "
            f"{self.metric} {self.value:.4f}; selection {self.cost}"
        )


def find_selections(runs: Sequence[Run], metric: str | None) -> list[Selection]:
    """A selection for each sweep with a random number of runs among the parents of run folders."""
    by_sweep: dict[Path, list[Run]] = {}
    for run in runs:
        if (run.folder.parent / DRAW).is_file():
            by_sweep.setdefault(run.folder.parent, []).append(run)
    found = []
    for folder, members in by_sweep.items():
        draw = SweepDraw.read(folder)
        members = sorted(members, key=lambda run: sweep_order(run.folder))
        name = metric or draw.asked.metric
        evaluations: list[Run] = []
        if draw.tests_cost is None:
            values = [run.final(name) if name in run.metrics else math.nan for run in members]
        else:
            each = [(run, read_evaluation(run.folder / STOPPING)) for run in members]
            members = [run for run, one in each if one is not None]
            evaluations = [one for _, one in each if one is not None]
            values = [_best_score(one, name) for one in evaluations]
        best = best_by(name, members, values)
        if best is not None:
            value = values[members.index(best)]
            found.append(Selection(folder, draw, best, name, value, members, evaluations))
    return found


def release_choices(selections: Sequence[Selection]) -> list[Path]:
    """Write what may be published of each sweep whose choice is covered. Returns the folders."""
    covered = [one for one in selections if not one.not_covered]
    for selection in covered:
        write_bundle(selection.bundle, selection.folder / BEST)
    return [selection.folder / BEST for selection in covered]


def _best_score(evaluation: Run, metric: str) -> float:
    """The best score of the models of a run, which is that of the released one; NaN without one."""
    values = list(evaluation.metrics.get(metric, ()))
    best: float | None = best_by(metric, values, values)
    return math.nan if best is None else best


def _failing(what: str, runs: Sequence[Run], cost: Cost) -> str:
    """Which of the runs that were drawn break a condition, in words; empty: none does.

    cost: what one of them may cost.
    """
    states = [run.status for run in runs]
    failing = {
        "protect nobody (dp_valid)": [
            state.randomness == "system" and state.dp_valid is not True for state in states
        ],
        "ended early, since others had spent the ledger's budget": [
            run.epsilon["round"].max() < run.status.rounds and run.config.get("ledger") is not None
            for run in runs
        ],
        "repeated rounds after an interruption": [
            state.randomness == "system" and bool(state.repeated_rounds) for state in states
        ],
        "spent more than the draw planned": [
            _spent(run, cost) > cost.one * (1 + 1e-9) for run in runs
        ],
    }
    for condition, fails in failing.items():
        if any(fails):
            numbers = ", ".join(str(number) for number, one in enumerate(fails) if one)
            return f"these {what} {condition}: {numbers}"
    return ""


def _spent(run: Run, cost: Cost) -> float:
    """The largest epsilon that a run's table certifies for the unit that the choice costs."""
    table = run.epsilon
    about = (table.unit == cost.unit) & (table.adjacency == cost.adjacency)
    rows = table[about & (table.observer == RELEASED_MODEL)]
    return float(rows.certified.max()) if len(rows) else math.inf


def _priced(bundle: Bundle, cost: Cost, unit: str) -> dict[str, str]:
    """The row of a certificate with what the choice costs, from that of a run.

    unit: its name in the run's certificate.
    """
    about = (RELEASED_MODEL, unit, cost.adjacency)
    rows = bundle.certificate
    own = [row for row in rows if (row["observer"], row["unit"], row["adjacency"]) == about]
    return {**own[-1], "method": "selection", "claimed": "", "certified": str(cost.certified)}
