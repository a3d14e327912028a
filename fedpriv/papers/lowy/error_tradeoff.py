"""Figures of Lowy, Ghafelebashi, Razaviyayn (Private non-convex FL without a trusted server): error
against epsilon.

A figure is several sweeps of one experiment, one a method, whose step sizes, clips and variants are
chosen by the training loss, as in the paper: tuning that no epsilon covers. With the paper's noise
the epsilon is what it claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.papers.child_process import run_command
from fedpriv.papers.lowy import method_choice
from fedpriv.papers.lowy.method_choice import COLUMNS, LOCAL, MINIBATCH, SPIDER, Choice
from fedpriv.papers.quick_profiles import profile_words
from fedpriv.reports.canvas import Axes, plt
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.number_table import write_table

NOT_PRIVATE = ("algo.calibration=given", "algo.epsilon=1")  # epsilon is not used
CALIBRATIONS = {"paper": "the paper's noise", "certified": "noise by the certificate"}
LOOKS: dict[str, dict[str, Any]] = {
    SPIDER: {"color": "C0", "marker": "o"},
    MINIBATCH: {"color": "C1", "marker": "s"},
    LOCAL: {"color": "C2", "marker": "^"},
}


@dataclass(frozen=True)
class Setting:
    """What an experiment's sweeps need beyond its file.

    title: of the records below data.root, which is what it is called with.
    local_steps: K of Local SGD, one step a record.
    phases: q of SPIDER. Numbers are by profile.
    """

    title: Callable[[str | None], str]
    local_steps: dict[str, int]
    phases: dict[str, str]

    def sweeps(self, profile: str) -> dict[str, tuple[str, ...]]:
        """The words of each sweep, by the name of its folder."""
        local = ("algo=local_sgd", f"algo.local_steps={self.local_steps[profile]}")
        return {
            "minibatch_sgd": (),
            "spider": ("algo=spider", f"algo.phase={self.phases[profile]}"),
            "spider_alternate": ("algo=spider", "algo.variant=alternate"),
            "local_sgd": local,
            "minibatch_sgd_not_private": NOT_PRIVATE,
            "local_sgd_not_private": (*local, *NOT_PRIVATE),
        }


def experiment(name: str, setting: Setting) -> Callable[[Path, str], bool]:
    """Runs the sweeps of an experiment below a folder, and draws them."""

    def make(folder: Path, profile: str) -> bool:
        usual = [f"experiment={name}", "hydra/launcher=side_by_side", *profile_words(name, profile)]
        for place, words in setting.sweeps(profile).items():
            if (folder / place).exists():
                continue
            by_key = {
                word.partition("=")[0]: word
                for word in (*usual, f"hydra.sweep.dir={folder / place}", *words)
            }
            # A run that diverges fails, and its settings are not chosen.
            run_command(*by_key.values())
        draw(folder, title=setting.title)
        return True

    return make


def draw(folder: Path, *, title: Callable[[str | None], str]) -> None:
    """Write choices.csv, gains.csv and figure.png from the runs below `folder`.

    title: see `Setting`.
    """
    runs = find_runs([folder])
    choices = method_choice.choose(runs)
    write_table(folder / "choices.csv", COLUMNS, (choice.row() for choice in choices))
    gains = method_choice.gains(choices)
    write_table(folder / "gains.csv", method_choice.GAINS, (gain.row() for gain in gains))
    counts = sorted({run.records for run in runs if run.records is not None})
    records = f"{counts[-1]:,} training records" if counts else ""
    named = ", ".join(filter(None, (title(runs[0].config["data"]["root"]), records)))
    picture(choices, folder / "figure.png", title=named)


def picture(choices: list[Choice], out: Path, *, title: str) -> None:
    """A panel of test errors for each calibration, and what the paper's noise is certified to
    keep.
    """
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes[1].sharey(axes[0])
    for axis, (calibration, name) in zip(axes, CALIBRATIONS.items()):
        for method, look in LOOKS.items():
            here = [c for c in choices if c.method == method and c.calibration == calibration]
            means = [c.error for c in here]
            stds = [c.deviation for c in here]
            if here:
                axis.errorbar(
                    [c.epsilon for c in here], means, stds, capsize=3, ms=4, label=method, **look
                )
            for free in (c for c in choices if c.method == method and c.calibration == "given"):
                axis.axhline(
                    free.error, color=look["color"], ls=":", lw=1.2, label=f"{method}, not private"
                )
        said = "claimed" if calibration == "paper" else "certified"
        axis.set(title=name, xlabel=f"epsilon of the server, {said}")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test error")
    axes[0].legend(fontsize=8)
    _certified(axes[2], choices)
    _ticks(axes, sorted({c.epsilon for c in choices if c.calibration != "given"}))
    figure.supxlabel(_small_print(choices), fontsize=7)
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _certified(axis: Axes, choices: list[Choice]) -> None:
    for method, look in LOOKS.items():
        here = [c for c in choices if c.method == method and c.calibration == "paper"]
        if here:
            axis.plot(
                [c.epsilon for c in here], [c.certified for c in here], label=method, ms=4, **look
            )
    claimed = sorted({c.epsilon for c in choices if c.calibration == "paper"})
    axis.plot(claimed, claimed, color="0.5", ls=":", label="as claimed")
    axis.set(
        title="the paper's noise: certified", xlabel="epsilon of the server, claimed", yscale="log"
    )
    axis.set_ylabel("certified")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _ticks(axes: Any, epsilons: list[float]) -> None:
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.minorticks_off()


def _small_print(choices: list[Choice]) -> str:
    splits = sorted({choice.splits for choice in choices})
    number = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
    of = "one split" if splits == [1] else f"mean and deviation over {number} splits"
    return (
        f"{of}, delta = {choices[0].delta:.3g}, unit record, adjacency replace; "
        "step size, clip and variant chosen by the training loss, which no epsilon covers"
    )
