"""Uldp-FL's epsilon against the round, from the settings of its entries alone: nothing is trained.

The lines are those of the entry's first place; the epsilon is the same at all of them.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedpriv.papers.ledger.entries import Replication, by_key
from fedpriv.reports.canvas import MARKERS, grid_and_legend, plt, save
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment
from fedpriv.settings.experiment import Experiment

TITLES = {"curve": "as in the paper", "conclusion": "equal certificates"}
LINES = {"certified": "-", "claimed": "--"}
POINTS = 10


def draw(run: Replication, out: Path) -> None:
    """Draw a panel for each question that is asked into a file."""
    figure, axes = plt.subplots(
        1, len(run.cases), figsize=(6.9, 2.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, question in zip(axes[0], run.cases):
        methods: dict[tuple[str, tuple[float, ...]], list[str]] = {}
        for method in run.methods:
            table = by_round(experiment(run, question, method))
            for name in LINES:
                methods.setdefault((name, tuple(table[name])), []).append(method)
        for marker, ((name, values), alike) in zip(MARKERS, methods.items()):
            label = f"{name}: {', '.join(alike)}"
            axis.plot(table.index, values, LINES[name], marker=marker, ms=3, lw=1.2, label=label)
        axis.set_title(TITLES[question], fontsize=8)
        axis.set_xlabel("round", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.margins(y=0.3)
        grid_and_legend(axis, 6, loc="upper left")
    axes[0, 0].set_ylabel("epsilon of the released model", fontsize=8)
    save(figure, out, dpi=200)


def experiment(run: Replication, question: str, method: str) -> Experiment:
    """A method's own settings at the first place."""
    words = [f"experiment={run.experiment}", *run.words, *run.cases[question].words]
    words += run.alternatives(question, method)[0]
    words += [word.partition(",")[0] for word in run.places]
    return one_experiment(*by_key([*words, f"seed={run.seeds[0]}"]).values())


def by_round(exp: Experiment) -> pd.DataFrame:
    """The smallest certificate, and the largest claim, after some rounds."""
    rounds = exp.options.rounds
    shown = range(rounds // POINTS, rounds + 1, rounds // POINTS)
    table = pd.DataFrame(map(vars, EpsilonForecast.of(exp).rows_at(list(shown))))
    own = table[table["observer"] == exp.algo.headline_observer].groupby("round")
    return own.agg({"certified": "min", "claimed": "max"})
