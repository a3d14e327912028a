"""The records of a run in progress: its tables, checkpoints, status and released model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.aggregation.epsilon_target import SolvedTarget
from fedpriv.bundles.bundle import FOLDER
from fedpriv.bundles.write import write_bundle
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.query import BOUND
from fedpriv.rounds.state import State
from fedpriv.runs.background_writer import BackgroundWriter
from fedpriv.runs.checkpoint import Checkpoint, Origin
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.journal import Journal, repeated
from fedpriv.runs.labels import CHARGED, CLIP, Labels
from fedpriv.runs.losses import Losses
from fedpriv.runs.release import beyond_processors, bundle_of
from fedpriv.runs.status import Status
from fedpriv.runs.tables import ASSUMPTIONS, EPSILON, METRICS, STATISTICS, TIMINGS, TRAFFIC, UTILITY
from fedpriv.runtime import PreparedRun, RoundResult
from fedpriv.runtime.utility import utility_rows
from fedpriv.settings.experiment import Experiment
from fedpriv.settings.run_options import RunOptions
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.logs import LOGGER
from fedpriv.util.source_commit import source_commit
from fedpriv.util.stopwatch import Stopwatch

PHASES = ("plan", "accounting", "local_training", "aggregation", "global_update", "evaluation")

ON_A_GPU = (
    "rounding on a GPU: the last bits of what one unit adds can change when other units come or go"
)

OTHER_REPEATS = (
    "a party was lost, so rounds that were repeated may have had another model and the same noise: "
    "with noise from the operating system each attempt would be charged, and here it is not"
)

DEVICES = "devices"
"""The entry of a checkpoint's identity with the devices of all processes so far."""
UNKNOWN = "unknown"
"""The device of a checkpoint that names none."""


@dataclass
class RunRecords:
    """Writes what a run in progress leaves in its folder.

    experiment: its settings and components.
    prepared: its parties, with data and initial state.
    folder: where its records go.
    origin: configuration and package versions, which its checkpoints carry.
    journal: rounds begun by this and by earlier processes.
    writer: writes its checkpoints.
    saved: the checkpoint that it resumes from.
    before: the status that an earlier process has left; None without one.
    labels: of everything that it writes.
    released: the parameters of the released model by name, once the run has ended.
    losses: of this process and of earlier ones.
    """

    experiment: Experiment
    prepared: PreparedRun
    folder: RunFolder
    origin: Origin
    journal: Journal
    writer: BackgroundWriter
    saved: Checkpoint | None
    before: Status | None
    labels: Labels
    released: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.losses = Losses(self.prepared, self.folder, self.before)

    @cached_property
    def target(self) -> SolvedTarget | None:
        """What `accountant.target` means for this run; None without one."""
        return EpsilonForecast(self.experiment, self.prepared.plan).target

    @property
    def options(self) -> RunOptions:
        return self.experiment.options

    @cached_property
    def devices(self) -> list[str]:
        """The devices of this process and of earlier ones. A resumed run may have another one, and
        what its rounds released stays so; a round that began after the checkpoint counts too."""
        saved = self.saved.identity.get(DEVICES, UNKNOWN).split() if self.saved else []
        known = self.before.devices if self.before else ()
        return sorted({self.prepared.facts.device, *saved, *known})

    @property
    def _named_devices(self) -> str:
        """As a checkpoint holds them."""
        return " ".join(self.devices)

    @property
    def completed(self) -> int:
        """Rounds that the checkpoint has completed."""
        return self.saved.round if self.saved else 0

    @property
    def repeated(self) -> dict[int, int]:
        """Round: how many attempts of earlier processes this run does not record."""
        return repeated(self.journal.attempts, self.completed)

    @property
    def charged_twice(self) -> dict[int, int]:
        """The attempts of `repeated` that cost privacy. A seeded run repeats a round bit for bit,
        so the second attempt shows nothing new."""
        return self.repeated if self.options.system else {}

    @cached_property
    def earlier_silos(self) -> tuple[str, ...]:
        """The silos that the rounds of earlier processes are charged with. No checkpoint says when
        some were left out, and a silo knows a larger share of the noise of fewer: these are as few
        as there may have been."""
        known = self.losses.left_out if self.saved else frozenset()
        return self.prepared.settings.fewest(known)

    def open(self, tracker: str) -> list[int]:
        """Open the tables, or cut them back to the checkpoint.

        tracker: the name under which a tracker knows this run.

        Returns the completed rounds whose epsilons must be written anew, since epsilon.csv was
        damaged.
        """
        damaged = [] if self.folder.rewind(self.saved) else self.folder.evaluated
        self._write_opening_status(tracker)
        if self.saved is not None and self.saved.identity.get(DEVICES) != self._named_devices:
            # Its rounds count even if it writes no other checkpoint and status.json is lost.
            identity = {**self.saved.identity, DEVICES: self._named_devices}
            self._write_checkpoint(replace(self.saved, identity=identity))
        if self.saved is None:
            self.evaluate(0, self.prepared.state)
            self.folder.tables.append(TRAFFIC, self.prepared.facts.setup)
            # A run with begun rounds and no checkpoint could not be resumed.
            self._write_checkpoint(self._checkpoint(0, self.prepared.state))
        return damaged

    def begin_round(self, number: int) -> None:
        """Enter a round in the journal, before any of its messages."""
        self.journal.append(number, synced=self.options.system)

    def evaluate(
        self,
        number: int,
        state: State,
        stats: ContributionStats | None = None,
        step: float | None = None,
    ) -> dict[str, Any]:
        """Write a row of metrics.csv: test metrics, and statistics of the contributions.

        stats: of the round's contributions; None before the first round.
        step: the norm of the round's change of the parameters.

        Returns the row; it is empty, and nothing is written, where no model is released.
        """
        if not self.prepared.algo.releases_model:
            return {}
        values = self.prepared.evaluate(state)
        finite = stats.units - stats.nonfinite if stats else 0
        row = {
            "round": number,
            **values,
            "update_norm": step,
            "contribution_norm": stats.norm_sum / finite if stats and finite else None,
            "clipped": stats.clipped / finite if stats and finite else None,
            "contributions": stats.units if stats else None,
            "nonfinite": stats.nonfinite if stats else None,
        }
        if BOUND in state.slots:
            row[CLIP] = float(state.slots[BOUND][0])
        self.folder.tables.append(METRICS, [row])
        return row

    @cached_property
    def _numbers(self) -> dict[str, str]:
        """Each assumption with its number in assumptions.csv."""
        return {row["assumption"]: row["number"] for row in self.folder.tables.rows(ASSUMPTIONS)}

    def epsilons(self, rows: list[EpsilonRow]) -> None:
        """Append to epsilon.csv, and assumptions that no earlier row has to assumptions.csv."""
        for text in dict.fromkeys(chain.from_iterable(row.assumptions for row in rows)):
            if text not in self._numbers:
                self._numbers[text] = number = str(len(self._numbers) + 1)
                new = {"round": rows[0].round, "number": number, "assumption": text}
                self.folder.tables.append(ASSUMPTIONS, [new])
        numbered = [
            replace(row, assumptions=tuple(self._numbers[text] for text in row.assumptions))
            for row in rows
        ]
        self.folder.tables.append(EPSILON, _columns(numbered))

    def end_round(self, number: int, result: RoundResult, watch: Stopwatch) -> None:
        """Record a round's times, traffic and losses, and save a checkpoint if one is due."""
        self.losses.note()
        seconds = {phase: watch.seconds.get(phase, 0.0) for phase in PHASES}
        ended = {"aborted": result.aborted, "empty": result.empty}
        self.folder.tables.append(TIMINGS, [{"round": number, **seconds, **ended}])
        self.folder.tables.append(TRAFFIC, result.traffic)
        if number % self.options.checkpoint_every == 0 or number == self.options.rounds:
            self.save(number, result.state)

    def save(self, number: int, state: State) -> None:
        """Hand a checkpoint to the background writer."""
        checkpoint = self._checkpoint(number, state)
        self.writer.submit(lambda: self._write_checkpoint(checkpoint))

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.journal.fsync()
        self.folder.save_checkpoint(checkpoint)

    def _checkpoint(self, number: int, state: State) -> Checkpoint:
        arrays = self.prepared.arrays(state)
        tables = self.folder.tables
        identity = asdict(self.prepared.facts.identity) | {DEVICES: self._named_devices}
        return Checkpoint(number, arrays, self.journal.total, self.origin, tables.marks(), identity)

    def finish(
        self, number: int, state: State, rows: list[EpsilonRow], model: np.ndarray | None = None
    ) -> None:
        """Write the last records of a run that ends after round `number`.

        model: parameters (d,) to release in place of those of `state`; None: these.
        """
        self.writer.finish()
        if number == self.completed and self.charged_twice:
            # No round followed the checkpoint, so the table lacks the cost of repeated rounds.
            self.folder.tables.cut(EPSILON, number - 1)
            self.epsilons(rows)
            self._write_checkpoint(self._checkpoint(number, state))
        self._account_for_rounds_without_result()
        if self.repeated and not self.charged_twice and self.losses.parties:
            LOGGER.warning(OTHER_REPEATS)
            self.folder.status(repeats_differ=OTHER_REPEATS)
        if self.prepared.algo.releases_model:
            flat = self.prepared.algo.output(state) if model is None else model
            self.released = self.prepared.parameters(flat)
            self.folder.save_model(self.released)
            self._write_utility(state)
        else:
            self.folder.tables.remove(STATISTICS)
            self.folder.tables.append(
                STATISTICS, self.prepared.algo.table(state, self.prepared.plan)
            )

    def _write_utility(self, state: State) -> None:
        """Write utility.csv, unless silos have models of their own and a record has no silo."""
        self.folder.tables.remove(UTILITY)
        prepared = self.prepared
        params = prepared.algo.evaluated(state, prepared.standing.silo_states)
        silo = prepared.evaluation.test.silo
        own = params.ndim == 1 or (silo is not None and (silo >= 0).all())
        if own and len(prepared.evaluation.test):
            references = self.options.references
            rows = utility_rows(params, prepared.evaluation, references=references)
            self.folder.tables.append(UTILITY, rows)

    def write_bundle(
        self, rows: list[EpsilonRow], valid: bool, scores: dict[str, str] | None = None
    ) -> None:
        """Write what the released model takes to be used.

        rows: of the last round, and of test persons who have chosen it.
        valid: whether the model has a certificate.
        scores: charged ones of the model, in words.
        """
        if not self.prepared.algo.releases_model:
            return
        bundle = bundle_of(
            self.experiment,
            self.prepared,
            self.released,
            rows=[{name: str(value) for name, value in row.items()} for row in _columns(rows)],
            metrics=self.folder.tables.rows(METRICS)[-1],
            valid=valid,
            not_covered=self._not_covered,
            labels=self.labels,
        )
        if scores:
            labels = {**bundle.labels, "metrics": CHARGED}
            bundle = replace(bundle, metrics=scores, labels=labels)
        write_bundle(bundle, self.folder.path / FOLDER)

    def _account_for_rounds_without_result(self) -> None:
        """List in status.json the rounds without a sum, and those whose sum taught nothing. Raises
        AggregationAbortedError when no round had a sum."""
        rounds = self.folder.tables.rows(TIMINGS)
        aborted = {row["round"]: row["aborted"] for row in rounds if row["aborted"]}
        empty = {row["round"]: row["empty"] for row in rounds if row.get("empty")}
        self.folder.status(aborted_rounds=aborted, empty_rounds=empty)
        if rounds and len(aborted) == len(rounds):
            number, why = list(aborted.items())[-1]
            raise AggregationAbortedError(f"no round had a sum; round {number}: {why}")
        if empty:
            number, why = next(iter(empty.items()))
            counted = f"{len(empty)} of {len(rounds)} rounds learned nothing"
            LOGGER.warning("%s; round %s: %s", counted, number, why)

    def _changes(self) -> list[str]:
        """A line for each thing that changed since the checkpoint and may change later bits."""
        if self.saved is None:
            return []
        code = self.prepared.facts.identity.code
        other = self.saved.identity.get("code") != code
        own = ["resumes with other source code of fedpriv or of a component"] if other else []
        return self.saved.origin.changes(self.origin) + own

    @property
    def _not_covered(self) -> list[str]:
        """What no epsilon of the run covers."""
        on_gpu = [ON_A_GPU] if beyond_processors(self.devices) else []
        return [*self.experiment.not_covered, *on_gpu]

    def _write_opening_status(self, tracker: str) -> None:
        exp = self.experiment
        prepared = self.prepared
        self.folder.status(
            state="running",
            rounds=self.options.rounds,
            label=exp.algo.label,
            metric=prepared.evaluation.task.metric,
            observer=exp.algo.headline_observer,
            delta=exp.accountant.delta,
            randomness=self.options.randomness,
            dp_valid=None,
            not_covered=self._not_covered,
            labels=self.labels,
            repeated_rounds=self.repeated,
            device=prepared.facts.device,
            devices=self.devices,
            simulated=prepared.session.simulated,
            trainer=prepared.facts.trainer,
            parameters=prepared.plan.federation.n_parameters,
            records=sum(len(silo.x) for silo in prepared.silo_data),
            users=_users(exp, prepared),
            versions=self.origin.versions,
            commit=source_commit(),
            identity=asdict(prepared.facts.identity),
            noise=prepared.plan.noise_multipliers,
            target=asdict(self.target) if self.target else None,
            warnings=self._changes(),
            tracker=tracker,
            reason=None,
            traceback=None,
        )


def _columns(rows: list[EpsilonRow]) -> list[dict[str, Any]]:
    """Rows as epsilon.csv has them."""
    return [vars(row) | {"assumptions": "; ".join(row.assumptions)} for row in rows]


def _users(exp: Experiment, prepared: PreparedRun) -> dict[str, Any]:
    """Where users come from, and the public numbers of users and silos."""
    named = exp.data.natural_users and not exp.allocator.invents_users
    sizes = prepared.plan.federation
    return {
        "from": "data" if named else "allocator",
        "n_users": sizes.n_users,
        "n_silos": sizes.n_silos,
    }
