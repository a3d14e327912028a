"""Regenerate the papers' figures: `python -m scripts.figures [--profile paper] [name ...]`.

Each figure is an experiment (a sweep) and its drawing. Without names: the quick profile of every figure whose data are
there. Results go to outputs/<experiment>/<time>, the picture beside them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fedpriv.figures.privacy_utility import draw
from fedpriv.figures.runs import find_runs


@dataclass(frozen=True)
class Figure:
    """An experiment, and how its finished runs become a picture."""

    experiment: str
    draw: Callable[[Path], None]


def privacy_utility(title: str) -> Callable[[Path], None]:
    """The two panels of Uldp-FL's Figs 4 to 7."""
    return lambda folder: draw(find_runs([folder]), folder / "figure.png", title=title)


FIGURES = [
    Figure("uldp_fl/fig4_embedded", privacy_utility("breast cancer, zipf")),
    Figure("uldp_fl/fig4", privacy_utility("creditcard, 1,000 users, zipf")),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(figure.experiment for figure in FIGURES))
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick")
    args = parser.parse_args()
    unknown = set(args.names) - {figure.experiment for figure in FIGURES}
    if unknown:
        parser.error(f"no figure {', '.join(sorted(unknown))}")
    failed = [figure for figure in FIGURES if figure.experiment in (args.names or [f.experiment for f in FIGURES])]
    failed = [figure.experiment for figure in failed if not regenerate(figure, args.profile)]
    if failed:
        sys.exit(f"not drawn: {', '.join(failed)}")


def regenerate(figure: Figure, profile: str) -> bool:
    """Run the experiment and draw it; False when its runs ended early (their own line says why)."""
    folder = Path("outputs") / figure.experiment / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    words = [f"experiment={figure.experiment}", f"hydra.sweep.dir={folder}"]
    words += ["profile=quick"] if profile == "quick" else []
    if subprocess.run([sys.executable, "-m", "fedpriv", *words], check=False).returncode:
        return False
    figure.draw(folder)
    print(folder / "figure.png")
    return True


if __name__ == "__main__":
    main()
