"""Fig. 4 of Jeon et al. (SecureD-FL): the error of averages by ADMM, on models in training.

Peers train by federated averaging. Every fifth round, their trained models are also averaged with 1
to 7 iterations of the tuned schedules, in double and in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.aggregation.admm.averaging import Averaging
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.papers.experiments import profile_words
from fedpriv.papers.secured_fl.claims import run_averaging
from fedpriv.papers.secured_fl.peer_accuracy import TITLES, femnist_words
from fedpriv.reports.canvas import grid_and_legend, plt, save
from fedpriv.reports.number_table import write_records
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.util.stopwatch import Stopwatch

EVERY = 5
CLAIM = 1e-13
PRECISIONS = {"float64": np.float64, "float32": np.float32}
ITERATIONS = range(1, 8)


def draw(folder: Path, profile: str) -> None:
    """Write errors.csv and figure.png into a folder."""
    name = "secured_fl/fig4"
    exp = one_experiment(f"experiment={name}", *femnist_words(), *profile_words(name, profile))
    rng = np.random.default_rng(exp.options.seed)
    errors: dict[tuple[str, int], list[float]] = {}
    with prepare(exp) as prepared:
        for models in checkpoints(prepared, exp.options.rounds):
            for precision, dtype in PRECISIONS.items():
                for iterations in ITERATIONS:
                    penalty = PRESETS[f"tuned_{iterations}"][1]
                    error = mean_square(models, penalty, iterations, rng=rng, dtype=dtype)
                    errors.setdefault((precision, iterations), []).append(error)
    means = {key: np.mean(found) for key, found in errors.items()}
    rounds = len(errors["float64", 1])
    rows = [
        {
            "precision": precision,
            "iterations": iterations,
            "mean squared error": mean,
            "checkpoints": rounds,
        }
        for (precision, iterations), mean in means.items()
    ]
    write_records(folder / "errors.csv", rows)
    figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for precision in PRECISIONS:
        values = [means[precision, i] for i in ITERATIONS]
        axis.plot(ITERATIONS, values, "o-", ms=4, label=precision)
    axis.axhline(CLAIM, color="0.5", ls=":", label="1e-13, which the paper reports after 4")
    axis.set(
        yscale="log",
        xlabel="iterations, with the schedule tuned for them",
        ylabel="mean squared error",
    )
    title = f"{TITLES[type(exp.data).__name__](None)}, 9 peers"
    axis.set_title(f"{title}\nmean over {rounds} rounds", fontsize=10)
    grid_and_legend(axis, 8.5)
    save(figure, folder / "figure.png")


def checkpoints(prepared: PreparedRun, rounds: int) -> Iterator[np.ndarray]:
    """The models that the silos have trained, (n, d), in every fifth round."""
    state = prepared.state
    for number in range(1, rounds + 1):
        queries = prepared.queries(number)
        if number % EVERY == 0:
            yield state.params + np.stack(
                [_change(prepared, queries[0], state, silo) for silo in queries[0].invited]
            )
        result = prepared.run_round(queries, state)
        if result.aborted:
            raise RuntimeError(result.aborted)
        state = result.state


def _change(prepared: PreparedRun, query: Any, state: Any, silo: int) -> np.ndarray:
    """One silo's change of its model."""
    alone = replace(query, invited=(silo,), n_summed=1)
    prepared.rehearse(alone)
    total, _ = prepared.exchange(alone, state, watch=Stopwatch(), lines=[])
    return total.vector


def mean_square(
    models: np.ndarray,
    penalty: Penalty,
    iterations: int,
    *,
    rng: np.random.Generator,
    dtype: type[Any],
) -> float:
    """Mean squared error, over coordinates, of the average by ADMM.

    models: (n, d).
    penalty: rho by iteration.
    iterations: how many.
    rng: draws the peers' first duals.
    dtype: precision of the computation.
    """
    peers = [
        Averaging(model.astype(dtype), rng.random(len(model)).astype(dtype)) for model in models
    ]
    *_, z = run_averaging(peers, penalty, iterations, dtype)
    return float(np.mean((z.astype(np.float64) - models.mean(axis=0)) ** 2))
