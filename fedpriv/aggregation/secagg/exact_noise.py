"""Secure sums over everybody who delivers, whose noise has the right variance however many that
are.

Z. Jiang, W. Wang, R. Chen, Efficient federated learning with dropout-resilient differential privacy
(EuroSys 2024), on top of the protocol in `aggregation`, on its complete graph. A sum covers all of
U4, from `cohort` to `candidates` silos. Each silo noises for `cohort`, in parts (`RemovableNoise`),
and shares the parts' secrets among the candidates as it does its masks' secrets. Once the set is
signed, each survivor sends the secret of its own surplus and its shares of the others': the server
takes the surplus off the sum, also that of silos that have left in between.

    symbol           here            meaning
    |U|              candidates      most silos in the sum
    |U| - T          cohort          fewest; each silo's noise is sized for them
    T_C              colluding       silos whose noise counts for nothing, since they tell it to
    whoever looks

Where the paper makes the noise larger for T_C colluding silos, here the certificate counts theirs
out; choose the noise for it. Its last stage, in which survivors answer for silos that have left, is
part of Unmasking: a survivor sends its shares of everybody's surplus.

Trust, beyond that of the protocol underneath: a wrong secret of a survivor is found by the
commitment, and so is its name; a wrong share too, where more than `threshold` silos answer. Nothing
proves that a silo has added the noise that it has committed to. One that adds none takes its share
from all others' privacy, as if it colluded (`colluding` covers so many of them); one that lets go
of noise which it has not added makes the sum noisier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedpriv.aggregation.secagg.aggregation import SecAgg, SecAggServer, SecAggSilo
from fedpriv.aggregation.secagg.exact_server import ExactCollector
from fedpriv.aggregation.secagg.exact_silo import ExactMember
from fedpriv.errors import require

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Algorithm
    from fedpriv.mechanisms.removable_noise import RemovableNoise
    from fedpriv.rounds.plan import Observer, ThreatModel
    from fedpriv.rounds.query import Query, Update
    from fedpriv.rounds.weighting import Weighting


@dataclass(frozen=True)
class SecAggExactNoise(SecAgg):
    """Sums modulo 2^bits over `cohort` silos or more, all that deliver, with as much noise for any
    number of them.

    cohort: null = threshold.

    colluding: silos whose noise the server, or a curious silo, itself among them, is taken to know.
    """

    colluding: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "null, since exact noise keeps to the complete graph"
        require(self.neighbours is None, "aggregation.neighbours", self.neighbours, allowed)
        for key in ("dropouts", "corrupt", "security_bits", "correctness_bits"):
            unsaid = getattr(self, key) == getattr(SecAgg, key)
            require(
                unsaid,
                f"aggregation.{key}",
                getattr(self, key),
                "left out: it is about a sparse graph alone",
            )
        require(
            self.colluding >= 0,
            "aggregation.colluding",
            self.colluding,
            "zero or a positive number of silos",
        )

    def check(self, algo: Algorithm) -> None:
        allowed = (
            "another one: secagg_exact_noise sums over a number of silos that varies, and "
            f"{algo.label} needs it fixed "
            "or noises inside local training"
        )
        require(algo.contributors.any_number, "aggregation", "secagg_exact_noise", allowed)

    def n_most(self, n_invited: int) -> int:
        return self._numbers(n_invited)[2]

    def threat_model(self) -> ThreatModel:
        base = super().threat_model()
        assumptions = (
            "nothing proves that a silo has added the noise that it has committed to",
            "SHA-256 is one-way and AES-256 is sound: noise that stays in a sum is made of their "
            "output",
        )
        released, server, silo = base.observers
        observers = (released, self._told(server), self._told(silo))
        return replace(base, observers=observers, assumptions=(*base.assumptions, *assumptions))

    def _told(self, observer: Observer) -> Observer:
        """The observer with the noise that colluding silos tell it."""
        own = observer.own_shares
        return replace(
            observer, own_shares=max(own, self.colluding), colluding=max(0, self.colluding - own)
        )

    def _numbers(self, silos: int) -> tuple[int, int, int]:
        threshold, cohort, candidates = super()._numbers(silos)
        if self.cohort is None:
            cohort = threshold
        allowed = (
            f"fewer than aggregation.cohort={cohort}, and than {2 * threshold - candidates}, 2 "
            "threshold - candidates"
        )
        fits = self.colluding < min(cohort, 2 * threshold - candidates)
        require(fits, "aggregation.colluding", self.colluding, allowed)
        return threshold, cohort, candidates

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> ExactSilo:
        return ExactSilo(name, silos, weighting, self)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> ExactServer:
        return ExactServer(silos, weighting, self)


class ExactSilo(SecAggSilo):
    """A silo that lets go of its surplus noise."""

    def _member(self, query: Query, update: Update, parts: dict[str, Any]) -> ExactMember:
        if update.secret is None:
            raise ValueError(
                f"query {query.name}: noise without the secret that parts of it can be taken out by"
            )
        return ExactMember(**parts, noise=_removable(query), secret=update.secret)


class ExactServer(SecAggServer):
    """A server that takes surplus noise off the sum."""

    def _collector(self, query: Query, parts: dict[str, Any]) -> ExactCollector:
        return ExactCollector(**parts, noise=_removable(query))


def _removable(query: Query) -> RemovableNoise:
    if query.removable is None:
        raise ValueError(
            f"query {query.name}: a sum over any number of silos needs noise that can be taken out"
        )
    return query.removable
