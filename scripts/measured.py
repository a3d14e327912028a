"""Measure Lowy et al.'s methods: `python -m scripts.measured 12=FOLDER 25=FOLDER` writes the table.

The folders hold the runs of lowy/fig5 (12 silos a round) and lowy/fig4 (25), at any depth. The
table is results/lowy_mnist.csv. The script also prints the text for docs/papers/lowy.md and
docs/rates.md; tests compare it.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.papers.lowy.method_choice import LOCAL, MINIBATCH, SPIDER, choose
from fedpriv.reports.finished_runs import find_runs

TABLE = Path(__file__).parents[1] / "results" / "lowy_mnist.csv"
NOISES = {"certified": "the certificate", "paper": "the paper"}
SHOWN = (SPIDER, MINIBATCH, LOCAL)


def main(words: list[str]) -> None:
    """Write the table of the words `silos=folder`."""
    folders = {int(silos): Path(folder) for silos, folder in (word.split("=", 1) for word in words)}
    chosen = {silos: choose(find_runs([folder])) for silos, folder in folders.items()}
    TABLE.parent.mkdir(exist_ok=True)
    pd.concat(chosen, names=["silos"]).droplevel(1).reset_index().to_csv(TABLE, index=False)
    print(page(read()), rates(read()), sep="\n\n")


def read(path: Path = TABLE) -> pd.DataFrame:
    """The choices in the table; column `silos` has the number of silos in a round."""
    return pd.read_csv(path, float_precision="round_trip")


def page(measured: pd.DataFrame) -> str:
    """Errors in per cent, a row for each number of silos, noise and method."""
    private = measured[measured["calibration"].isin(NOISES)]
    epsilons = sorted(private["epsilon"].unique())
    lines = [
        "| silos a round | noise by | method | "
        + " | ".join(f"{epsilon:g}" for epsilon in epsilons)
        + " |",
        "| --- " * (3 + len(epsilons)) + "|",
    ]
    for silos, choices in private.groupby("silos"):
        for calibration, method in product(NOISES, SHOWN):
            here = choices[(choices["calibration"] == calibration) & (choices["method"] == method)]
            if len(here):
                means = zip(here["error"], here["deviation"])
                cells = {
                    epsilon: f"{100 * mean:.1f} ± {100 * spread:.1f}"
                    for epsilon, (mean, spread) in zip(here["epsilon"], means)
                }
                shown = " | ".join(cells.get(epsilon, "") for epsilon in epsilons)
                lines.append(f"| {silos} | {NOISES[calibration]} | {method} | {shown} |")
    return "\n".join(lines)


def rates(measured: pd.DataFrame) -> str:
    """A row for each number of silos and method, at equal certificates.

    It has the power of epsilon with which the squared gradient mapping falls, by least squares over
    all epsilons, and the silos' measured heterogeneity.
    """
    lines = [
        "| silos a round | method | measured power of epsilon | measured upsilon |",
        "| --- | --- | --- | --- |",
    ]
    certified = measured[measured["calibration"] == "certified"]
    for silos, choices in certified.groupby("silos"):
        for method in SHOWN:
            here = choices[choices["method"] == method]
            if len(here) > 1:
                power = 2 * np.polyfit(np.log(here["epsilon"]), np.log(here["mapping"]), 1)[0]
                upsilon = here["heterogeneity"]
                lines.append(
                    f"| {silos} | {method} | {power:.2f} | {upsilon.min():.2g} to "
                    f"{upsilon.max():.2g} |"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
