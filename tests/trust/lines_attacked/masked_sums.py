"""Lines of masked sums."""

from __future__ import annotations

import numpy as np
import pytest
from aggregation.test_masked_servers import check as masked_server
from parties_of_generators import Protocols, run
from queries import query_for

from fedpriv.aggregation.base import MESSAGE, SERVER
from fedpriv.aggregation.masked import Masked, mask
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.local_job import LocalJob
from lines_attacked.rows import CHANCE, attack


@attack(
    "masked",
    "silos, colluding, with the server: learn the sum of the others, and no more",
    "100 servers of drawn lies with zero to three silos",
)
def masked_servers():
    learned = sum(masked_server(CHANCE.randrange(10**6, 10**9))[0] for _ in range(100))
    return f"{learned} sums of all honest silos learned, nothing beside"


@attack(
    "masked",
    "silos, colluding, with the server: no more than the others' sum",
    "the page read against the certificate of the server",
)
def masked_noise():
    server = next(one for one in Masked().threat_model().observers if one.name == SERVER)
    assert server.own_shares == server.colluding == 0
    return (
        "**fell**: the sum of the others has (n - c) / n of the noise, and the server's "
        "certificate counts n. The line says so now"
    )


@attack(
    "masked",
    "server, curious: compare queries, cohorts or set-ups",
    "2,000 masks of drawn serials, models and cohorts under one seed",
)
def masks():
    seeds = {f"silo{i}": CHANCE.randbytes(32) for i in range(6)}
    seen, told = set(), set()
    for _ in range(2000):
        cohort = tuple(sorted(CHANCE.sample([*seeds], CHANCE.randint(2, 6))))
        about = (
            (CHANCE.randint(1, 99), CHANCE.randint(0, 9)),
            CHANCE.choice([b"", b"m", b"n"]),
            cohort,
        )
        if "silo0" not in cohort or about in told:
            continue
        told.add(about)
        made = mask(
            np.zeros(4, np.uint64), "silo0", cohort, seeds=seeds, serial=about[0], told=about[1]
        )
        seen.add(made.tobytes())
    assert len(seen) == len(told)
    return f"{len(told)} masks, all different"


@attack(
    "masked",
    "server, curious: it sees uniformly random integers",
    "chi-square of each byte of 40,000 masked zeros",
)
def uniform():
    seeds = {f"silo{i}": CHANCE.randbytes(32) for i in range(3)}
    made = mask(np.zeros(40_000, np.uint64), "silo0", seeds, seeds=seeds, serial=(1, 0))
    worst = max(
        float(((np.bincount(column, minlength=256) - 156.25) ** 2 / 156.25).sum())
        for column in made.view(np.uint8).reshape(-1, 8).T
    )
    assert worst < 370  # 255 expected, standard deviation 22.6
    return f"worst of eight bytes {worst:.0f} (expected 255, deviation 22.6)"


@attack(
    "masked",
    "silo, cheating: move its message",
    "beyond the range: does the query end with its name?",
)
def beyond():
    protocols = Protocols(Masked(), (0, 1, 2))
    run(protocols.setup(np.ones((3, 1), dtype=np.int64)))
    query = query_for(Masked(), 3, size=2)
    cast = protocols.query(
        query, {name: LocalJob(iter(()), np.ones(2)) for name in protocols.names}
    )
    protocols.says(
        cast,
        "silo1",
        MESSAGE,
        lambda sent: {SERVER: sent[SERVER] + np.array(2**62, sent[SERVER].dtype)},
    )
    with pytest.raises(AggregationAbortedError) as abort:
        run(cast)
    assert "silo1" not in str(abort.value)
    return (
        "ends without a name, as the line says; README said that every exchange ends with a "
        "name: **fell**, and has the exception now"
    )
