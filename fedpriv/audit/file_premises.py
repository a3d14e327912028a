"""The distance that one unit of the file moves what is given to the noise, beside the distance
that the certificate charges.

Canaries have records of their own, so no attack sees what reading, allocation and truncation make
of the run's own file. Here its records are deleted or replaced (`fedpriv.testing.sensitivity`).
"""

from __future__ import annotations

from dataclasses import replace

from fedpriv.aggregation.plain import Plain
from fedpriv.audit.premises import Premise
from fedpriv.engines.inprocess import InProcess
from fedpriv.rounds.plan import Plan
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.sensitivity import distances

UNITS = 20
"""Users, and records, that differ in the file, one at a time, if time allows."""
ROUNDED = 1e-4
"""Share of a distance that counts as rounding: accelerators may add in any order."""

FilePremises = dict[tuple[str, str], list[Premise]]
"""By unit and adjacency: what was measured."""


def file_premises(exp: Experiment, plan: Plan, seconds: float) -> FilePremises:
    """Measure the distances of all units that certificates describe.

    plan: plan of the audited run.
    seconds: time for each unit and adjacency; one neighbouring file is compared in any case.
    """
    found: FilePremises = {}
    for one in distances(_fast(exp, plan), users=UNITS, records=UNITS, seconds=seconds):
        if one.certified:
            premise = Premise(
                "",
                f"distance that a {one.target.unit} of the file moves ({one.relation}, "
                f"largest of {one.tried})",
                one.ratio,
                1.0,
                1.0 if one.ratio <= 1 + ROUNDED else 0.0,
            )
            found.setdefault((one.target.unit, one.target.adjacency), []).append(premise)
    return found


def _fast(exp: Experiment, plan: Plan) -> Experiment:
    """The experiment in this process, with sums in the clear where the protocol is slow: they are
    the same."""
    slow = bool(exp.aggregation.estimate(exp.algo.queries(1, plan)[0], plan.federation))
    return replace(exp, engine=InProcess(), aggregation=Plain() if slow else exp.aggregation)
