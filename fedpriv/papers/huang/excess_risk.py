"""Theorem 4 of Huang's paper beside the excess risk that is measured, against K and against E.

Every point is the experiment huang/excess_risk with one setting changed, at the same number of
steps T.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedpriv.errors import FedprivError
from fedpriv.papers.child_process import run_command
from fedpriv.papers.quick_profiles import profile_words
from fedpriv.reports.canvas import plt
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import deviation
from fedpriv.rounds.state import State
from fedpriv.runs.folder import RunFolder

if TYPE_CHECKING:
    from fedpriv.algorithms.dp_erm import DpErm
    from fedpriv.papers.objective import Optimum

STEPS = {"quick": 60, "paper": 1000}
"""T of a profile."""
LOCAL_STEPS = (1, 2, 5, 10, 20)
SUMMED = {"quick": (5, 10, 20, 100), "paper": (5, 10, 25, 50, 100)}
SILOS = 100
USUAL = {"K": 5, "E": 10}
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
"""Legend and look of each curve; the bounds nearly coincide, and those measured are named by their
calibration."""
COLUMNS = ("varied", "value", "curve", "mean", "std")


@dataclass(frozen=True)
class Point:
    """One setting and the mean and standard deviation over seeds of each curve there."""

    varied: str
    value: int
    curves: dict[str, tuple[float, float]]


def draw(folder: Path, profile: str = "quick") -> bool:
    """Run everything below `folder`, write excess_risk.csv and figure.png there; False when a run
    failed."""
    points: list[Point] = []
    optima: dict[int, Optimum] = {}
    for varied, values in (("K", LOCAL_STEPS), ("E", SUMMED[profile])):
        for value in values:
            setting = {**USUAL, varied: value}
            place = folder / f"K{setting['K']}_E{setting['E']}"
            if not place.exists() and not _run(
                place, profile, local_steps=setting["K"], n_summed=setting["E"]
            ):
                return False
            points.append(Point(varied, value, measure(find_runs([place]), optima)))
    write(points, folder / "excess_risk.csv")
    picture(points, folder / "figure.png", STEPS[profile])
    return True


def _run(folder: Path, profile: str, *, local_steps: int, n_summed: int) -> bool:
    words = ["experiment=huang/excess_risk", f"hydra.sweep.dir={folder}"]
    words += profile_words("huang/excess_risk", profile)
    words += [f"rounds={STEPS[profile] // local_steps}", f"algo.local_steps={local_steps}"]
    if (
        n_summed == SILOS
    ):  # the same sum without the protocol against dropouts, which takes a while among so many
        words += ["aggregation=masked", "~aggregation.cohort", "~aggregation.candidates"]
    else:
        words += [f"aggregation.cohort={n_summed}", f"aggregation.candidates={7 * n_summed // 5}"]
    return run_command(*words) == 0


def measure(runs: list[Run], optima: dict[int, Optimum]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over seeds of the excess risk by calibration, and of the bounds
    with certified noise.

    optima: by seed, for runs that differ in nothing that moves the optimum; filled here. Raises
    FedprivError for a run without a checkpoint.
    """
    from omegaconf import OmegaConf

    from fedpriv.papers.huang.theory import theorem4
    from fedpriv.papers.objective import Objective
    from fedpriv.runtime import prepare
    from fedpriv.settings.experiment import build

    found: dict[str, list[float]] = {}
    for run in runs:
        exp = build(OmegaConf.create(run.config))
        seed = run.config["seed"]
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
        if seed not in optima:
            optima[seed] = objective.optimum(start)
        risk = objective.value(State.from_arrays(checkpoint.arrays).params)
        found.setdefault(algo.calibration, []).append(risk - optima[seed].value)
        if algo.calibration == "certified":
            theorem = theorem4(algo, plan, start=start, optimum=optima[seed])
            bounds = (theorem.bound, theorem.printed, theorem.with_noisy_drift().bound)
            for name, bound in zip(("bound", "printed", "noisy drift"), bounds):
                found.setdefault(name, []).append(bound)
    return {name: (float(np.mean(values)), deviation(values)) for name, values in found.items()}


def write(points: list[Point], path: Path) -> None:
    """One row a point and curve."""
    rows = ([p.varied, p.value, name, *curve] for p in points for name, curve in p.curves.items())
    write_table(path, COLUMNS, rows)


def picture(points: list[Point], path: Path, steps: int) -> None:
    """A panel for K and one for E."""
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.6), sharey=True, layout="constrained")
    labels = {
        "K": "K, local steps between two averages",
        "E": f"E, silos in an average (of {SILOS})",
    }
    for axis, (varied, label) in zip(axes, labels.items()):
        here = [point for point in points if point.varied == varied]
        ticks = [point.value for point in here]
        for name, (legend, look) in CURVES.items():
            means, stds = np.array([point.curves[name] for point in here]).T
            axis.plot(ticks, means, label=legend, **look)
            axis.fill_between(
                ticks,
                np.maximum(means - stds, means / 10),
                means + stds,
                color=look["color"],
                alpha=0.15,
                lw=0,
            )
        axis.set(xlabel=label, xscale="log", yscale="log")
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set(ylabel=f"excess risk after T = {steps} steps", title=f"E = {USUAL['E']}")
    axes[1].set(title=f"K = {USUAL['K']}")
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside lower center", ncol=3, fontsize=8.5
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
