"""Ratios to other programs: `python -m benchmarks.peers.picture [folder]` draws the results.

Reads every .json file of a comparison in outputs/benchmarks (or the folder), and writes peers.png
there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fedpriv.reports.canvas import plt

COUNTED = ("data", "users", "epochs")
"""Columns that identify a case."""


def main(folder: str = "outputs/benchmarks") -> None:
    """Draw a bar for each case: median ratio, the range of single turns, and the goal."""
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        sys.exit(
            f"{folder}: nothing was measured there; run python -m benchmarks.peers.uldp_fl "
            "first, for example"
        )
    results = {file.stem: json.loads(file.read_text()) for file in files}
    cases = [(peer, row) for peer, found in results.items() for row in found["rows"]]
    figure, axis = plt.subplots(figsize=(7, 0.42 * len(cases) + 1.4), layout="constrained")
    for place, (_, row) in enumerate(cases):
        ratio = row["ratio"]
        axis.barh(
            place,
            ratio,
            color="C0",
            alpha=0.8,
            xerr=[[ratio - row["least"]], [row["most"] - ratio]],
            capsize=3,
        )
        axis.annotate(
            f"{ratio:.3g}",
            (row["most"], place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
        if row["goal"]:
            axis.plot([row["goal"]] * 2, [place - 0.4, place + 0.4], color="k", lw=1.5)
    axis.set_yticks(range(len(cases)), [_name(peer, row) for peer, row in cases], fontsize=8)
    axis.invert_yaxis()
    axis.set(
        xscale="log",
        xlabel="times as fast as the peer, processor seconds of one thread; black: at least",
    )
    axis.grid(alpha=0.3, axis="x")
    about = next(iter(results.values()))["about"]
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    figure.supxlabel(f"{about['machine']}, Python {about['python']}, {packages}", fontsize=6)
    path = Path(folder) / "peers.png"
    figure.savefig(path, dpi=150)
    print(path)


def _name(peer: str, row: dict[str, object]) -> str:
    own = [
        f"{value:,} {key}" if key != "data" else str(value)
        for key, value in row.items()
        if key in COUNTED
    ]
    return f"{peer.replace('_', '-')}: {', '.join(own)}"


if __name__ == "__main__":
    main(*sys.argv[1:])
