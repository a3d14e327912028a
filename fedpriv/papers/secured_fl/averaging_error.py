"""Fig. 4 of Jeon et al. (SecureD-FL): the error of averages by ADMM, on models in training.

Peers train by federated averaging. Every fifth round, their trained models are also averaged with 1
to 7 iterations of the tuned schedules, in double and in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.aggregation.admm.peer import Averaging
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.aggregation.base import SERVER
from fedpriv.papers.experiments import profile_words
from fedpriv.papers.secured_fl.peer_accuracy import femnist_words
from fedpriv.reports.canvas import grid_and_legend, plt, save
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.testing.faults import FaultyNetwork

EVERY = 5
CLAIM = 1e-13
PRECISIONS = {"float64": np.float64, "float32": np.float32}
ITERATIONS = range(1, 8)


def draw(folder: Path, profile: str) -> None:
    """Write errors.csv and figure.png into a folder."""
    name = "secured_fl/fig4"
    exp = one_experiment(f"experiment={name}", *femnist_words(), *profile_words(name, profile))
    rng = np.random.default_rng(exp.options.seed)
    with prepare(exp) as prepared:
        table = pd.DataFrame(
            {
                "precision": precision,
                "iterations": iterations,
                "error": mean_square(models, iterations, rng, dtype),
            }
            for models in checkpoints(prepared, exp.options.rounds)
            for precision, dtype in PRECISIONS.items()
            for iterations in ITERATIONS
        )
    errors = table.groupby(["precision", "iterations"], sort=False)["error"]
    found = pd.DataFrame({"mean squared error": errors.mean(), "checkpoints": errors.size()})
    found.to_csv(folder / "errors.csv")
    figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for precision in PRECISIONS:
        axis.plot(found.xs(precision)["mean squared error"], "o-", ms=4, label=precision)
    axis.axhline(CLAIM, color="0.5", ls=":", label="1e-13, which the paper reports after 4")
    axis.set(
        yscale="log",
        xlabel="iterations, with the schedule tuned for them",
        ylabel="mean squared error",
    )
    about = f"{type(exp.data).__name__}, 9 peers\nmean over {found['checkpoints'].iloc[0]} rounds"
    axis.set_title(about, fontsize=10)
    grid_and_legend(axis, 8.5)
    save(figure, folder / "figure.png")


def checkpoints(prepared: PreparedRun, rounds: int) -> Iterator[np.ndarray]:
    """The models that the silos have trained, (n, d), in every fifth round: their messages under
    plain aggregation."""
    network = FaultyNetwork(())
    prepared.session.network = network
    state = prepared.state
    for number in range(1, rounds + 1):
        result = prepared.run_round(prepared.queries(number), state)
        if result.aborted:
            raise RuntimeError(result.aborted)
        if number % EVERY == 0:
            sent = [letter for letter in network.sent[-1] if letter.receiver == SERVER]
            yield state.params + np.stack([letter.message.content for letter in sent])
        state = result.state


def mean_square(
    models: np.ndarray, iterations: int, rng: np.random.Generator, dtype: type[Any]
) -> float:
    """Mean squared error of the average of models (n, d) by the schedule tuned for `iterations`."""
    penalty = PRESETS[f"tuned_{iterations}"][1]
    *_, error = mean_squares(models, penalty, iterations, rng=rng, dtype=dtype)
    return error


def mean_squares(
    vectors: np.ndarray,
    penalty: Penalty,
    iterations: int,
    *,
    rng: np.random.Generator,
    dtype: type[Any] = np.float64,
) -> Iterator[float]:
    """Average vectors (n, d) by ADMM. Yields the average's mean squared error after each iteration.

    penalty: rho by iteration.
    iterations: how many.
    rng: draws the peers' first duals.
    dtype: precision of the computation.
    """
    peers = [
        Averaging(vector.astype(dtype), rng.random(len(vector)).astype(dtype)) for vector in vectors
    ]
    for iteration in range(1, iterations + 1):
        rho = dtype(penalty.at(iteration))
        z = np.mean([peer.message(rho) for peer in peers], axis=0, dtype=dtype)
        for peer in peers:
            peer.take(z, rho)
        yield float(np.mean((z.astype(np.float64) - vectors.mean(axis=0)) ** 2))
