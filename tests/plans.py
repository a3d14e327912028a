"""Plans without a run, and what an algorithm answers to a query at one silo of them."""

from __future__ import annotations

from fedpriv.accountants.ledger import Ledger
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.planner import Planner
from fedpriv.rounds.bounding import bounded
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import events_of
from fedpriv.training.optimizers import Sgd
from fedpriv.util.streams import Streams


def make_plan(
    algo, mechanism, aggregation=Plain(), *, federation, streams=Streams(0), optimizer=Sgd()
):
    """The plan with calibrated noise. Raises ConfigError for components that cannot work
    together.
    """
    return Planner(algo, aggregation, mechanism, optimizer, streams).plan(federation)


def only_query(algo, plan, round=1):
    """The one query of a round."""
    [query] = algo.queries(round, plan)
    return query


def charged(algo, plan, rounds, accountant):
    """The rows of the ledger after so many rounds."""
    ledger = Ledger(accountant)
    for number in range(1, rounds + 1):
        ledger.record(events_of(algo.queries(number, plan)))
    return ledger.rows(rounds)


def answer(algo, silo, query, params):
    """A silo's contributions, each within the bound if the query enforces it, and the noise share
    (size,) if the algorithm draws it itself."""
    local = algo.local_update(silo, query, {"params": params})
    return list(LocalJob(bounded(local.steps, query, local.stats)).contributions), local.noise


def block_of(algo, silo, query, params):
    """The vectors of the only block of contributions, (k, size) float64."""
    [block], _ = answer(algo, silo, query, params)
    return block.vectors.numpy()
