"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.ledger import EpsilonRow, Ledger, headline
from fedpriv.errors import AggregationAbortedError
from fedpriv.progress import Progress, summary
from fedpriv.results import RunFolder
from fedpriv.stopwatch import Stopwatch
from fedpriv.tally import Tally

if TYPE_CHECKING:
    from fedpriv.accountants.events import Event
    from fedpriv.config import Experiment, RunOptions
    from fedpriv.query import Query
    from fedpriv.simulation import Simulation
    from fedpriv.state import State

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

    folder = RunFolder(path)
    saved = folder.load_checkpoint() if resume else None
    with prepare(experiment, saved[1] if saved else None) as simulation:
        if not resume:
            folder.create(config_yaml)
        run = _Run(experiment, simulation, folder)
        try:
            rows, ending = run.loop(saved[0] if saved else None)
        except KeyboardInterrupt:
            folder.status(state="failed", reason=f"interrupted; resume={path} goes on")
            raise
        except Exception as error:
            folder.status(state="failed", reason=str(error) or type(error).__name__, traceback=traceback.format_exc())
            raise
    folder.status(state="done", reason=ending)
    summary(path, experiment, rows, ending)


@dataclass
class _Run:
    """One run on its way: what it was started with, and where its records go."""

    experiment: Experiment
    simulation: Simulation
    folder: RunFolder

    @property
    def options(self) -> RunOptions:
        return self.experiment.options

    def loop(self, saved: int | None) -> tuple[list[EpsilonRow], str | None]:
        """Rounds until the last one, or until the next would break the budget. Returns the last epsilon rows, and why
        the run ended early if it did. saved: the round of the checkpoint that the run goes on from."""
        options, budget, simulation = self.options, self.experiment.accountant.budget, self.simulation
        ledger, state, done = self._start(saved), simulation.state, saved or 0
        rows = ledger.rows(done)
        with Progress(options.rounds, done, simulation.task.metric) as progress:
            if done < options.rounds and (estimate := simulation.estimate(done + 1, options.rounds - done)):
                progress.expect(estimate)
            for number in range(done + 1, options.rounds + 1):
                watch = Stopwatch()
                with watch.phase("plan"):
                    queries = simulation.queries(number)
                # With a budget any round may turn out to be the last.
                shown = number % options.evaluate_every == 0 or number == options.rounds or budget is not None
                with watch.phase("accounting"):
                    after = ledger.copy()
                    after.record(events_of(queries))
                    rows_after = after.rows(number) if shown else rows
                if budget is not None and headline(rows_after) > budget:
                    ending = f"round {number} would exceed accountant.budget={budget:g}"
                    break
                before, result = state, simulation.run_round(queries, state, watch)
                state = result.state
                if result.aborted:
                    progress.say(f"round {number} released nothing: {result.aborted}")
                ledger, rows = after, rows_after
                step = float(np.linalg.norm(state.params - before.params))
                row: dict[str, Any] = {}
                if shown:
                    with watch.phase("evaluation"):
                        row = self._evaluated(number, state, result.tally, step)
                    self.folder.append("metrics.csv", [row])
                    self.folder.append("epsilon.csv", [_columns(row) for row in rows])
                seconds = {phase: watch.seconds.get(phase, 0.0) for phase in PHASES}
                self.folder.append("timings.csv", [{"round": number, **seconds, "aborted": result.aborted}])
                self.folder.append("traffic.csv", result.traffic)
                if number % options.checkpoint_every == 0 or number == options.rounds:
                    self.folder.save_checkpoint(number, simulation.arrays(state))
                progress.update(number, row, headline(rows) if shown else None)
            else:
                ending = None
        _account_for_aborts(self.folder)
        self.folder.save_model(simulation.parameters(state))
        return rows, ending

    def _start(self, saved: int | None) -> Ledger:
        """The ledger of all rounds so far; opens the run's records or cuts them back to the checkpoint."""
        simulation, folder = self.simulation, self.folder
        folder.rewind(-1 if saved is None else saved)
        ledger = Ledger(self.experiment.accountant)
        for past in range(1, (saved or 0) + 1):
            ledger.record(events_of(simulation.queries(past)))
        self._opening_status()
        if saved is None:
            folder.append("metrics.csv", [self._evaluated(0, simulation.state)])
            folder.append("traffic.csv", simulation.setup)
            folder.save_checkpoint(0, simulation.arrays(simulation.state))
        return ledger

    def _evaluated(
        self, number: int, state: State, tally: Tally | None = None, step: float | None = None
    ) -> dict[str, Any]:
        """A metrics row: test metrics, and how long and how often clipped the contributions were."""
        values = self.simulation.evaluate(state)
        finite = tally.units - tally.nonfinite if tally else 0
        return {
            "round": number,
            **values,
            "update_norm": step,
            "contribution_norm": tally.norm_sum / finite if tally and finite else None,
            "clipped": tally.clipped / finite if tally and finite else None,
            "contributions": tally.units if tally else None,
            "nonfinite": tally.nonfinite if tally else None,
        }

    def _opening_status(self) -> None:
        import torch

        import fedpriv

        exp, simulation = self.experiment, self.simulation
        private = self.options.randomness == "system"
        clips = all(channel.mechanism.clips for channel in simulation.deployment.channels.values())
        seeded = (
            "seeded noise and sampling: whoever knows the seed can subtract them; randomness=system draws real ones"
        )
        self.folder.status(
            state="running",
            rounds=self.options.rounds,
            label=exp.algo.label,
            metric=simulation.task.metric,
            delta=exp.accountant.delta,
            randomness=self.options.randomness,
            dp_valid=private and clips,
            not_covered=[*ALWAYS_UNCOVERED, *([] if private else [seeded])],
            device=simulation.device,
            parameters=simulation.deployment.federation.n_parameters,
            versions={"fedpriv": fedpriv.__version__, "torch": torch.__version__},
            reason=None,
            traceback=None,
        )


def events_of(queries: tuple[Query, ...]) -> list[Event]:
    """What a whole round shows."""
    return [event for query in queries for event in query.events]


def _account_for_aborts(folder: RunFolder) -> None:
    """Name the rounds without a sum in status.json. Raises AggregationAbortedError when no round had one."""
    rounds = folder.rows("timings.csv")
    aborted = {row["round"]: row["aborted"] for row in rounds if row["aborted"]}
    folder.status(aborted_rounds=aborted)
    if rounds and len(aborted) == len(rounds):
        last = rounds[-1]
        raise AggregationAbortedError(f"no round had a sum; round {last['round']}: {last['aborted']}")


def _columns(row: EpsilonRow) -> dict[str, Any]:
    return vars(row) | {"assumptions": "; ".join(row.assumptions)}
