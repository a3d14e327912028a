"""Parties for tests that have their generators already, and ways to make them misbehave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpriv.aggregation.base import Aggregation
from fedpriv.crypto.roster import Identity, new_identities
from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.party import Participant, Party, PartySpec, silo_name
from fedpriv.parties.post import Post, contents
from fedpriv.rounds.contributors import UniformWeighting, Weighting
from fedpriv.rounds.query import Broadcast, Exchange, SetUpTask
from fedpriv.testing.faults import Faulty

SESSION = b"s" * 16
SIGNERS = {}
"""The parties' signers of the last set-up, by name."""


@dataclass(frozen=True)
class Ready(PartySpec, Participant):
    """Takes part as `party` says, once."""

    party: Party

    def open(self, memory):
        return self

    def take_part(self, task):
        return self.party


WATCHED = Faulty(InProcess(), ())
"""Its messages are signed, so that tests may read and change them."""


def run(generators, traffic=None, engine=WATCHED):
    """Run one exchange; what each party has learned, by name."""
    with engine.open({name: Ready(party) for name, party in generators.items()}, {}) as session:
        return session.run(dict.fromkeys(generators), traffic)


@dataclass
class Protocols:
    """Every party's part in an aggregation, by name, with what each remembers. silos: their
    indices."""

    aggregation: Aggregation
    silos: tuple[int, ...]
    weighting: Weighting = field(default_factory=UniformWeighting)
    members: dict[str, Any] = field(init=False)
    identities: dict[str, Identity] = field(init=False)

    def __post_init__(self) -> None:
        self.names = tuple(silo_name(index) for index in self.silos)
        arguments = self.names, self.weighting
        self.members = {name: self.aggregation.silo(name, *arguments) for name in self.names}
        self.members |= {
            name: self.aggregation.helper(name, *arguments) for name in self.aggregation.helpers
        }
        self.identities = new_identities(self.members)

    def __getitem__(self, name: str) -> Any:
        return self.members[name]

    def setup(self, counts: np.ndarray) -> dict[str, Party]:
        """The set-up's parties. counts: (n_silos, n_units) int64."""
        task = SetUpTask(SESSION, ())
        for name, member in self.members.items():
            member.signer = SIGNERS[name] = self.identities[name].signer(b"settings", SESSION)
        parties = {
            name: self.members[name].setup(task, own) for name, own in zip(self.names, counts)
        }
        helpers = self.aggregation.helpers
        return parties | {name: self.members[name].setup(task, counts.shape[1]) for name in helpers}

    def ready(self, counts: np.ndarray) -> Protocols:
        """Run the set-up."""
        run(self.setup(counts))
        return self

    def query(self, query, updates, broadcast=Broadcast({})) -> dict[str, Party]:  # noqa: B008
        """A query's parties. updates: each invited silo's, by name, or a function from the
        broadcast to it."""
        query, parties = addressed(query, broadcast), {}
        for name, update in updates.items():
            respond = update if callable(update) else lambda _, update=update: update
            parties[name] = self.members[name].query(query, respond)
        return parties | {
            name: self.members[name].query(query, broadcast) for name in self.aggregation.helpers
        }

    def says(self, parties, name, phase, change) -> None:
        """Make a party of a query say something else in a phase: `change` edits the contents by
        receiver, and the party stamps and signs what comes out, as a cheat would."""
        parties[name] = changed(
            parties[name], phase, change, name=name, signer=self.members[name].signer
        )

    def letter(self, query, phase, sender, receiver, content):
        """A message of a query as its sender stamps and signs it."""
        post = addressed(query, Broadcast({})).post(sender, self.members[sender].signer)
        return next(post.send(phase, {receiver: content}))[receiver]


def addressed(query, broadcast):
    """The query with what its messages are checked by, as a simulation fills it in."""
    down = tuple((name, vector.shape) for name, vector in broadcast.vectors.items())
    n_units = query.exchange.n_units if broadcast.sampled is None else len(broadcast.sampled)
    return replace(query, exchange=Exchange(SESSION, 0, down, n_units))


def dropping(party, steps):
    """Takes part in so many steps, and is never heard of again. A silo's first step of a query is
    to wait."""
    mail = None
    for _ in range(steps):
        try:
            mail = yield party.send(mail)
        except StopIteration:
            return


def changed(party, phase, change, *, name, signer=None):
    """`change` edits the contents, by receiver, of what the party sends in a phase. What comes out
    gets the same stamp, and `name`'s signature: with its key of the last set-up unless another
    signer, or a function that returns one, is given."""

    def restamped(sent):
        stamp = next(iter(sent.values()))
        post = Post(
            name,
            stamp.session,
            (stamp.round, stamp.place),
            SIGNERS[name] if signer is None else signer() if callable(signer) else signer,
        )
        return next(post.send(phase, change(contents(sent))))

    return on_its_way(party, phase, restamped)


def on_its_way(party, phase, change):
    """`change` edits what the party has sent in a phase, stamps and signatures and all, as somebody
    on the way would: a dictionary by receiver."""

    def edited(sent):
        return change(sent) if {message.phase for message in sent.values()} == {phase} else sent

    return overheard(party, sends=edited)


def noting(party, seen, note=contents):
    """Appends everything the party sends to `seen`: dictionaries of contents by receiver, without
    the steps in which it waits. note: what is kept of each."""

    def kept(sent):
        if sent:
            seen.append(note(sent))
        return sent

    return overheard(party, sends=kept)


def overheard(party, *, sends=lambda sent: sent, hears=lambda mail: mail):
    """The party, with what it sends and hears changed on the way."""
    mail = None
    while True:
        try:
            sent = party.send(mail)
        except StopIteration as end:
            return end.value
        mail = hears((yield sends(sent)))
