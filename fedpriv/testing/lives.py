"""Short lives of an experiment's parties under faults, held against what they should have led to.

A life is the set-up and some rounds, with fresh parties. It never learns a wrong sum if every sum
that it learns, and all that silos remember afterwards, is exactly that of an undisturbed life in
which the same silos took part in the same rounds. Simulated noise depends on round and silo alone,
so there is one right answer, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.parties.traffic import Letter
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.faults import Fault, FaultyNetworks, drop
from fedpriv.util.stopwatch import Stopwatch

ROUNDS = (1, 2, 3)


@dataclass(frozen=True)
class Success:
    """A round with a sum.

    knowledge: a digest of the sum and of what silos remember afterwards.
    """

    round: int
    silos: tuple[str, ...]
    knowledge: bytes


@dataclass
class Life:
    """How it went.

    aborts: by round, 0 for the set-up before the first, why there was no sum.
    sent: all letters, by exchange.
    crash: any other exception, which ended it.
    """

    successes: list[Success] = field(default_factory=list)
    aborts: dict[int, str] = field(default_factory=dict)
    sent: list[list[Letter]] = field(default_factory=list)
    crash: Exception | None = None


class Bench:
    """An experiment's parties, for one life after the other. A context that ends them."""

    def __init__(self, exp: Experiment) -> None:
        self.prepared: PreparedRun = prepare(exp)
        self._right: dict[tuple[tuple[int, frozenset[str]], ...], tuple[bytes, ...]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *failure: object) -> None:
        self.prepared.session.close()

    def live(self, faults: Iterable[Fault] = (), rounds: Iterable[int] = ROUNDS) -> Life:
        """One life. Exchange 0 is the set-up; one that ended early is repeated before the next
        round."""
        prepared = self.prepared
        networks = FaultyNetworks(tuple(faults))
        life = Life(sent=networks.sent)
        everybody = (*prepared.aggregation.helpers, *prepared.silos)
        prepared.session.reopen({name: {} for name in everybody})
        prepared.silo_states.clear()
        prepared.session.network = networks
        for round in (0, *rounds):
            try:
                if round == 0:
                    prepared.set_up(0, [])
                else:
                    life.successes.append(self._round(round))
            except AggregationAbortedError as abort:
                life.aborts[round] = str(abort)
            except Exception as crash:
                life.crash = crash
                break
        return life

    def is_right(self, life: Life) -> bool:
        """Whether everything that the life has learned is what it should be."""
        history = tuple((success.round, frozenset(success.silos)) for success in life.successes)
        return tuple(success.knowledge for success in life.successes) == self._expected(history)

    def _round(self, round: int) -> Success:
        prepared = self.prepared
        (query,) = prepared.queries(round)
        total, _ = prepared.exchange(query, prepared.state, watch=Stopwatch(), lines=[])
        remembered = prepared.session.checkpoints(prepared.silos) if query.stateful else {}
        remembered = {name: dict(memory) for name, memory in remembered.items()}
        return Success(round, total.silos, digest_of((total.vector, list(total.silos), remembered)))

    def _expected(self, history: tuple[tuple[int, frozenset[str]], ...]) -> tuple[bytes, ...]:
        if history not in self._right:
            absent = [
                drop(exchange=exchange, sender=silo)
                for exchange, (_, silos) in enumerate(history, start=1)
                for silo in self.prepared.silos
                if silo not in silos
            ]
            life = self.live(absent, [round for round, _ in history])
            there = tuple((success.round, frozenset(success.silos)) for success in life.successes)
            if there != history:
                raise AssertionError(
                    f"{history} cannot be repeated: {there}, {life.aborts}"
                ) from life.crash
            self._right[history] = tuple(success.knowledge for success in life.successes)
        return self._right[history]
