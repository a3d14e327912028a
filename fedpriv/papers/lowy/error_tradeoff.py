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

from fedpriv.papers.experiments import run_experiment
from fedpriv.papers.lowy.method_choice import (
    COLUMNS,
    GAIN_COLUMNS,
    LOCAL,
    MINIBATCH,
    SPIDER,
    Choice,
    choose,
    compare_with_spider,
)
from fedpriv.reports.canvas import Axes, grid_and_legend, plain_ticks, plt, save
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.number_table import write_table

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


def figure(name: str, sweeps: Mapping[str, Sweeps], title: Title) -> Callable[[Path, str], None]:
    """A function that runs the sweeps of an experiment below a folder, and draws them."""

    def make(folder: Path, profile: str) -> None:
        for place, words in sweeps[profile].items():
            if not (folder / place).exists():
                words = ("hydra/launcher=side_by_side", *words)
                # A run that diverges fails, and its settings are not chosen.
                run_experiment(name, folder / place, profile, *words, allow_failed_runs=True)
        draw(folder, title=title)

    return make


def draw(folder: Path, *, title: Title) -> None:
    """Write choices.csv, gains.csv and figure.png from the runs below a folder."""
    runs = find_runs([folder])
    choices = choose(runs)
    write_table(folder / "choices.csv", COLUMNS, (vars(choice).values() for choice in choices))
    gains = compare_with_spider(choices)
    write_table(folder / "gains.csv", GAIN_COLUMNS, (gain.cells() for gain in gains))
    counts = sorted({run.records for run in runs if run.records is not None})
    records = f"{counts[-1]:,} training records" if counts else ""
    named = ", ".join(filter(None, (title(runs[0].config["data"]["root"]), records)))
    draw_choices(choices, folder / "figure.png", title=named)


def draw_choices(choices: list[Choice], out: Path, *, title: str) -> None:
    """Draw test errors for each calibration, and the certified epsilon of the paper's noise."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes[1].sharey(axes[0])
    for axis, (calibration, name) in zip(axes, CALIBRATIONS.items()):
        for method, look in LOOKS.items():
            own = [c for c in choices if c.method == method]
            here = [c for c in own if c.calibration == calibration]
            if here:
                x, means, stds = zip(*((c.epsilon, c.error, c.deviation) for c in here))
                axis.errorbar(x, means, stds, capsize=3, ms=4, label=method, **look)
            for free in (c for c in own if c.calibration == "given"):
                label = f"{method}, not private"
                axis.axhline(free.error, color=look["color"], ls=":", lw=1.2, label=label)
        axis.set(title=name, xlabel=f"epsilon of the server, {AXIS_WORDS[calibration]}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test error")
    axes[0].legend(fontsize=8)
    _draw_certified(axes[2], [c for c in choices if c.calibration == "paper"])
    for axis in axes:
        axis.set_xscale("log")
        plain_ticks(axis, sorted({c.epsilon for c in choices if c.calibration != "given"}))
    figure.supxlabel(_footnote(choices), fontsize=7)
    save(figure, out)


def _draw_certified(axis: Axes, choices: list[Choice]) -> None:
    """Certified against claimed epsilon, for the paper's noise."""
    for method, look in LOOKS.items():
        here = [(c.epsilon, c.certified) for c in choices if c.method == method]
        if here:
            axis.plot(*zip(*here), label=method, ms=4, **look)
    claimed = sorted({c.epsilon for c in choices})
    axis.plot(claimed, claimed, color="0.5", ls=":", label="as claimed")
    axis.set(
        title="the paper's noise: certified", xlabel="epsilon of the server, claimed", yscale="log"
    )
    axis.set_ylabel("certified")
    grid_and_legend(axis, 8)


def _footnote(choices: list[Choice]) -> str:
    splits = sorted({choice.splits for choice in choices})
    number = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
    of = "one split" if splits == [1] else f"mean and deviation over {number} splits"
    return (
        f"{of}, delta = {choices[0].delta:.3g}, unit record, adjacency replace; "
        "step size, clip and variant chosen by the training loss, which no epsilon covers"
    )
