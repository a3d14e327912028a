"""Lines of plain sums."""

from __future__ import annotations

import numpy as np
from parties_of_generators import Protocols, changed, run
from queries import query_for

from fedpriv.aggregation.base import MESSAGE, SERVER
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.weighted import WEIGHTS
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.weighting import RecordWeighting
from fedpriv.testing import experiment
from lines_attacked.rows import attack, refused


def plain_sum(change):
    protocols = Protocols(Plain(), (0, 1, 2))
    run(protocols.setup(np.ones((3, 1), dtype=np.int64)))
    query = query_for(Plain(), 3, size=2)
    cast = protocols.query(
        query, {name: LocalJob(iter(()), np.ones(2)) for name in protocols.names}
    )
    protocols.says(cast, "silo1", MESSAGE, lambda sent: {SERVER: change(sent[SERVER])})
    return run(cast)[SERVER].vector


@attack(
    "plain",
    "silo, cheating: send NaN or infinity",
    "NaN with a payload, minus infinity, other dtypes and shapes",
)
def no_numbers():
    nan = np.array([0x7FF8000000000001, 0], dtype=np.uint64).view(np.float64)
    wrong = [
        nan,
        np.array([-np.inf, 0]),
        np.ones(2, np.float32),
        np.ones((2, 1)),
        np.ones(3),
        np.array([1, 2]),
        [1.0, 2.0],
        None,
    ]
    for message in wrong:
        assert refused(
            lambda message=message: plain_sum(lambda _: message), AggregationAbortedError
        ), message
    return f"{len(wrong)} of {len(wrong)} end the query with the silo's name"


@attack(
    "plain",
    "silo, cheating: send any vector of finite numbers",
    "1.7e308, the largest finite number",
)
def largest():
    total = plain_sum(lambda _: np.array([1.7e308, -1.7e308]))
    return f"moves the sum to {total[0]:.1e}, unseen, as the line says"


@attack(
    "README",
    "server: make weights up that are outside 0 to 1",
    "one unit in the last place above 1, the smallest negative number, NaN, infinity, -1",
)
def weights():
    lies = [np.nextafter(1, 2), -5e-324, np.nan, np.inf, -1.0]
    for lie in lies:
        protocols = Protocols(Plain(), (0, 1, 2), RecordWeighting())
        cast = protocols.setup(np.array([[1, 2], [3, 1], [5, 6]]))

        def lying(sent, lie=lie):
            wrong = sent["silo0"].copy()
            wrong[0] = lie
            return sent | {"silo0": wrong}

        signer = lambda protocols=protocols: protocols[SERVER].signer  # noqa: E731
        cast[SERVER] = changed(cast[SERVER], WEIGHTS, lying, name=SERVER, signer=signer)
        assert refused(lambda cast=cast: run(cast), AggregationAbortedError), lie
    return f"{len(lies)} of {len(lies)} refused"


@attack(
    "plain",
    "silos, colluding: it learns nothing that it does not see",
    "the page read against the certificate of a silo",
)
def colluding_among_themselves():
    exp = experiment("algo=uldp_avg", "aggregation=plain", "mechanism=gaussian")
    silo = next(one for one in exp.aggregation.threat_model().observers if one.name == "silo")
    assert silo.own_shares == 1
    return (
        "**fell**: two silos that pool their shares leave (n - 2) / n of the noise; the "
        "certificate against a silo counts (n - 1) / n. README has a line on it now"
    )
