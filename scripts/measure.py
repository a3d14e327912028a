"""Run the sweeps of Lowy et al.'s methods: `python -m scripts.measure FOLDER`, then `python -m
scripts.measured 12=FOLDER/12 25=FOLDER/25`.

For 12 and 25 silos a round (lowy/fig5, fig4), the script first runs every method with every step
size and variant on some splits. Then, for each method, noise and epsilon, it runs the settings with
the least training loss on the other splits. The runs of a sweep share one process. If you start the
script again with the same folder, it resumes: finished sweeps are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fedpriv.papers.experiments import run_command
from fedpriv.reports.finished_runs import find_runs
from scripts.measured import LOCAL, MINIBATCH, SPIDER, choose

EXPERIMENTS = {12: "lowy/fig5", 25: "lowy/fig4"}
CHOOSING_SPLITS = "0,1"
OTHER_SPLITS = "2,3,4"
STEP_SIZES = "0.0342181,0.105399,0.324652"
RECORD_STEP_SIZES = "1.2341e-4,3.8e-4,1.1709e-3,3.6e-3,1.1109e-2"
"""Local SGD takes hundreds of steps a round."""
METHODS = {
    MINIBATCH: ("algo=minibatch_sgd",),
    SPIDER: ("algo=spider", "algo.variant=alternate"),
    LOCAL: ("algo=local_sgd", "algo.local_steps=606"),
}
GRIDS = {
    "minibatch_sgd": (*METHODS[MINIBATCH], f"preset.local_lr={STEP_SIZES}"),
    "minibatch_sgd_long": (*METHODS[MINIBATCH], "preset.local_lr=1.0", "algo.epsilon=3,6,12,18"),
    "spider": (*METHODS[SPIDER], f"preset.local_lr={STEP_SIZES}"),
    "spider_long": (*METHODS[SPIDER], "preset.local_lr=1.0", "algo.epsilon=3,6,12,18"),
    "local_sgd": (*METHODS[LOCAL], f"preset.local_lr={RECORD_STEP_SIZES}"),
}
"""The overrides of each sweep on the first splits, by the name of its folder."""


def main(words: list[str]) -> None:
    """Run everything below the folder that `words` names."""
    [folder] = map(Path, words)
    for silos, name in EXPERIMENTS.items():
        below = folder / str(silos)
        for place, grid in GRIDS.items():
            sweep(name, below / place, *grid, f"seed={CHOOSING_SPLITS}")
        for place, settings in chosen_sweeps(
            choose(find_runs([below / place for place in GRIDS]))
        ).items():
            sweep(name, below / place, *settings, f"seed={OTHER_SPLITS}")


def chosen_sweeps(choices: pd.DataFrame) -> dict[str, tuple[str, ...]]:
    """The overrides of the sweeps with chosen settings, by the names of their folders."""
    rates = choices["settings"].str.extract(r"_lr=(\S+)", expand=False)
    found = {}
    for key, epsilons in choices.groupby(["method", "calibration", rates], sort=False)["epsilon"]:
        method, calibration, rate = map(str, key)
        at = ",".join(f"{epsilon:g}" for epsilon in sorted(epsilons))
        words = (f"algo.calibration={calibration}", f"preset.local_lr={rate}", f"algo.epsilon={at}")
        place = f"{method.lower().replace(' ', '_')}_{calibration}_{rate}"
        found[place] = (*METHODS[method], *words)
    return found


def sweep(name: str, folder: Path, *words: str) -> None:
    """Run a sweep unless it is finished. A run that diverges fails and is not chosen."""
    done = folder / "done"
    if not done.exists():
        usual = (
            f"experiment={name}",
            "hydra/launcher=side_by_side",
            f"hydra.sweep.dir={folder}",
            "preset.silo_clip=5",
        )
        if (
            run_command(*usual, *words) >= 0 and folder.exists()
        ):  # otherwise it was killed, or did not start
            done.touch()


if __name__ == "__main__":
    main(sys.argv[1:])
