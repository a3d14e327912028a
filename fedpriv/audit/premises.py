"""What a certificate assumes of distances, noise and samples, measured on the run's own path.

A certificate of many releases rests on more than one round:

- Distance: no unit of the run's file moves what is given to the noise by more than is charged, or
  what another user contributes, nor does any of a file in which all reach their bounds
  (`fedpriv.testing.sensitivity`). Canaries have records of their own, so no attack sees what
  allocation and truncation make of the file.
- Noise: in every round, silo and coordinate there is as much as events say, of the right shape, and
  independent of all other noise. What an observer knows is subtracted first. It is measured on the
  run's own data and network (`fedpriv.testing.noise`).
- Repetition: a round that is done again after a resume has the same bits, so that it is charged
  once. With noise of the operating system it is charged again, and its noise must be fresh.
- Inclusion: a unit is in a sample no more often than the event says, independently in each round.
  That is measured on a file whose records have a feature each (`fedpriv.testing.draws`).

Each is a test of a hypothesis. A measurement can refute a certificate. It proves no epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedpriv.aggregation.plain import Plain
from fedpriv.audit.canary_run import with_noise_of
from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Plan
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.draws import sample_premises
from fedpriv.testing.neighbouring_files import extreme
from fedpriv.testing.noise import noise_premises
from fedpriv.testing.premise import Premise
from fedpriv.testing.sensitivity import distances

Unit = tuple[str, str, str]
"""Unit, adjacency and group of users of a certificate."""
UNITS = 20
"""Users, and records, that differ in the file, one at a time, if time allows."""
ROUNDED = 1e-4
"""Share of a distance that counts as rounding: accelerators may add in any order."""
MOST_ROUNDS = 30
"""Most rounds whose noise and samples are measured."""


def file_premises(
    exp: Experiment, plan: Plan, seconds: float, units: int = UNITS
) -> Iterator[tuple[Unit, Premise]]:
    """Measure the distances of all units that certificates describe.

    plan: plan of the audited run.
    seconds: time for each unit, adjacency and file; one neighbouring file is compared in any case.
    units: users, and records, that differ in each file.
    """
    quick = _fast(exp, plan)
    rounds = min(2, exp.options.rounds)
    for file in (quick, extreme(quick)):
        for one in distances(file, users=units, records=units, rounds=rounds, seconds=seconds):
            if one.certified:
                yield (one.target.unit, one.target.adjacency, one.group), one.premise(ROUNDED)


def run_noise(
    exp: Experiment, plan: Plan, *, colluding: int, seconds: float, values: int
) -> Iterator[Premise]:
    """Measure the noise of the audited run.

    plan: its plan, in which observers know the shares of `colluding` silos.
    seconds: processor time.
    values: noise values of silos or steps that are enough.
    """
    quick = _fast(exp, plan)
    known = with_noise_of(plan)

    def change(own: Plan) -> Plan:
        same = quick.aggregation == exp.aggregation
        return replace(known(own), threat_model=(plan if same else own).threat_model)

    silos = range(exp.allocator.n_silos)
    colluders = tuple(map(silo_name, silos[-min(colluding, len(silos)) :]))
    rounds = min(exp.options.rounds, MOST_ROUNDS)
    yield from noise_premises(
        quick, change, seconds=seconds, values=values, rounds=rounds, colluders=colluders
    )


def run_samples(exp: Experiment, plan: Plan, seconds: float) -> Iterator[Premise]:
    """Measure the samples of the audited run's units. plan: its plan."""
    rounds = min(exp.options.rounds, MOST_ROUNDS)
    return sample_premises(_fast(exp, plan), rounds=rounds, seconds=seconds)


def _fast(exp: Experiment, plan: Plan) -> Experiment:
    """The experiment in this process, with sums in the clear where the protocol is slow: they are
    the same."""
    slow = bool(exp.aggregation.estimate(exp.algo.queries(1, plan)[0], plan.federation))
    return replace(exp, engine=InProcess(), aggregation=Plain() if slow else exp.aggregation)
