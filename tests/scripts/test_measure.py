"""The sweeps behind the measured table."""

from pathlib import Path

import pandas as pd
import pytest

from fedpriv.settings.compose import CommandLine, each_job
from scripts import measure
from scripts.measured import LOCAL, MINIBATCH


def test_settings_that_are_chosen_alike_are_one_sweep():
    rows = [
        (MINIBATCH, "paper", 3.0, "global_lr=0.105399 clip=5"),
        (MINIBATCH, "paper", 0.75, "global_lr=0.105399 clip=5"),
        (MINIBATCH, "paper", 18.0, "global_lr=1.0 clip=5"),
        (LOCAL, "certified", 6.0, "local_lr=0.0036 clip=5 local_steps=606"),
    ]
    columns = ["method", "calibration", "epsilon", "settings"]
    found = measure.chosen_sweeps(pd.DataFrame(rows, columns=columns))
    assert len(found) == 3
    assert found["mb-sgd_paper_0.105399"][-1] == "algo.epsilon=0.75,3"
    assert found["local_sgd_certified_0.0036"][:2] == measure.METHODS[LOCAL]


@pytest.mark.parametrize("grid", measure.GRIDS)
def test_the_words_of_every_grid_make_a_sweep(grid):
    words = [
        "experiment=lowy/fig5",
        "hydra/launcher=side_by_side",
        "preset.silo_clip=5",
        *measure.GRIDS[grid],
        "seed=0",
    ]
    job = next(each_job(CommandLine(words, True, None), Path(__file__).parents[2] / "conf"))
    assert (job.algo.cohort, job.algo.clip, job.rounds) == (12, 5, 25)
    assert job.algo.epsilon == (3 if grid.endswith("long") else 0.75)
