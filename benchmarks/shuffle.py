"""A round's exchange in the shuffle model: silos round their records to levels, count bits, and a
server sums them.

Processor seconds and memory of one core for all parties together, in the order of a run: per-record
vectors are there (one block of a silo's at a time, as local training would give them), are bounded,
become levels, get noise bits, and travel as counts through the gate to the shuffler and the server.
The case is MNIST odd / even with 25 silos and 1,238 records of 3,394 parameters each. `wide` is one
part in a thousand of a million records with 10^5 coordinates: memory stays the same for all of it,
and time grows in proportion.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks._apart import apart


@dataclass(frozen=True)
class Case:
    """block: records whose vectors are there at a time."""

    name: str
    silos: int
    records: int
    size: int
    block: int


CASES = (Case("MNIST round", 25, 1238, 3394, 256), Case("wide", 25, 40, 100_000, 8))
EXACT = {"seeded": False, "system": True}


def main() -> None:
    for case in CASES:
        for name, system in EXACT.items():
            vectors, seconds, mib, error = apart(measure, case, system)
            cells = case.silos * case.records * case.size
            print(
                f"{case.name:>12} {name:>7} {seconds:6.2f} s, of that {vectors:5.2f} s to make "
                "vectors, "
                f"{seconds / cells * 1e9:5.1f} ns a coordinate, {mib:6.0f} MiB at most, error "
                f"{error:.2f} deviations"
            )


def measure(case: Case, system: bool) -> tuple[float, float, float, float]:
    """Seconds in which the vectors were made, seconds in all, MiB at the peak, and the sum's error
    over its standard deviation, root mean square over coordinates."""
    from fedpriv.aggregation.shuffle import Shuffle
    from fedpriv.engines.inprocess import InProcess
    from fedpriv.mechanisms.binomial import Binomial
    from fedpriv.parties.party import Participant, Party, PartySpec
    from fedpriv.rounds.plan import Federation
    from fedpriv.rounds.query import Broadcast, Contributions, Query, SetUp, Update
    from fedpriv.rounds.weighting import RecordsInFull
    from fedpriv.runtime.silo import bounded
    from fedpriv.training.contribution_stats import ContributionStats
    from fedpriv.util.streams import Streams

    names = tuple(f"silo{s}" for s in range(case.silos))
    mechanism = Binomial(1.0, 1.0).with_gaussian_cost(2.0, case.size)
    streams = Streams(0, system=system)
    aggregation = Shuffle()
    weighting = RecordsInFull()
    federation = Federation(1, case.silos, case.size, (case.records,) * case.silos)
    encoding = aggregation.encoding(case.silos, 1.0, federation, mechanism)
    query = Query(
        "update",
        1,
        tuple(range(case.silos)),
        case.silos,
        case.size,
        mechanism,
        encoding,
        (),
        streams,
        session=b"s" * 16,
        n_units=case.records,
    )
    making = [0.0]
    true = np.zeros(case.size)

    def blocks(silo: int) -> Iterator[Contributions]:
        import torch

        draw = torch.Generator().manual_seed(silo)
        for start in range(0, case.records, case.block):
            since = time.process_time()
            units = np.arange(start, min(start + case.block, case.records))
            vectors = torch.randn(len(units), case.size, generator=draw, dtype=torch.float32)
            vectors /= vectors.norm(dim=1, keepdim=True) * (1 + 1e-6)
            true[:] += vectors.double().sum(0).numpy()
            making[0] += time.process_time() - since
            yield Contributions(units, vectors)

    def respond(silo: int) -> Update:
        rng = streams.secret("noise", 1, names[silo])
        noise = mechanism.noise_share(case.size, case.silos, rng, encoding=encoding)
        return Update(bounded(blocks(silo), query, ContributionStats()), noise)

    @dataclass(frozen=True)
    class Given(PartySpec, Participant):
        party: Party

        def open(self, memory: object) -> Given:
            return self

        def take_part(self, task: object) -> Party:
            return self.party

    def run(parties: dict[str, Party]) -> dict[str, object]:
        with InProcess().open(
            {name: Given(party) for name, party in parties.items()}, {}
        ) as session:
            return session.run(dict.fromkeys(parties), None)

    silos = {name: aggregation.silo(name, names, weighting) for name in names}
    helpers = {name: aggregation.helper(name, names, weighting) for name in aggregation.helpers}
    task = SetUp(query.session, case.records)
    counts = np.ones(case.records, dtype=np.int64)
    run(
        {name: silo.setup(task, counts) for name, silo in silos.items()}
        | {name: helper.setup(task) for name, helper in helpers.items()}
    )
    since = time.process_time()
    asked = {
        name: silo.query(query, lambda _, s=s: respond(s))
        for s, (name, silo) in enumerate(silos.items())
    }
    learned = run(
        asked | {name: helper.query(query, Broadcast({})) for name, helper in helpers.items()}
    )
    seconds = time.process_time() - since
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    deviation = mechanism.noise_multiplier * mechanism.clip
    error = float(np.sqrt(np.mean((learned["server"].vector - true) ** 2)) / deviation)
    return making[0], seconds, peak, error
