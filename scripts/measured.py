"""Measure Lowy et al.'s methods: `python -m scripts.measured 12=FOLDER 25=FOLDER` writes the table.

The folders hold the runs of lowy/fig5 (12 silos a round) and lowy/fig4 (25), at any depth. The
table is results/lowy_mnist.csv. The script also prints the text for docs/papers/lowy.md and
docs/rates.md; tests compare it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from fedpriv.papers.lowy.method_choice import (
    COLUMNS,
    LOCAL,
    MINIBATCH,
    SPIDER,
    Choice,
    Gain,
    choose,
    compare_with_spider,
)
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.number_table import read_table, write_table

TABLE = Path(__file__).parents[1] / "results" / "lowy_mnist.csv"
NOISES = {"certified": "the certificate", "paper": "the paper"}
SHOWN = (SPIDER, MINIBATCH, LOCAL)
Measured = dict[int, list[Choice]]
"""Choices by the number of silos in a round."""


def main(words: list[str]) -> None:
    """Write the table of the words `silos=folder`."""
    folders = {int(silos): Path(folder) for silos, folder in (word.split("=", 1) for word in words)}
    measured = {silos: choose(find_runs([folder])) for silos, folder in folders.items()}
    rows = (
        (silos, *vars(choice).values()) for silos, choices in measured.items() for choice in choices
    )
    TABLE.parent.mkdir(exist_ok=True)
    write_table(TABLE, ("silos", *COLUMNS), rows)
    print(page(read()), rates(read()), sep="\n\n")


def read(path: Path = TABLE) -> Measured:
    """The choices in the table."""
    words = ("method", "calibration", "settings")
    measured: Measured = {}
    for row in read_table(path):
        silos = int(row.pop("silos"))
        values = {key: text if key in words else float(text) for key, text in row.items()}
        measured.setdefault(silos, []).append(Choice(**values))  # type: ignore[arg-type]
    return measured


def page(measured: Measured) -> str:
    """Errors in per cent, a row for each number of silos, noise and method; then their order."""
    private = {
        silos: [c for c in choices if c.calibration in NOISES]
        for silos, choices in measured.items()
    }
    epsilons = sorted({c.epsilon for choices in private.values() for c in choices})
    lines = [
        "| silos a round | noise by | method | "
        + " | ".join(f"{epsilon:g}" for epsilon in epsilons)
        + " |",
        "| --- " * (3 + len(epsilons)) + "|",
    ]
    sentences = []
    for silos, choices in private.items():
        for calibration, who in NOISES.items():
            for method in SHOWN:
                here = {
                    c.epsilon: c
                    for c in choices
                    if (c.calibration, c.method) == (calibration, method)
                }
                if here:
                    cells = (_cell(here.get(epsilon)) for epsilon in epsilons)
                    lines.append(f"| {silos} | {who} | {method} | {' | '.join(cells)} |")
        sentences += [
            f"- {silos} silos, noise by {_order(gain)}" for gain in compare_with_spider(choices)
        ]
    return "\n".join([*lines, "", *sentences])


def rates(measured: Measured) -> str:
    """A row for each number of silos and method, at equal certificates.

    It has the power of epsilon with which the squared gradient mapping falls, by least squares over
    all epsilons, and the silos' measured heterogeneity.
    """
    lines = [
        "| silos a round | method | measured power of epsilon | measured upsilon |",
        "| --- | --- | --- | --- |",
    ]
    for silos, choices in measured.items():
        for method in SHOWN:
            here = [c for c in choices if (c.calibration, c.method) == ("certified", method)]
            if len(here) > 1:
                logs = np.log([(c.epsilon, c.mapping) for c in here])
                power = 2 * np.polyfit(logs[:, 0], logs[:, 1], 1)[0]
                upsilon = [c.heterogeneity for c in here]
                lines.append(
                    f"| {silos} | {method} | {power:.2f} | {min(upsilon):.2g} to "
                    f"{max(upsilon):.2g} |"
                )
    return "\n".join(lines)


def _cell(choice: Choice | None) -> str:
    return f"{100 * choice.error:.1f} ± {100 * choice.deviation:.1f}" if choice else ""


def _order(gain: Gain) -> str:
    """A comparison, as text."""
    side = "below" if gain.percent >= 0 else "above"
    lost = ", ".join(f"{epsilon:g}" for epsilon in gain.lost) or "none"
    return (
        f"{NOISES[gain.calibration]}: SPIDER's error is {abs(gain.percent):.1f} % {side} "
        f"{gain.over}'s on average; "
        f"{gain.over} wins at epsilon: {lost}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
