"""Deployments without a run, and what an algorithm answers to a query at one silo of them."""

from __future__ import annotations

from fedpriv.aggregation.deploy import Deployer
from fedpriv.aggregation.plain import Plain
from fedpriv.simulation.silo import ahead, bounded, contributions
from fedpriv.streams import Streams
from fedpriv.training.optimizers import Sgd


def deployed(algo, mechanism, aggregation=Plain(), *, federation, streams=Streams(0), optimizer=Sgd()):  # noqa: B008
    """The deployment with calibrated noise. Raises ConfigError for components that cannot work together."""
    return Deployer(algo, aggregation, mechanism, optimizer, streams).deploy(federation)


def only_query(algo, deployment, round=1):
    """The one query of a round."""
    [query] = algo.queries(round, deployment)
    return query


def answer(algo, silo, query, params):
    """A silo's contributions, each within the bound if the query enforces it, and the noise share (size,) if the
    algorithm draws it itself."""
    asked = query.silo_query()
    local = algo.local_update(silo, asked, {"params": params})
    return list(bounded(contributions(local, silo, ahead(local, silo, asked)), asked, local.tally)), local.noise


def block_of(algo, silo, query, params):
    """The vectors of the only block of contributions, (k, size) float64."""
    [block], _ = answer(algo, silo, query, params)
    return block.vectors.numpy()
