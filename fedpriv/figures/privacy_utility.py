"""Privacy and utility against the round, two panels (Uldp-FL, Figs 4 to 7), from run folders alone.

    fedpriv figure outputs/uldp_fl/fig4/<folder> [more folders] [--out figure.png]

Left: the main metric, mean and standard deviation over seeds. Right: epsilon on a log axis, what the paper claims
dashed, what is certified solid; a method without any guarantee has no line there and is named instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

from fedpriv.figures.runs import Run, find_runs, mean_and_std

ORDER = ("DEFAULT", "ULDP-NAIVE", "ULDP-GROUP", "ULDP-SGD", "ULDP-AVG")


matplotlib.use("Agg")  # figures go to files
import matplotlib.pyplot as plt  # noqa: E402


def main(words: list[str]) -> None:
    """Draw what the command line names."""
    parser = argparse.ArgumentParser(
        "fedpriv figure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--observer", default="released model")
    parser.add_argument("--method", default="pld", help="accounting method of the solid line")
    parser.add_argument("--title", default="")
    args = parser.parse_args(words)
    out = args.out or args.folders[0] / "privacy_utility.png"
    draw(find_runs(args.folders), out, args.observer, args.method, args.title)
    print(out)


def draw(runs: list[Run], out: Path, observer: str = "released model", method: str = "pld", title: str = "") -> None:
    """Both panels for all methods among `runs`, written to `out`."""
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    unbounded = []
    for number, label in enumerate(sorted(by_label, key=_rank)):
        group, color = by_label[label], f"C{number}"
        curve = mean_and_std([run.metrics for run in group], group[0].metric)
        left.plot(curve.index, curve["mean"], color=color, label=f"{label} ({len(group)} seeds)")
        left.fill_between(
            curve.index, curve["mean"] - curve["std"], curve["mean"] + curve["std"], color=color, alpha=0.2, lw=0
        )
        if not _epsilon_lines(right, group, observer, method, label, color):
            unbounded.append(label)
    left.set(xlabel="round", ylabel=runs[0].metric.replace("_", " "), title=title or "utility on the test split")
    left.legend(fontsize=8)
    left.grid(alpha=0.3)
    right.set(xlabel="round", ylabel="epsilon", yscale="log")
    right.set_title(f"{observer}, delta = {runs[0].delta:g}: claimed dashed, certified solid", fontsize=10)
    if right.lines:
        right.legend(fontsize=8)
    if unbounded:
        right.text(0.02, 0.02, f"nothing certified: {', '.join(unbounded)}", transform=right.transAxes, fontsize=8)
    right.grid(alpha=0.3, which="both")
    if not all(run.dp_valid for run in runs):
        figure.supxlabel(
            "simulation: noise is seeded, the epsilons are those of the same run with real noise", fontsize=7
        )
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _epsilon_lines(axis: plt.Axes, group: list[Run], observer: str, method: str, label: str, color: str) -> bool:
    """Draw the certified and claimed epsilon of one method; False when nothing finite is certified."""
    tables = []
    for run in group:
        seen = run.epsilon[run.epsilon["observer"] == observer]
        chosen = seen[seen["method"] == method]
        tables.append(chosen if len(chosen) else seen[seen["method"] == seen["method"].iloc[0]])
    certified = mean_and_std(tables, "certified")["mean"]
    finite = bool(len(certified)) and bool(np.isfinite(certified).all())
    if finite:
        axis.plot(certified.index, certified, color=color, label=f"{label}, certified")
    if all(table["claimed"].notna().all() for table in tables):
        claimed = mean_and_std(tables, "claimed")["mean"]
        axis.plot(claimed.index, claimed, "--", color=color, label=f"{label}, claimed", lw=1.2)
    return finite


def _rank(label: str) -> tuple[int, str]:
    """Known families in the papers' order, then everything else by name."""
    family = next((index for index, name in enumerate(ORDER) if label.startswith(name)), len(ORDER))
    return family, label
