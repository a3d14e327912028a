"""The epsilon of choosing the best run of a sweep with a random number of runs.

`fedpriv.sweeps.random_number` has the theory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.data.allocate import INVENTED
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.summary import best_by
from fedpriv.runs.labels import RELEASED
from fedpriv.sweeps.random_number import DRAW, SweepDraw


@dataclass(frozen=True)
class Selection:
    """The best run of a sweep with a random number of runs.

    folder: of the sweep.
    draw: which runs were drawn, and what they cost.
    best: the run with the best value of the metric.
    metric: name of the metric.
    runs: the runs that it is the best of.
    """

    folder: Path
    draw: SweepDraw
    best: Run
    metric: str
    runs: Sequence[Run]

    @property
    def cost(self) -> str:
        """The certified epsilon of the best run's model, or why there is none.

        The choice must be by a metric of the released model on records of nobody who trains, fixed
        when the runs were drawn. It must be made among exactly the runs that were drawn, with the
        planned rounds, and no round repeated with new noise.
        """
        labels = {run.status.metric_label(self.metric) for run in self.runs} - {RELEASED}
        if labels:
            return f"not covered ({self.metric} is a {min(labels)})"
        fixed = self.draw.asked.metric
        if fixed != self.metric:
            return f"not covered: the number of runs was drawn for a choice by {fixed}"
        if others := self._others:
            return f"not covered: {others}"
        states = [self._run(number).status for number in self._drawn]
        if any(INVENTED in state.not_covered for state in states):
            return "not covered: users are drawn over those that the data set names"
        planned = [self.draw.rounds[place] for place in self.draw.chosen]
        cost = self.draw.cost
        failing = {
            "protect nobody (dp_valid)": [
                state.randomness == "system" and state.dp_valid is not True for state in states
            ],
            "have other rounds than planned": [
                state.rounds != rounds for state, rounds in zip(states, planned)
            ],
            "repeated rounds after an interruption": [
                state.randomness == "system" and bool(state.repeated_rounds) for state in states
            ],
            "spent more than the draw planned": [
                self._spent(number) > cost.one * (1 + 1e-9) for number in self._drawn
            ],
        }
        for what, runs in failing.items():
            if any(runs):
                numbers = ", ".join(str(number) for number, fails in enumerate(runs) if fails)
                return f"not covered: these runs {what}: {numbers}"
        return (
            f"covered: epsilon {cost.certified:.4g} (one run: {cost.one:.4g}), unit "
            f"{cost.unit}, adjacency {cost.adjacency}, delta = {cost.delta:g}, "
            "if only this model is released"
        )

    @property
    def _others(self) -> str:
        """How the runs differ from those that were drawn, by folder and seed; empty if they do
        not."""
        seeds = {str(number): self.draw.asked.seed + number for number in self._drawn}
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
        return ""

    def _spent(self, number: int) -> float:
        """The largest epsilon that the run's table certifies for the unit that the choice costs."""
        table, cost = self._run(number).epsilon, self.draw.cost
        about = (table.unit == cost.unit) & (table.adjacency == cost.adjacency)
        rows = table[about & (table.observer == RELEASED_MODEL)]
        return float(rows.certified.max()) if len(rows) else math.inf

    def _run(self, number: int) -> Run:
        [run] = [run for run in self.runs if run.folder.name == str(number)]
        return run

    @property
    def _drawn(self) -> range:
        return range(len(self.draw.chosen))

    @property
    def note(self) -> str:
        """A sentence for a table."""
        asked = self.draw.asked
        value = self.best.final(self.metric)
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
        name = metric or members[0].status.metric
        best = best_by(name, members, [run.final(name) for run in members])
        if best is not None:
            found.append(Selection(folder, SweepDraw.read(folder), best, name, members))
    return found
