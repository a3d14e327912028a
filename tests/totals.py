"""The sum of one query, as a round releases it."""

from dataclasses import replace

from fedpriv.runtime import prepare
from fedpriv.testing.observation import without_plan_noise
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams


def total(exp, name, *, noisy, round=1, state=None):
    """The sum (size,) of a round's query `name`, which everything is drawn for with seed 0.

    state: state of the query; None: the state after the round's earlier queries, from the first
        state.
    """

    def seeded(plan):
        return replace(plan, streams=Streams(0))

    with prepare(exp, revise=seeded if noisy else without_plan_noise(seeded)) as run:
        now = state or run.state
        for query in run.queries(round):
            if state is not None and query.name != name:
                continue
            run.rehearse(query)
            found, _ = run.exchange(query, now, watch=Stopwatch(), lines=[])
            if query.name == name:
                return found.vector
            now = run.algo.next_state(now, query, found, run.plan)
    raise AssertionError(f"round {round} has no query {name}")
