"""The epsilon of choosing the best run of a sweep with a random number of runs.

`fedpriv.sweeps.random_number` has the theory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.bundles.bundle import FOLDER, Bundle, read_bundle
from fedpriv.bundles.write import write_bundle
from fedpriv.data.allocate import INVENTED
from fedpriv.reports.finished_runs import Run, damage_named, read_evaluation
from fedpriv.reports.summary import best_by
from fedpriv.runs.labels import CHARGED, RELEASED
from fedpriv.runs.run_evaluation import EVALUATION, MOST_BYTES, WEIGHTS
from fedpriv.runs.tables import ASSUMPTIONS, EPSILON, STATISTICS, Tables
from fedpriv.settings.run_options import BY_METRICS
from fedpriv.sweeps.random_number import DRAW, Cost, SweepDraw
from fedpriv.util.untrusted_files import file_digest

BEST = "best"
"""Folder of a sweep with what may be published of it."""


@dataclass(frozen=True)
class Selection:
    """The best run of a sweep with a random number of runs.

    folder: of the sweep.
    draw: which runs were drawn, and what they cost.
    best: the run with the best value of the metric.
    metric: name of the metric.
    runs: the runs that it is the best of.
    evaluations: folder name of a run: its finished private evaluation, if such ones choose.
    """

    folder: Path
    draw: SweepDraw
    best: Run
    metric: str
    runs: Sequence[Run]
    evaluations: Mapping[str, Run]

    @property
    def cost(self) -> str:
        """The certified epsilon of the best run's model, or why there is none.

        The choice must be by a metric of the released model on records of nobody who trains, or by
        a charged score, fixed when the runs were drawn. It must be made among exactly the runs that
        were drawn, with the planned rounds, and no round repeated with new noise.
        """
        cost, tests = self.draw.cost, self.draw.evaluation_cost
        about = f"unit {cost.unit}, adjacency {cost.adjacency}, delta = {cost.delta:g}"
        paid = f"epsilon {cost.certified:.4g} (one run: {cost.one:.4g}), {about}"
        if why := self.not_covered:
            return f"not covered{why}"
        if tests is None:
            return f"covered: {paid}, if only this model is released"
        about = f"unit {tests.unit}, adjacency {tests.adjacency}, delta = {tests.delta:g}"
        return (
            f"covered: {paid}; test persons: epsilon {tests.certified:.4g} (one evaluation: "
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
        trained = sorted(self.runs, key=lambda run: int(run.folder.name))
        if any(INVENTED in run.status.not_covered for run in trained):
            return ": users are drawn over those that the data set names"
        planned = [self.draw.rounds[place] for place in self.draw.chosen]
        if why := _failing("runs", trained, planned, self.draw.cost):
            return f": {why}"
        if self.draw.evaluation_cost is None:
            return ""
        evaluations = [self.evaluations[run.folder.name] for run in trained]
        once = [1] * len(evaluations)
        why = _failing("evaluations", evaluations, once, self.draw.evaluation_cost)
        return f": {why}" if why else ""

    @property
    def _labels(self) -> set[str]:
        """The labels of what chooses."""
        if self.draw.evaluation_cost is None:
            return {run.status.metric_label(self.metric) for run in self.runs}
        return {one.status.label_of(STATISTICS, "value") for one in self.evaluations.values()}

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
        if self.draw.evaluation_cost is not None:
            return next(filter(None, map(self._other_evaluation, self.runs)), "")
        return ""

    def _other_evaluation(self, run: Run) -> str:
        """How a run's evaluation differs from the one that was drawn; empty if it does not."""
        name = run.folder.name
        found = self.evaluations.get(name)
        if found is None:
            return f"{name} has no finished evaluation"
        if keys := self.draw.changed(int(name), found.config, evaluation=True):
            return f"the evaluation of {name} has other settings than drawn: {', '.join(keys)}"
        if found.seed != run.seed:
            return f"the evaluation of {name} has another seed, so other test persons"
        try:
            model = file_digest(run.folder / WEIGHTS, MOST_BYTES)
        except (OSError, ValueError):
            return f"the model of {name} cannot be read"
        if found.config.get("algo", {}).get("digest") != model:
            return f"the evaluation of {name} is of another model"
        return ""

    @property
    def bundle(self) -> Bundle:
        """What may be published of the sweep, if the choice is covered: the best run's bundle, with
        the cost of the choice in place of the run's own, and its score."""
        draw, bundle = self.draw, read_bundle(self.best.folder / FOLDER)
        rows = [_priced(self.best, draw.cost, draw.cost.unit)]
        metrics, labels = bundle.metrics, bundle.labels
        if draw.evaluation_cost is not None:
            scored = self.evaluations[self.best.folder.name]
            rows.append(_priced(scored, draw.evaluation_cost, "test person"))
            metrics, labels = _scores(scored.folder), {**labels, "metrics": CHARGED}
        covered = [text for text in bundle.not_covered if text != BY_METRICS]
        told = replace(bundle, metrics=metrics, labels=labels)
        return replace(told, certificate=rows, not_covered=covered)

    @property
    def note(self) -> str:
        """A sentence for a table."""
        asked = self.draw.asked
        value = _score(self.evaluations.get(self.best.folder.name, self.best), self.metric)
        return (
            f"best of a random number of runs ({len(self.draw.chosen)} drawn, mean "
            f"{asked.mean:g}, shape {asked.shape:g}): {self.best.folder} with "
            f"{self.metric} {value:.4f}; selection {self.cost}"
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
        name = metric or draw.asked.metric
        evaluations = {}
        if draw.evaluation_cost is not None:
            each = {run.folder.name: read_evaluation(run.folder / EVALUATION) for run in members}
            evaluations = {number: one for number, one in each.items() if one is not None}
        scored = [evaluations.get(run.folder.name, run) for run in members]
        best = best_by(name, members, [_score(one, name) for one in scored])
        if best is not None:
            found.append(Selection(folder, draw, best, name, members, evaluations))
    return found


def release_choices(selections: Sequence[Selection]) -> list[Path]:
    """Write what may be published of each sweep whose choice is covered. Returns the folders."""
    covered = [one for one in selections if not one.not_covered]
    for selection in covered:
        write_bundle(selection.bundle, selection.folder / BEST)
    return [selection.folder / BEST for selection in covered]


def _score(run: Run, metric: str) -> float:
    """A metric after the last round; NaN where the run tells none."""
    return run.final(metric) if metric in run.metrics else math.nan


def _failing(what: str, runs: Sequence[Run], planned: Sequence[int], cost: Cost) -> str:
    """Which of the runs that were drawn break a condition, in words; empty: none does.

    planned: rounds of each.
    cost: what one of them may cost.
    """
    states = [run.status for run in runs]
    failing = {
        "protect nobody (dp_valid)": [
            state.randomness == "system" and state.dp_valid is not True for state in states
        ],
        "have other rounds than planned": [
            state.rounds != rounds for state, rounds in zip(states, planned)
        ],
        "ended early, since others had spent the ledger's budget": [
            state.reason is not None and run.config.get("ledger") is not None
            for state, run in zip(states, runs)
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


def _priced(run: Run, cost: Cost, unit: str) -> dict[str, str]:
    """The row of a certificate with what the choice costs, on the assumptions of a run.

    unit: its name for a reader.
    """
    tables = Tables(run.folder)
    about = (RELEASED_MODEL, cost.unit, cost.adjacency)
    with damage_named(run.folder):
        texts = {row["number"]: row["assumption"] for row in tables.rows(ASSUMPTIONS)}
        rows = tables.rows(EPSILON)
        own = [row for row in rows if (row["observer"], row["unit"], row["adjacency"]) == about]
        assumptions = "; ".join(texts[number] for number in own[-1]["assumptions"].split("; "))
    certified = {"unit": unit, "certified": str(cost.certified), "assumptions": assumptions}
    return {**own[-1], "method": "selection", "claimed": "", **certified}


def _scores(evaluation: Path) -> dict[str, str]:
    """Name of a score: its value with its interval, for a reader."""
    found = {}
    for row in Tables(evaluation).rows(STATISTICS):
        value, low, high = (float(row[name]) for name in ("value", "low", "high"))
        name = f"{row['statistic']} {row['of']}".strip()
        interval = f"95 % from {low:.4g} to {high:.4g}"
        found[name] = f"{value:.4g} ({CHARGED}, of test persons, {interval})"
    return found
