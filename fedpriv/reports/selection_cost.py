"""What the best run of a sweep with a random number of runs costs (see
`fedpriv.sweeps.random_number`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpriv.reports.finished_runs import Run
from fedpriv.reports.summary import lower_is_better
from fedpriv.runs.folder import read_status
from fedpriv.sweeps.random_number import DRAW, SweepDraw


@dataclass(frozen=True)
class Selection:
    """The best run of such a sweep by `metric`.

    cost: what is certified for its model, or why nothing is.
    """

    folder: Path
    draw: SweepDraw
    best: Run
    metric: str

    @property
    def cost(self) -> str:
        """Fewer runs than those drawn are another choice; longer ones, or rounds begun again with
        new noise, cost more than was planned."""
        states = [read_status(self.folder / str(number)) for number in range(len(self.draw.chosen))]
        planned = [self.draw.rounds[place] for place in self.draw.chosen]
        if missing := _places(state.get("state") != "done" for state in states):
            return f"not covered: of the runs drawn {missing} are not done"
        if longer := _places(
            state.get("rounds") != rounds for state, rounds in zip(states, planned)
        ):
            return f"not covered: {longer} have other rounds than planned"
        if again := _places(
            state["randomness"] == "system" and bool(state["repeated_rounds"]) for state in states
        ):
            return f"not covered: {again} began rounds again after an interruption"
        cost = self.draw.cost
        return (
            f"covered: epsilon {cost['certified']:.4g} (one run: {cost['one']:.4g}), unit "
            f"{cost['unit']}, adjacency "
            f"{cost['adjacency']}, delta = {cost['delta']:g}, if only this model is released"
        )

    def among(self, runs: Sequence[Run]) -> int:
        """How many of `runs` are its sweep's."""
        return sum(run.folder.parent == self.folder for run in runs)

    @property
    def note(self) -> str:
        """For a reader."""
        asked = self.draw.asked
        number = len(self.draw.chosen)
        value = self.best.final(self.metric)
        return (
            f"best of a random number of runs ({number} drawn, mean {asked['mean']:g}, shape "
            f"{asked['shape']:g}): "
            f"{self.best.folder} with {self.metric} {value:.4f}; selection {self.cost}"
        )


def _places(wrong: Iterable[bool]) -> str:
    return ", ".join(str(place) for place, is_so in enumerate(wrong) if is_so)


def selections(runs: Sequence[Run], metric: str | None) -> list[Selection]:
    """One for each such sweep among the folders above `runs`."""
    by_sweep: dict[Path, list[Run]] = {}
    for run in runs:
        if (run.folder.parent / DRAW).is_file():
            by_sweep.setdefault(run.folder.parent, []).append(run)
    found = []
    for folder, members in by_sweep.items():
        name = metric or members[0].metric
        sign = -1 if lower_is_better(name) else 1
        finite = [run for run in members if math.isfinite(run.final(name))]
        if finite:
            best = max(finite, key=lambda run: sign * run.final(name))
            found.append(Selection(folder, SweepDraw.read(folder), best, name))
    return found
