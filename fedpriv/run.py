"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline
from fedpriv.aggregation.base import AggregationAborted
from fedpriv.progress import Progress, summary
from fedpriv.results import RunFolder
from fedpriv.stopwatch import Stopwatch

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Tally
    from fedpriv.config import Experiment
    from fedpriv.simulation import Simulation

PHASES = ("plan", "accounting", "local_training", "aggregation", "global_update", "evaluation")

ALWAYS_UNCOVERED = (
    "hyper-parameters chosen on private data are not accounted",
    "splits, scaling and sub-sampling of the data set are not accounted",
    "choosing a round or a run by its metrics is not accounted",
    "metrics.csv holds non-private diagnostics",
)


def train(experiment: Experiment, config_yaml: str, path: Path, resume: bool = False) -> None:
    """Run an experiment into folder `path`, or go on from its last checkpoint.

    Whatever can be wrong with the settings or the data is raised before the folder is
    touched; after that, a failure is recorded in status.json and raised again.
    """
    from fedpriv.simulation import prepare

    simulation = prepare(experiment)
    folder = RunFolder(path)
    if not resume:
        folder.create(config_yaml)
    try:
        rows, ending = _loop(simulation, folder, resume)
    except KeyboardInterrupt:
        folder.status(state="failed", reason=f"interrupted; resume={path} goes on")
        raise
    except Exception as error:
        folder.status(state="failed", reason=str(error) or type(error).__name__, traceback=traceback.format_exc())
        raise
    folder.status(state="done", reason=ending)
    summary(path, simulation, rows, ending)


def _loop(simulation: Simulation, folder: RunFolder, resume: bool) -> tuple[list[EpsilonRow], str | None]:
    """Rounds until the last one, or until the next would break the budget. Returns the last epsilon rows, and why the
    run ended early if it did."""
    options, budget = simulation.experiment.options, simulation.experiment.accountant.budget
    done, theta, ledger = _start(simulation, folder, resume)
    rows = ledger.rows(done)
    with Progress(options.rounds, done, simulation.experiment.data.task.metric) as progress:
        if done < options.rounds and (outlook := simulation.outlook(done + 1)):
            progress.expect(outlook)
        for round in range(done + 1, options.rounds + 1):
            watch = Stopwatch()
            with watch.phase("plan"):
                plan = simulation.plan(round)
            # With a budget any round may turn out to be the last.
            shown = round % options.evaluate_every == 0 or round == options.rounds or budget is not None
            with watch.phase("accounting"):
                after = ledger.copy()
                after.record(plan.events)
                rows_after = after.rows(round) if shown else rows
            if budget is not None and headline(rows_after) > budget:
                ending = f"round {round} would exceed accountant.budget={budget:g}"
                break
            result = simulation.run_round(plan, theta, watch)
            step, theta = float(np.linalg.norm(result.theta - theta)), result.theta
            if result.aborted:
                progress.say(f"round {round} released nothing: {result.aborted}")
            ledger, rows = after, rows_after
            row: dict[str, Any] = {}
            if shown:
                with watch.phase("evaluation"):
                    row = _evaluated(round, simulation, theta, result.tally, step)
                folder.append("metrics.csv", [row])
                folder.append("epsilon.csv", [_columns(row) for row in rows])
            seconds = {phase: watch.seconds.get(phase, 0.0) for phase in PHASES}
            folder.append("timings.csv", [{"round": round, **seconds, "aborted": result.aborted}])
            folder.append("traffic.csv", result.traffic.rows(round, "round"))
            if round % options.checkpoint_every == 0 or round == options.rounds:
                folder.save_checkpoint(round, simulation.state(theta))
            progress.update(round, row, headline(rows) if shown else None)
        else:
            ending = None
    _account_for_aborts(folder)
    folder.save_model(simulation.parameters(theta))
    return rows, ending


def _account_for_aborts(folder: RunFolder) -> None:
    """Name the rounds without a sum in status.json. Raises AggregationAborted when no round had one."""
    rounds = folder.rows("timings.csv")
    aborted = {row["round"]: row["aborted"] for row in rounds if row["aborted"]}
    folder.status(aborted_rounds=aborted)
    if rounds and len(aborted) == len(rounds):
        last = rounds[-1]
        raise AggregationAborted(f"no round had a sum; round {last['round']}: {last['aborted']}")


def _start(simulation: Simulation, folder: RunFolder, resume: bool) -> tuple[int, np.ndarray, Ledger]:
    """The last finished round, the parameters after it, and the ledger of all rounds so far."""
    saved = folder.load_checkpoint() if resume else None
    done, theta = (saved[0], simulation.go_on(saved[1])) if saved else (0, simulation.theta0)
    folder.rewind(done if saved else -1)
    ledger = Ledger(simulation.experiment.accountant)
    for past in range(1, done + 1):
        ledger.record(simulation.plan(past).events)
    _opening_status(simulation, folder)
    if not saved:
        folder.append("metrics.csv", [_evaluated(0, simulation, theta)])
        folder.append("traffic.csv", simulation.traffic.rows(0, "setup"))
        folder.save_checkpoint(0, simulation.state(theta))
    return done, theta, ledger


def _evaluated(
    round: int, simulation: Simulation, theta: np.ndarray, tally: Tally | None = None, step: float | None = None
) -> dict[str, Any]:
    """A metrics row: test metrics, and how long and how often clipped the contributions were."""
    values = simulation.evaluate(theta)
    finite = tally.units - tally.nonfinite if tally else 0
    return {
        "round": round,
        **values,
        "update_norm": step,
        "contribution_norm": tally.norm_sum / finite if finite else None,
        "clipped": tally.clipped / finite if finite else None,
        "contributions": tally.units if tally else None,
        "nonfinite": tally.nonfinite if tally else None,
    }


def _columns(row: EpsilonRow) -> dict[str, Any]:
    return vars(row) | {"assumptions": "; ".join(row.assumptions)}


def _opening_status(simulation: Simulation, folder: RunFolder) -> None:
    import torch

    import fedpriv

    exp = simulation.experiment
    private = exp.options.randomness == "system"
    seeded = "seeded noise and sampling: whoever knows the seed can subtract them; randomness=system draws real ones"
    folder.status(
        state="running",
        rounds=exp.options.rounds,
        label=simulation.algo.label,
        metric=exp.data.task.metric,
        delta=exp.accountant.delta,
        randomness=exp.options.randomness,
        dp_valid=private and exp.mechanism.clips,
        not_covered=[*ALWAYS_UNCOVERED, *([] if private else [seeded])],
        device=simulation.device,
        parameters=len(simulation.theta0),
        versions={"fedpriv": fedpriv.__version__, "torch": torch.__version__},
        reason=None,
        traceback=None,
    )
