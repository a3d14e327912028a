"""Regenerate the papers' figures: `python -m scripts.figures [--profile paper] [name ...]`.

Most are an experiment (a sweep) and its drawing. Without names: those that need no data set of their own. Results go to
outputs/<name>/<time>, figure.png beside them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from fedpriv.figures import group_privacy, privacy_utility
from fedpriv.figures.runs import find_runs

Make = Callable[[Path, str], bool]
"""Makes figure.png in a folder with a profile; False when it could not."""


def experiment(name: str, title: str) -> Make:
    """Run a sweep and draw privacy and utility from its folders."""

    def make(folder: Path, profile: str) -> bool:
        words = [f"experiment={name}", f"hydra.sweep.dir={folder}", *(["profile=quick"] if profile == "quick" else [])]
        if subprocess.run([sys.executable, "-m", "fedpriv", *words], check=False).returncode:
            return False
        privacy_utility.draw(find_runs([folder]), folder / "figure.png", title=title)
        return True

    return make


def group_sizes(folder: Path, profile: str) -> bool:
    """Fig. 2, which needs no training."""
    return group_privacy.draw(folder, profile).exists()


FIGURES: dict[str, Make] = {
    "uldp_fl/fig2": group_sizes,
    "uldp_fl/fig4_embedded": experiment("uldp_fl/fig4_embedded", "breast cancer, 50 users, zipf"),
    "uldp_fl/fig4": experiment("uldp_fl/fig4", "creditcard, 1,000 users, zipf"),
    "uldp_fl/fig5": experiment("uldp_fl/fig5", "MNIST, 100 users, zipf"),
    "uldp_fl/fig6": experiment("uldp_fl/fig6", "heart disease, 50 users, zipf"),
    "uldp_fl/fig7": experiment("uldp_fl/fig7", "TCGA-BRCA, 50 users, zipf"),
    "uldp_fl/fig10": experiment("uldp_fl/fig10", "creditcard, 1,000 users, zipf, sampled users"),
}
DEFAULT = ("uldp_fl/fig2", "uldp_fl/fig4_embedded")
"""What `make figures` draws: minutes, and no data set that is not embedded."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=DEFAULT, help=", ".join(FIGURES))
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    failed = []
    for name in args.names:
        folder = Path("outputs") / name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
        if FIGURES[name](folder, args.profile):
            print(folder / "figure.png")
        else:
            failed.append(name)
    if failed:
        sys.exit(f"not drawn: {', '.join(failed)}")


if __name__ == "__main__":
    main()
