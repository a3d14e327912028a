"""Privacy and utility against the round, two panels (Uldp-FL, Figs 4 to 7), from run folders alone.

    fedpriv figure outputs/uldp_fl/fig4/<folder> [more folders] [--out figure.png]

Left: the main metric, mean and standard deviation over seeds. Right: epsilon on a log axis, what the paper claims
dashed, what is certified solid; a method without any guarantee has no line there and is named instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.figures.canvas import Axes, Line2D, plt
from fedpriv.figures.runs import Run, find_runs, mean_and_std, user_epsilons

BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "fontsize": 7.5}
ORDER = ("DEFAULT", "ULDP-NAIVE", "ULDP-GROUP", "ULDP-SGD", "ULDP-AVG")


def main(words: list[str]) -> None:
    """Draw what the command line names."""
    parser = argparse.ArgumentParser(
        "fedpriv figure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--observer", default=RELEASED_MODEL)
    parser.add_argument("--method", default="pld", help="accounting method of the solid line")
    parser.add_argument("--title", default="")
    args = parser.parse_args(words)
    out = args.out or args.folders[0] / "privacy_utility.png"
    draw(find_runs(args.folders), out, observer=args.observer, method=args.method, title=args.title)
    print(out)


def draw(runs: list[Run], out: Path, *, observer: str = RELEASED_MODEL, method: str = "pld", title: str = "") -> None:
    """Both panels for all methods among `runs`, written to `out`."""
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    labels = sorted(by_label, key=_rank)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 6), layout="constrained")
    for number, label in enumerate(labels):
        group, color = by_label[label], f"C{number}"
        curve = mean_and_std([run.metrics for run in group], group[0].metric)
        left.plot(curve.index, curve["mean"], color=color, label=f"{label} ({len(group)} seeds)")
        low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        left.fill_between(curve.index, low, high, color=color, alpha=0.2, lw=0)
    left.set(xlabel="round", ylabel=runs[0].metric.replace("_", " "), title=title or "utility on the test split")
    left.legend(ncol=2, **BELOW)
    left.grid(alpha=0.3)
    _epsilon_panel(right, {label: by_label[label] for label in labels}, observer=observer, method=method)
    if any(run.randomness == "simulation" for run in runs):
        figure.supxlabel(
            "simulation: noise is seeded, the epsilons are those of the same run with real noise", fontsize=7
        )
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _epsilon_panel(axis: Axes, by_label: dict[str, list[Run]], *, observer: str, method: str) -> None:
    """Claimed and certified epsilon of each method; methods with the same curve share one line."""
    curves: dict[tuple[str, bytes], tuple[list[str], pd.Series, str]] = {}
    nothing = []
    for number, (label, group) in enumerate(by_label.items()):
        tables = [user_epsilons(run.epsilon, observer, method) for run in group]
        for kind in ("certified", "claimed"):
            mean = pd.concat([table.set_index("round")[kind] for table in tables], axis=1).mean(axis=1, skipna=False)
            if len(mean) and np.isfinite(mean).all():
                curves.setdefault((kind, mean.to_numpy().round(9).tobytes()), ([], mean, f"C{number}"))[0].append(label)
            elif kind == "certified":
                nothing.append(label)
    for (kind, _), (labels, mean, color) in curves.items():
        style = {"certified": "-", "claimed": "--"}[kind]
        axis.plot(mean.index, mean, style, color=color, label=f"{kind}: {', '.join(labels)}")
    run = next(iter(by_label.values()))[0]
    axis.set(xlabel="round", ylabel="epsilon", yscale="log")
    axis.set_title(f"{observer}, delta = {run.delta:g}: claimed dashed, certified solid", fontsize=10)
    handles, names = axis.get_legend_handles_labels()
    if nothing:
        handles.append(Line2D([], [], lw=0))
        names.append(f"nothing certified: {', '.join(nothing)}")
    axis.legend(handles, names, **BELOW)
    axis.grid(alpha=0.3, which="both")


def _rank(label: str) -> tuple[int, str]:
    """Known families in the papers' order, then everything else by name."""
    family = next((index for index, name in enumerate(ORDER) if label.startswith(name)), len(ORDER))
    return family, label
