"""Rounds of the command's own configurations: on records in memory, and timed."""

from __future__ import annotations

import time
from dataclasses import replace


def in_memory(kind, records, *words: str, **changes):
    """The simulation that `words` stand for, on `records` in place of the data set `kind`'s own.
    changes: of the experiment."""
    from fedpriv.data.base import Corpus, Records
    from fedpriv.runtime import prepare
    from fedpriv.settings.compose import one_experiment

    few = slice(100)
    test = Records(
        records.x[few], records.y[few], user=None if records.user is None else records.user[few]
    )

    class InMemory(type(kind)):
        natural_users = records.user is not None

        def load(self, streams):
            return Corpus(records, test)

    exp = one_experiment(*words)
    return prepare(replace(exp, data=InMemory(**vars(exp.data)), **changes))


def timed(prepared, state, number: int, now=time.process_time):
    """The state after a round, and the processor seconds that it took, or those of `now`."""
    since = now()
    state = prepared.run_round(prepared.queries(number), state).state
    return state, now() - since
