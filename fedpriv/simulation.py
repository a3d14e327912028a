"""The federation in memory: silos with their records, the model's template, and one round of an algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, AggregationAborted
from fedpriv.algorithms.base import Algorithm, Federation, Kept, Local, Plan, Tally, Update
from fedpriv.data.base import Records
from fedpriv.engines.base import Engine, reporting
from fedpriv.engines.traffic import Traffic
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.stopwatch import Stopwatch

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedpriv.aggregation.base import Outlook, Party, Total
    from fedpriv.config import Experiment
    from fedpriv.data.allocation import Allocation
    from fedpriv.data.base import Corpus


class Diverged(FedprivError):
    """The global model is no longer finite."""


@dataclass(frozen=True)
class RoundResult:
    """What a round left behind: new parameters (d,), the tally of all silos, and what the parties sent.

    aborted: why there was no sum; the parameters are then the old ones.
    """

    theta: np.ndarray
    tally: Tally
    traffic: Traffic
    aborted: str | None = None


@dataclass(frozen=True)
class Simulation:
    """An experiment with its data loaded and its parties ready.

    memory: what each party remembers between exchanges. traffic: what the parties sent in the set-up.
    kept: what the algorithm lets each silo keep between rounds.
    """

    experiment: Experiment
    algo: Algorithm
    federation: Federation
    model: nn.Module
    theta0: np.ndarray
    locals: list[Local]
    test: Records
    held_out: Records | None
    device: str
    memory: dict[str, dict[str, Any]]
    traffic: Traffic = field(default_factory=Traffic)
    kept: dict[str, Kept] = field(default_factory=dict)

    def run_round(self, plan: Plan, theta: np.ndarray, watch: Stopwatch | None = None) -> RoundResult:
        """Steps two to four of a round: local updates, the exchange, the global update.

        A round without a sum, or with one over fewer silos than the noise shares are sized for, releases nothing.
        Raises Diverged when the new parameters are not finite.
        """
        exp, algo, watch = self.experiment, self.algo, watch or Stopwatch()
        told, updates = exp.aggregation.for_silos(plan), {}
        for silo in plan.cohort:
            local = self.locals[silo]
            local = replace(local, kept=self.kept.get(local.name, {}))
            update = algo.local_update(local, told, theta)
            updates[local.name] = replace(update, blocks=watch.timed("local_training", update.blocks))
        with watch.phase("aggregation"):
            parties, traffic = exp.aggregation.exchange(plan, updates, self.memory), Traffic()
            notes = {name: partial(_diary, update, watch) for name, update in updates.items()}
            try:
                learned, diaries = exchange(exp.engine, parties, self.memory, traffic, notes)
                total = covering(plan.covered, learned.get(SERVER))
            except AggregationAborted as abort:
                return RoundResult(theta, Tally(), traffic, str(abort))
            # In this process all silos share one stopwatch; in others they ran side by side, and the longest counts.
            watch.at_least("local_training", max((seconds for _, seconds, _ in diaries.values()), default=0.0))
        with watch.phase("global_update"):
            new = algo.global_update(theta, total, self.federation)
        if not np.isfinite(new).all():
            raise Diverged(f"round {plan.round}: the global model is not finite; lower algo.local_lr or algo.global_lr")
        new_kept = {name: kept for name, (_, _, kept) in diaries.items() if kept is not None}
        kept = algo.keep(self.kept | new_kept, total)
        self.kept.clear()
        self.kept.update(kept)
        tallies = [Tally(*diaries[name][0]) for name in updates if name in diaries]
        return RoundResult(new, sum(tallies, Tally()), traffic)

    def state(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """What a checkpoint after a round with parameters `theta` (d,) holds; `go_on` takes it."""
        kept = {f"{silo}/{key}": value for silo, own in self.kept.items() for key, value in own.items()}
        return {"theta": theta, **kept}

    def go_on(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Give the silos back what they kept; returns the parameters (d,)."""
        self.kept.clear()
        for place, value in state.items():
            silo, _, key = place.partition("/")
            if key:
                self.kept.setdefault(silo, {})[key] = value
        return state["theta"]

    def plan(self, round: int) -> Plan:
        """Step one of a round, which looks at no data."""
        exp = self.experiment
        return self.algo.plan(round, self.federation, exp.mechanism, exp.aggregation, exp.streams)

    def outlook(self, round: int) -> Outlook | None:
        """What the exchanges from `round` on will take, if the aggregation can tell."""
        exp = self.experiment
        return exp.aggregation.outlook(self.plan(round), self.federation, exp.options.rounds - round + 1)

    def evaluate(self, theta: np.ndarray) -> dict[str, float]:
        """Loss and metrics on the central test split, the main metric on the records held out in the silos, and on
        demand the loss on the training records with its gradient's norm."""
        task = self.experiment.data.task
        loss, metrics = self._evaluate(theta, self.test)
        row = {"loss": loss, **metrics}
        if self.experiment.options.evaluate_training:
            row |= self._evaluate_training(theta)
        if self.held_out is not None:
            row[f"local_{task.metric}"] = self._evaluate(theta, self.held_out)[1][task.metric]
        return row

    def _evaluate(self, theta: np.ndarray, records: Records) -> tuple[float, dict[str, float]]:
        import torch

        from fedpriv.training import evaluate

        vector = torch.from_numpy(theta).to(self.device, torch.float32)
        x, y = torch.from_numpy(records.x).to(self.device), torch.from_numpy(records.y).to(self.device)
        return evaluate(self.model, vector, x, y, self.experiment.data.task)

    def _evaluate_training(self, theta: np.ndarray) -> dict[str, float]:
        import torch

        from fedpriv.training import objective

        vector = torch.from_numpy(theta).to(self.device, torch.float32)
        silos = [(local.data.x, local.data.y) for local in self.locals]
        loss, norm = objective(self.model, vector, silos, self.experiment.data.task)
        return {"train_loss": loss, "gradient_norm": norm}

    def parameters(self, theta: np.ndarray) -> dict[str, np.ndarray]:
        """The flat vector cut into the model's named float32 tensors."""
        pieces, start = {}, 0
        for name, parameter in self.model.named_parameters():
            stop = start + parameter.numel()
            pieces[name] = theta[start:stop].astype(np.float32).reshape(tuple(parameter.shape))
            start = stop
        return pieces


def resolve_device(device: str) -> str:
    """`auto` is the first CUDA device if there is one. Raises ConfigError for a device this machine lacks."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        index = int(device.partition(":")[2] or 0)
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise ConfigError("device", device, "this machine has no such CUDA device; allowed: auto, cpu")
    return device


def prepare(exp: Experiment) -> Simulation:
    """Build the model, load and allocate the data, and run the aggregation's set-up.

    Raises FedprivError for whatever the user can mend; nothing is written.
    """
    from fedpriv.data.silo import split_by_silo

    device = resolve_device(exp.options.device)
    exp.engine.check(device)
    model, theta0 = _initial_model(exp)
    corpus, allocation, algo, federation = allocate(exp)
    exp = replace(exp, mechanism=algo.calibrated(exp.mechanism, federation, exp.aggregation, exp.streams))
    silos = split_by_silo(corpus.train, allocation, device)
    model = model.to(device)
    parties = [Local(index, data, model, exp.data.task, exp.mechanism, exp.streams) for index, data in enumerate(silos)]
    memory: dict[str, dict[str, Any]] = {name: {} for name in [SERVER, *(local.name for local in parties)]}
    counts = {local.name: algo.counts(local, federation) for local in parties}
    traffic = Traffic()
    exchange(exp.engine, exp.aggregation.setup(counts, algo.weights, algo.needs_counts, memory), memory, traffic)
    held_out = None
    if not allocation.trains.all():
        rows = ~allocation.trains
        held_out = Records(corpus.train.x[rows], corpus.train.y[rows])
    return Simulation(exp, algo, federation, model, theta0, parties, corpus.test, held_out, device, memory, traffic)


def covering(silos: int, total: Total | None) -> Total:
    """The total, if it covers exactly so many silos. Raises AggregationAborted: with fewer noise shares the sum is less
    private than declared."""
    if total is None:
        raise AggregationAborted(f"the {SERVER} was lost and with it the sum")
    if len(set(total.parties)) != silos:
        raise AggregationAborted(f"the sum covers {len(set(total.parties))} silos instead of {silos}")
    return total


def exchange(
    engine: Engine,
    parties: dict[str, Party],
    memory: dict[str, dict[str, Any]],
    traffic: Traffic,
    notes: dict[str, Callable[[], Any]] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run an exchange wherever the engine runs it. Returns what each party has learned, and its note, by name.

    memory: by party; each party's is replaced by what it left. notes: made at the party's end, where it ran.
    """
    notes = notes or {}

    def report(name: str) -> tuple[Any, Any]:
        return memory.get(name), notes[name]() if name in notes else None

    ended = engine.run({name: reporting(party, partial(report, name)) for name, party in parties.items()}, traffic)
    for name, (_, (kept, _)) in ended.items():
        if name in memory:
            memory[name] = kept
    learned = {name: value for name, (value, _) in ended.items()}
    return learned, {name: note for name, (_, (_, note)) in ended.items() if name in notes}


def _diary(update: Update, watch: Stopwatch) -> tuple[tuple[Any, ...], float, Kept | None]:
    if update.kept is not None:
        for _ in update.blocks:  # whatever of them no message needed
            pass
    return astuple(update.tally), watch.seconds.get("local_training", 0.0), update.kept


def allocate(exp: Experiment) -> tuple[Corpus, Allocation, Algorithm, Federation]:
    """Load the data and say who owns what, and let the algorithm settle on it. Needs no torch."""
    corpus = exp.data.load(exp.streams)
    algo, allocation = exp.algo.settle(exp.allocator.allocate(corpus.train, exp.data, exp.streams), exp.data)
    sizes = tuple(int(count) for count in allocation.counts().sum(axis=1))
    return corpus, allocation, algo, replace(exp.federation, silo_records=sizes)


def _initial_model(exp: Experiment) -> tuple[nn.Module, np.ndarray]:
    """The network with its seeded initial weights, always drawn on the CPU so that every device starts alike."""
    import torch

    from fedpriv.training import flatten

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(exp.streams.torch_seed("initial weights"))
        model = exp.model.build(exp.data.shape, exp.data.outputs)
    theta: torch.Tensor = flatten(model)
    return model, theta.detach().double().numpy().copy()
