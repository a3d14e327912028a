"""A round's exchange in the shuffle model, with noise of the operating system beside seeded noise.

Silos round their records to levels and count bits; a server sums the counts. Times are processor
seconds of one core for all parties, as in a run: per-record vectors arrive in blocks, are bounded,
become levels, get noise bits, and travel as counts to the shuffler and the server. The two sources
of noise take alternating turns in one process; the ratio is that of `system` to `seeded`. The case
is MNIST odd / even with 25 silos and 1,238 records of 3,394 parameters each. `wide` is a thousandth
of a million records with 10^5 coordinates: memory is the same for all of it, time is proportional.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import ratio


@dataclass(frozen=True)
class Case:
    """A configuration.

    name: name in the output.
    silos: number of silos.
    records: records of a silo.
    size: coordinates of a vector.
    block: records in memory at a time.
    """

    name: str
    silos: int
    records: int
    size: int
    block: int


TURNS = 3
CASES = (Case("MNIST round", 25, 1238, 3394, 256), Case("wide", 25, 40, 100_000, 8))
NOISE = {"seeded": False, "system": True}


def main() -> None:
    """Print a line for each case and source of noise."""
    for case in CASES:
        turns, mib = in_fresh_process(measure, case)
        coordinates = case.silos * case.records * case.size
        for name, found in turns.items():
            making, seconds, error = (float(np.median(column)) for column in zip(*found))
            print(
                f"{case.name:>12} {name:>7} {seconds:6.2f} s, {making:5.2f} s of it to make "
                f"vectors, {seconds / coordinates * 1e9:5.1f} ns a coordinate, peak {mib:6.0f} "
                f"MiB, error {error:.2f} deviations",
                flush=True,
            )
        seeded, system = ([seconds for _, seconds, _ in found] for found in turns.values())
        print(f"{case.name:>12} {ratio(seeded, system)}")


def measure(case: Case) -> tuple[dict[str, list[tuple[float, float, float]]], float]:
    """The exchanges of every turn by source of noise, and MiB at the peak."""
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name in NOISE}
    for _ in range(TURNS):
        for name, system in NOISE.items():
            turns[name].append(exchange(case, system))
    return turns, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def exchange(case: Case, system: bool) -> tuple[float, float, float]:
    """Seconds to make the vectors, seconds in all, and the root mean square error of the sum over
    its standard deviation."""
    from fedpriv.aggregation.shuffle import Shuffle
    from fedpriv.engines.inprocess import InProcess
    from fedpriv.mechanisms.binomial import Binomial
    from fedpriv.parties.party import Participant, Party, PartySpec
    from fedpriv.rounds.bounding import bounded
    from fedpriv.rounds.contributors import RecordsInFull
    from fedpriv.rounds.local_job import LocalJob
    from fedpriv.rounds.plan import Federation
    from fedpriv.rounds.query import Broadcast, Exchange, Query, SetUpTask
    from fedpriv.training.contributions import Contributions, ContributionStats
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
        exchange=Exchange(b"s" * 16, n_units=case.records),
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

    def respond(silo: int) -> LocalJob:
        rng = streams.secret("noise", 1, names[silo])
        noise = mechanism.noise_share(case.size, case.silos, rng, encoding=encoding)
        return LocalJob(bounded(blocks(silo), query, ContributionStats()), noise)

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
    task = SetUpTask(query.exchange.session, ())
    counts = np.ones(case.records, dtype=np.int64)
    run(
        {name: silo.setup(task, counts) for name, silo in silos.items()}
        | {name: helper.setup(task, case.records) for name, helper in helpers.items()}
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
    deviation = mechanism.noise_multiplier * mechanism.clip
    error = float(np.sqrt(np.mean((learned["server"].vector - true) ** 2)) / deviation)
    return making[0], seconds, error
