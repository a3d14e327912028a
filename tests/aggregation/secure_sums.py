"""Small secure sums for tests: silos that drop out, and messages that change on the way."""

from __future__ import annotations

import numpy as np
from plans import SYSTEM, plan_for

from fedpriv.aggregation.base import SERVER
from fedpriv.algorithms.base import Update
from fedpriv.algorithms.uldp import uniform
from fedpriv.engines.inprocess import InProcess

PHASES = ["AdvertiseKeys", "ShareKeys", "MaskedInputCollection", "ConsistencyCheck", "Unmasking"]


def names(silos):
    return [f"silo{s}" for s in range(silos)]


def ready(aggregation, silos):
    """The parties' memory after the set-up."""
    memory = {name: {} for name in [SERVER, *names(silos)]}
    counts = {name: np.ones(1, dtype=np.int64) for name in names(silos)}
    InProcess().run(aggregation.setup(counts, uniform, False, memory))
    return memory


def parties(aggregation, memory, vectors, round=1, streams=SYSTEM):
    updates = {name: Update(iter(()), np.asarray(vector, float)) for name, vector in zip(names(len(vectors)), vectors)}
    return aggregation.exchange(plan_for(aggregation, len(vectors), round, streams), updates, memory)


def dropping(party, sends):
    """Sends so many messages, and is never heard of again."""
    mail = None
    for _ in range(sends):
        try:
            mail = yield party.send(mail)
        except StopIteration:
            return


def changed(party, step, change):
    """`change` edits what the party sends in its step-th message (from 0): a dictionary by receiver."""
    mail, at = None, 0
    while True:
        try:
            sent = party.send(mail)
        except StopIteration as end:
            return end.value
        mail, at = (yield change(sent) if at == step else sent), at + 1


def noting(party, seen):
    """Appends everything the party sends to `seen`."""
    mail = None
    while True:
        try:
            sent = party.send(mail)
        except StopIteration as end:
            return end.value
        seen.append(sent)
        mail = yield sent


def run(ready_parties):
    return InProcess().run(ready_parties)[SERVER]
