"""Theorem 4 of Huang's paper beside the measured excess risk, against K and against E.

Every point is the experiment huang/excess_risk with one setting changed. The number of steps T is
the same everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from fedpriv.errors import FedprivError
from fedpriv.papers.experiments import run_experiment
from fedpriv.papers.huang.theory import theorem4
from fedpriv.papers.objective import Objective
from fedpriv.reports.canvas import Figure, plain_ticks, plt, save
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.summary import standard_deviation
from fedpriv.rounds.state import State
from fedpriv.runs.folder import RunFolder

if TYPE_CHECKING:
    from fedpriv.algorithms.dp_erm import DpErm
    from fedpriv.papers.objective import Optimum

STEPS = {"quick": 60, "paper": 1000}
"""T, by profile."""
LOCAL_STEPS = (1, 2, 5, 10, 20)
SUMMED = {"quick": (12, 14, 16, 20), "paper": (11, 12, 14, 16, 20)}
SILOS = 20
USUAL = {"K": 5, "E": 12}
LABELS = {
    "K": "K, local steps between two averages",
    "E": f"E, silos in an average (of {SILOS})",
}
CURVES: dict[str, tuple[str, dict[str, Any]]] = {
    "printed": ("Theorem 4, as printed", {"color": "C1", "lw": 6, "alpha": 0.35}),
    "noisy drift": (
        "its proof's end, with noise in the drift",
        {"color": "k", "ls": ":", "marker": "x", "ms": 5},
    ),
    "bound": ("its proof's end", {"color": "C3", "ls": "--", "marker": "."}),
    "certified": ("measured, noise by the certificate", {"color": "C0", "marker": "."}),
    "given": ("measured, no noise", {"color": "C2", "marker": "."}),
}
"""Legend and look of each curve. The bounds nearly coincide. Measured curves have the name of their
calibration."""


def draw(folder: Path, profile: str = "quick") -> Figure:
    """Run every setting below a folder; write excess_risk.csv and figure.png there."""
    optima: dict[int, Optimum] = {}
    rows = []
    values = {"K": LOCAL_STEPS, "E": SUMMED[profile]}
    for varied, value in [(name, value) for name in values for value in values[name]]:
        setting = {**USUAL, varied: value}
        place = folder / f"K{setting['K']}_E{setting['E']}"
        if not place.exists():
            words = overrides(profile, local_steps=setting["K"], n_summed=setting["E"])
            run_experiment("huang/excess_risk", place, profile, *words)
        about = {"varied": varied, "value": value}
        rows += [about | curve for curve in measure(find_runs([place]), optima)]
    table = pd.DataFrame(rows)
    table.to_csv(folder / "excess_risk.csv", index=False)
    return draw_points(table, folder / "figure.png", STEPS[profile])


def overrides(profile: str, *, local_steps: int, n_summed: int) -> list[str]:
    """The overrides of a point: as many steps as at every other one."""
    rounds = [f"rounds={STEPS[profile] // local_steps}", f"algo.local_steps={local_steps}"]
    if n_summed == SILOS:
        # The same sum without the protocol against dropouts, which is slow for so many silos.
        return [*rounds, "aggregation=masked", "~aggregation.cohort", "~aggregation.candidates"]
    cohort = f"aggregation.cohort={n_summed}"
    return [*rounds, cohort, f"aggregation.candidates={min(SILOS, 7 * n_summed // 5)}"]


def measure(runs: list[Run], optima: dict[int, Optimum]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds of excess risks and bounds: a row for each curve.

    optima: by seed, for runs that differ in nothing that moves the optimum; filled here.

    Excess risks have the name of their calibration; bounds are those of certified noise. Raises
    FedprivError for a run without a checkpoint.
    """
    from fedpriv.runtime import prepare

    found: dict[str, list[float]] = {}
    for run in runs:
        exp = run.experiment()
        checkpoint = RunFolder(run.folder).load_checkpoint()
        if checkpoint is None:
            raise FedprivError(f"{run.folder}: holds no checkpoint")
        algo = cast("DpErm", exp.algo)
        with prepare(exp) as prepared:
            objective = Objective(
                prepared.silo_data, prepared.model, exp.data.task, algo.strong_convexity
            )
            start = prepared.state.params
            plan = prepared.plan
        if run.seed not in optima:
            optima[run.seed] = objective.optimum(start)
        optimum = optima[run.seed]
        risk = objective.value(State.from_arrays(checkpoint.arrays).params)
        found.setdefault(algo.calibration, []).append(risk - optimum.value)
        if algo.calibration == "certified":
            theorem = theorem4(algo, plan, start=start, optimum=optimum)
            found.setdefault("bound", []).append(theorem.bound)
            found.setdefault("printed", []).append(theorem.printed)
            found.setdefault("noisy drift", []).append(theorem.with_noisy_drift().bound)
    return [
        {"curve": name, "mean": np.mean(values), "std": standard_deviation(values)}
        for name, values in found.items()
    ]


def draw_points(table: pd.DataFrame, path: Path, steps: int) -> Figure:
    """Draw a panel for K and one for E."""
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.6), sharey=True, layout="constrained")
    for axis, (varied, label) in zip(axes, LABELS.items()):
        here = table[table["varied"] == varied].set_index("curve")
        for name, (legend, look) in CURVES.items():
            x, means, stds = (here.loc[[name], key] for key in ("value", "mean", "std"))
            axis.plot(x, means, label=legend, **look)
            low = np.maximum(means - stds, means / 10)
            axis.fill_between(x, low, means + stds, color=look["color"], alpha=0.15, lw=0)
        axis.set(xlabel=label, xscale="log", yscale="log")
        plain_ticks(axis, sorted({*here["value"]}))
        axis.grid(alpha=0.3)
    axes[0].set(ylabel=f"excess risk after T = {steps} steps", title=f"E = {USUAL['E']}")
    axes[1].set(title=f"K = {USUAL['K']}")
    legend = axes[0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncol=3, fontsize=8.5)
    save(figure, path)
    return figure
