"""What Huang's noise costs and buys: accuracy and certified epsilon against the epsilon that the
noise is made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.reports.canvas import plt
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.summary import deviation

CALIBRATIONS = {"paper": ("equation (2)", "C3"), "certified": ("noise by the certificate", "C0")}
AFTER = {
    False: ("silos left out keep their models", "-", "o"),
    True: ("everybody goes on from the average", "--", "s"),
}


def draw(runs: list[Run], out: Path) -> None:
    """Two panels from the runs of huang/claims, written to `out`; epsilons are those of the
    server.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.8), layout="constrained")
    targets = sorted({run.config["algo"]["epsilon"] for run in runs})
    for calibration, (name, color) in CALIBRATIONS.items():
        for everybody, (after, style, marker) in AFTER.items():
            here = [run for run in runs if _is(run, calibration, everybody)]
            groups = [
                [run for run in here if run.config["algo"]["epsilon"] == target]
                for target in targets
            ]
            accuracy = [[run.metrics[run.metric].iloc[-1] for run in group] for group in groups]
            certified = [max(run.final_epsilons("server")[0] for run in group) for group in groups]
            look: dict[str, Any] = {
                "color": color,
                "ls": style,
                "marker": marker,
                "ms": 4,
                "label": f"{name}, {after}",
            }
            left.errorbar(
                targets,
                np.mean(accuracy, axis=1),
                [deviation(each) for each in accuracy],
                capsize=3,
                **look,
            )
            right.plot(targets, certified, **look)
    right.plot(targets, targets, color="0.5", ls=":", label="that epsilon, equation (2)'s claim")
    rounds = int(runs[0].metrics["round"].iloc[-1])
    left.set(
        xscale="log",
        xlabel="epsilon that the noise is made for",
        ylabel=f"test accuracy after {rounds} rounds",
    )
    right.set(xscale="log", yscale="log", xlabel="epsilon that the noise is made for")
    right.set_ylabel(f"certified epsilon of the server, delta = {runs[0].delta:g}")
    for axis in (left, right):
        axis.set_xticks(targets, [f"{target:g}" for target in targets])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.legend(
        *right.get_legend_handles_labels(), loc="outside lower center", ncol=2, fontsize=8.5
    )
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _is(run: Run, calibration: str, broadcast_all: bool) -> bool:
    algo = run.config["algo"]
    return bool(algo["calibration"] == calibration and algo["broadcast_all"] == broadcast_all)
