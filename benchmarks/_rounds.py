"""Timed rounds of the command's own configurations, on records in memory."""

from __future__ import annotations

import time
from dataclasses import replace


def in_memory(data, records, *words: str, **changes):
    """The prepared run of a command, beside another program: each party verifies what it receives,
    which a simulation may save.

    data: its data set, whose records are replaced.
    records: the records to train on.
    changes: changed fields of the experiment.
    """
    from fedpriv.data.base import Corpus, Records
    from fedpriv.engines.base import Network
    from fedpriv.runtime import prepare
    from fedpriv.settings.compose import one_experiment

    few = slice(100)
    test = Records(
        records.x[few], records.y[few], user=None if records.user is None else records.user[few]
    )

    class InMemory(type(data)):
        natural_users = records.user is not None

        def load(self, streams):
            return Corpus(records, test)

    class Read(Network):
        """Somebody else may read the messages, so that parties sign and check them."""

    exp = one_experiment(*words)
    run = prepare(replace(exp, data=InMemory(**vars(exp.data)), **changes))
    run.session.network = Read
    return run


def timed(prepared, state, number: int, now=time.process_time):
    """The state after a round, and the seconds it took on the clock `now`."""
    since = now()
    state = prepared.run_round(prepared.queries(number), state).state
    return state, now() - since
