"""Parties for tests that have their generators already, and ways to make them misbehave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpriv.aggregation.base import Aggregation
from fedpriv.algorithms.base import silo_name
from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.party import Participant, Party, PartySpec
from fedpriv.query import Broadcast, SetUp
from fedpriv.weighting import UniformWeighting, Weighting


@dataclass(frozen=True)
class Ready(PartySpec, Participant):
    """Takes part as `party` says, once."""

    party: Party

    def open(self, memory):
        return self

    def take_part(self, task):
        return self.party


def run(generators, traffic=None, engine=InProcess()):  # noqa: B008
    """Run one exchange; what each party has learned, by name."""
    with engine.open({name: Ready(party) for name, party in generators.items()}, {}) as session:
        return session.run(dict.fromkeys(generators), traffic)


@dataclass
class Protocols:
    """Every party's part in an aggregation, by name, with what each remembers. silos: their indices."""

    aggregation: Aggregation
    silos: tuple[int, ...]
    weighting: Weighting = field(default_factory=UniformWeighting)
    members: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(silo_name(index) for index in self.silos)
        arguments = self.names, self.weighting
        self.members = {name: self.aggregation.silo(name, *arguments) for name in self.names}
        self.members |= {name: self.aggregation.helper(name, *arguments) for name in self.aggregation.helpers}

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def setup(self, counts: np.ndarray) -> dict[str, Party]:
        """The set-up's parties. counts: (n_silos, n_units) int64."""
        task = SetUp(b"s" * 16, counts.shape[1])
        parties = {name: self.members[name].setup(task, own) for name, own in zip(self.names, counts)}
        return parties | {name: self.members[name].setup(task) for name in self.aggregation.helpers}

    def query(self, query, updates, broadcast=Broadcast({})) -> dict[str, Party]:  # noqa: B008
        """A query's parties. updates: each invited silo's, by name, or a function from the broadcast to it."""
        parties = {}
        for name, update in updates.items():
            respond = update if callable(update) else lambda _, update=update: update
            parties[name] = self.members[name].query(query.silo_query(), respond)
        return parties | {name: self.members[name].query(query, broadcast) for name in self.aggregation.helpers}


def dropping(party, steps):
    """Takes part in so many steps, and is never heard of again. A silo's first step of a query is to wait."""
    mail = None
    for _ in range(steps):
        try:
            mail = yield party.send(mail)
        except StopIteration:
            return


def changed(party, step, change):
    """`change` edits what the party sends in its step-th step (from 0): a dictionary by receiver."""
    mail, at = None, 0
    while True:
        try:
            sent = party.send(mail)
        except StopIteration as end:
            return end.value
        mail, at = (yield change(sent) if at == step else sent), at + 1


def noting(party, seen):
    """Appends everything the party sends to `seen`: dictionaries by receiver, without the steps in which it waits."""
    mail = None
    while True:
        try:
            sent = party.send(mail)
        except StopIteration as end:
            return end.value
        if sent:
            seen.append(sent)
        mail = yield sent
