"""Short runs of an experiment's parties under faults, compared with the correct results.

A trial is the set-up and some rounds, with fresh parties. It is correct if every sum, and
everything that silos remember afterwards, equals that of an undisturbed trial in which the same
silos took part in the same rounds. Simulated noise depends on round and silo alone, so there is one
correct result, bit by bit.

>>> from fedpriv.testing import experiment
>>> from fedpriv.testing.faults import drop
>>> exp = experiment("algo=fedavg", "preset.n_users=6", "preset.local_epochs=1")
>>> with FaultTrials(exp) as trials:
...     trial = trials.run([drop(sender="silo0", exchange=2)])
...     trial.aborts, len(trial.successes), trials.is_correct(trial)
({2: 'no message from silo0'}, 2, True)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.engines.inprocess import InProcess, InProcessSession
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.parties.traffic import Letter
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.runtime.silo import SiloParticipant
from fedpriv.runtime.standing import Standing
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.deaths import Death, Mortal, MortalSession
from fedpriv.testing.faults import Fault, FaultyNetwork, drop
from fedpriv.util.stopwatch import Stopwatch

ROUNDS = (1, 2, 3)

History = tuple[tuple[int, frozenset[str]], ...]
"""Rounds with a sum, each with the silos in it."""


@dataclass(frozen=True)
class Success:
    """A round with a sum.

    round: its number.
    silos: names of the silos in the sum.
    digest: digest of the sum and of what silos remember afterwards.
    """

    round: int
    silos: tuple[str, ...]
    digest: bytes


@dataclass
class FaultTrial:
    """The outcome of one trial.

    successes: rounds with a sum.
    aborts: by round, 0 for the set-up before the first: why there was no sum.
    sent: all letters, by exchange.
    exchanges: by round, the numbers of its exchanges: set-ups, and the query if there was one.
    present: by round with a query, the silos of the last set-up.
    heard: by round, the parties that sent something in its query.
    uncharged: rounds and silos that sent something in a query without noting it before; known where
        all parties are in this process.
    crash: any other exception, which ended the trial.
    """

    successes: list[Success] = field(default_factory=list)
    aborts: dict[int, str] = field(default_factory=dict)
    sent: list[list[Letter]] = field(default_factory=list)
    exchanges: dict[int, range] = field(default_factory=dict)
    present: dict[int, frozenset[str]] = field(default_factory=dict)
    heard: dict[int, set[str]] = field(default_factory=dict)
    uncharged: list[tuple[int, str]] = field(default_factory=list)
    crash: Exception | None = None

    @property
    def history(self) -> History:
        return tuple((success.round, frozenset(success.silos)) for success in self.successes)

    @property
    def digests(self) -> list[bytes]:
        return [success.digest for success in self.successes]


class FaultTrials(AbstractContextManager["FaultTrials"]):
    """An experiment's parties, for one trial after the other. A context that ends them."""

    def __init__(self, exp: Experiment) -> None:
        if isinstance(exp.engine, InProcess):
            exp = replace(exp, engine=Mortal())
        self.prepared: PreparedRun = prepare(exp)
        self._correct: dict[History, list[bytes]] = {}

    def __exit__(self, *failure: object) -> None:
        self.prepared.session.close()

    def run(
        self,
        faults: Iterable[Fault] = (),
        rounds: Iterable[int] = ROUNDS,
        deaths: Iterable[Death] = (),
    ) -> FaultTrial:
        """Run one trial. Parties can die where all of them are in this process.

        Exchange 0 is the set-up. A set-up that failed is repeated before the next round.
        """
        prepared = self.prepared
        network = FaultyNetwork(tuple(faults))
        trial = FaultTrial(sent=network.sent)
        prepared.standing = Standing(session_name=prepared.standing.session_name)
        if isinstance(prepared.session, MortalSession):
            prepared.session.restart(deaths)
        everybody = (*prepared.aggregation.helpers, *prepared.silos)
        prepared.session.reopen({name: {} for name in everybody})
        prepared.session.network = network
        for round in (0, *rounds):
            first = len(network.sent)
            try:
                if round == 0:
                    prepared.set_up(0, [])
                else:
                    prepared.enrol(round, [], prepared.state)
                    trial.present[round] = frozenset(prepared.silos)
                    trial.successes.append(self._round(round))
            except AggregationAbortedError as abort:
                trial.aborts[round] = str(abort)
            except Exception as crash:
                trial.crash = crash
                break
            finally:
                trial.exchanges[round] = range(first, len(network.sent))
                letters = itertools.chain.from_iterable(network.sent[first:])
                trial.heard[round] = {
                    letter.sender for letter in letters if letter.message.round == round > 0
                }
                trial.uncharged += self._uncharged(round, trial.heard[round])
        return trial

    def is_correct(self, trial: FaultTrial) -> bool:
        """Whether every sum, and everything remembered, is correct for the silos in it."""
        return trial.digests == self._expected(trial.history)

    def _uncharged(self, round: int, heard: set[str]) -> set[tuple[int, str]]:
        """The living silos that have sent something in a query without noting it."""
        session = self.prepared.session
        parties = session.participants if isinstance(session, InProcessSession) else {}
        noted = {
            name: silo.journal.last
            for name, silo in parties.items()
            if isinstance(silo, SiloParticipant)
        }
        return {(round, name) for name in heard & noted.keys() if noted[name] < (round, 0)}

    def _round(self, round: int) -> Success:
        prepared = self.prepared
        (query,) = prepared.queries(round)
        total, _ = prepared.exchange(query, prepared.state, watch=Stopwatch(), lines=[])
        remembered: dict[str, dict[str, np.ndarray]] = {}
        if query.asked.stateful:
            living = prepared.session.checkpoints(prepared.silos)
            memories = sorted({**prepared.standing.silo_states, **living}.items())
            remembered = {name: dict(memory) for name, memory in memories if memory}
        return Success(round, total.silos, digest_of((total.vector, list(total.silos), remembered)))

    def _expected(self, history: History) -> list[bytes]:
        if len(history) > 1 and not self.prepared.queries(1)[0].asked.stateful:
            return [digest for one in history for digest in self._expected((one,))]
        if history not in self._correct:
            absent = [
                drop(exchange=None if self.prepared.peers else exchange, sender=silo)
                for exchange, (_, silos) in enumerate(history, start=1)
                for silo in self.prepared.settings.silos
                if silo not in silos
            ]
            trial = self.run(absent, [round for round, _ in history])
            if trial.history != history:
                found = f"{history} cannot be repeated: {trial.history}, {trial.aborts}"
                raise AssertionError(found) from trial.crash
            self._correct[history] = trial.digests
        return self._correct[history]
