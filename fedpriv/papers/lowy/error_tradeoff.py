"""Figures of Lowy, Ghafelebashi, Razaviyayn (Private non-convex FL without a trusted server): error
against epsilon.

A figure is several sweeps of one experiment, one for each method. Step sizes, clips and variants
are chosen by the training loss, as in the paper; no epsilon covers this tuning. With the paper's
noise, the x axis is the epsilon that the paper claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedpriv.papers.experiments import run_experiment
from fedpriv.papers.lowy.method_choice import LOCAL, MINIBATCH, SPIDER, choose
from fedpriv.reports.canvas import Figure, grid_and_legend, plain_ticks, plt, save
from fedpriv.reports.finished_runs import find_runs

NOT_PRIVATE = ("algo.calibration=given", "algo.epsilon=10")
"""The epsilon of the file, which takes the experiment's sweep away: given noise has no target."""
CALIBRATIONS = {"paper": "the paper's noise", "certified": "noise by the certificate"}
AXIS_WORDS = {"paper": "claimed", "certified": "certified"}
LOOKS: dict[str, dict[str, Any]] = {
    SPIDER: {"color": "C0", "marker": "o"},
    MINIBATCH: {"color": "C1", "marker": "s"},
    LOCAL: {"color": "C2", "marker": "^"},
}
Sweeps = dict[str, tuple[str, ...]]
"""The overrides of each sweep, by the name of its folder."""
Title = Callable[[str | None], str]
"""A title of the records below data.root, which is its argument."""


def method_sweeps(local_steps: Mapping[str, int], phases: Mapping[str, str]) -> dict[str, Sweeps]:
    """The sweeps of all methods, by profile.

    local_steps: K of Local SGD by profile; each step uses one record.
    phases: values of SPIDER's q by profile.
    """
    return {
        profile: {
            "minibatch_sgd": (),
            "spider": ("algo=spider", f"algo.phase={phases[profile]}"),
            "spider_alternate": ("algo=spider", "algo.variant=alternate"),
            "local_sgd": ("algo=local_sgd", f"algo.local_steps={steps}"),
            "minibatch_sgd_not_private": NOT_PRIVATE,
            "local_sgd_not_private": ("algo=local_sgd", f"algo.local_steps={steps}", *NOT_PRIVATE),
        }
        for profile, steps in local_steps.items()
    }


def figure(
    folder: Path, profile: str, *, name: str, sweeps: Mapping[str, Sweeps], title: Title
) -> None:
    """Run the sweeps of an experiment below a folder, and draw them."""
    for place, words in sweeps[profile].items():
        if not (folder / place).exists():
            words = ("hydra/launcher=side_by_side", *words)
            # A run that diverges fails, and its settings are not chosen.
            run_experiment(name, folder / place, profile, *words, allow_failed_runs=True)
    draw(folder, title=title)


def draw(folder: Path, *, title: Title) -> Figure:
    """Write choices.csv and figure.png from the runs below a folder."""
    runs = find_runs([folder])
    choices = choose(runs)
    choices.to_csv(folder / "choices.csv", index=False)
    counts = sorted({run.status.records for run in runs})
    records = f"{counts[-1]:,} training records" if counts else ""
    named = ", ".join(filter(None, (title(runs[0].config["data"]["root"]), records)))
    return draw_choices(choices, folder / "figure.png", title=named)


def draw_choices(choices: pd.DataFrame, out: Path, *, title: str) -> Figure:
    """Draw test errors for each calibration, and the certified epsilon of the paper's noise."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes[1].sharey(axes[0])
    by_noise = {
        (calibration, method): choices.query("calibration == @calibration and method == @method")
        for calibration in (*CALIBRATIONS, "given")
        for method in LOOKS
    }
    for axis, (calibration, name) in zip(axes, CALIBRATIONS.items()):
        for method, look in LOOKS.items():
            here = by_noise[calibration, method]
            if len(here):
                points = here["epsilon"], here["error"], here["deviation"]
                axis.errorbar(*points, capsize=3, ms=4, label=method, **look)
            for error in by_noise["given", method]["error"]:
                label = f"{method}, not private"
                axis.axhline(error, color=look["color"], ls=":", lw=1.2, label=label)
        axis.set(title=name, xlabel=f"epsilon of the server, {AXIS_WORDS[calibration]}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test error")
    axes[0].legend(fontsize=8)
    certified = axes[2]
    for method, look in LOOKS.items():
        here = by_noise["paper", method]
        if len(here):
            certified.plot(here["epsilon"], here["certified"], label=method, ms=4, **look)
    claimed = sorted({*choices[choices["calibration"] == "paper"]["epsilon"]})
    certified.plot(claimed, claimed, color="0.5", ls=":", label="as claimed")
    certified.set(
        title="the paper's noise: certified",
        xlabel="epsilon of the server, claimed",
        ylabel="certified",
        yscale="log",
    )
    grid_and_legend(certified, 8)
    for axis in axes:
        axis.set_xscale("log")
        plain_ticks(axis, sorted({*choices[choices["calibration"] != "given"]["epsilon"]}))
    figure.supxlabel(_footnote(choices), fontsize=7)
    save(figure, out)
    return figure


def _footnote(choices: pd.DataFrame) -> str:
    ends = " to ".join(dict.fromkeys(f"{end}" for end in choices["splits"].agg(["min", "max"])))
    of = "one split" if ends == "1" else f"mean and deviation over {ends} splits"
    return (
        f"{of}, delta = {choices['delta'].iloc[0]:.3g}, unit record, adjacency replace; "
        "step size, clip and variant chosen by the training loss, which no epsilon covers"
    )
