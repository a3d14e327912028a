"""Secure sums over all silos that deliver, with the right noise variance for any number of them.

Z. Jiang, W. Wang, R. Chen, Efficient federated learning with dropout-resilient differential privacy
(EuroSys 2024), on top of the protocol in `aggregation`, on its complete graph. A sum covers all of
U4, from `cohort` to `candidates` silos. Each silo adds noise for `cohort` silos, in parts
(`RemovableNoise`). It shares the parts' secrets among the candidates like its masks' secrets. Once
the set is signed, each survivor sends the secret of its own surplus and its shares of the others'
secrets. The server then removes the surplus from the sum, also that of silos that have left in
between.

    symbol           here            meaning
    |U|              candidates      most silos in the sum
    |U| - T          cohort          fewest; each silo's noise is sized for them
    T_C              colluding       silos whose noise does not count, because they reveal it

Where the paper makes the noise larger for T_C colluding silos, the certificate here leaves their
noise out; choose the noise multiplier accordingly. The paper's last stage, in which survivors
answer for silos that have left, is part of Unmasking: a survivor sends its shares of every surplus.

Trust, beyond that of the underlying protocol.

- A survivor's wrong secret is found by the commitment, and so is its name. A wrong share is found
  too, and named where more than `threshold` silos answer.
- Nothing proves that a silo has added the noise that it has committed to. A silo that adds none
  weakens everybody's privacy as if it colluded; `colluding` covers so many of them. A silo that
  releases noise which it has not added makes the sum noisier.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpriv.aggregation.base import CohortSize, require_setting
from fedpriv.aggregation.secagg.aggregation import SecAgg, SecAggServer, SecAggSilo
from fedpriv.aggregation.secagg.messages import (
    CHECK,
    Advert,
    Sharing,
    points,
    sealed_schema,
    shares_schema,
)
from fedpriv.aggregation.secagg.server import Collector
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.algorithms.base import Algorithm
from fedpriv.crypto.digest import DIGEST_BYTES
from fedpriv.errors import require
from fedpriv.mechanisms.removable_noise import SECRET_BYTES, RemovableNoise
from fedpriv.parties.post import blaming
from fedpriv.parties.schema import Maybe, Names, Parts, Raw, Schema, Table
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import ThreatModel
from fedpriv.rounds.query import Query


@dataclass(frozen=True)
class SecAggExactNoise(SecAgg):
    """Sums modulo 2^bits over all silos that deliver, at least `cohort`, with the same noise for
    any number.

    cohort: fewest silos in the sum; null: the threshold.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        complete = self.neighbours is None
        require_setting(self, "neighbours", complete, "null: exact noise uses the complete graph")
        for key in ("dropouts", "corrupt", "security_bits", "correctness_bits"):
            default = getattr(self, key) == getattr(SecAgg, key)
            require_setting(self, key, default, "left out: it applies to a sparse graph only")

    def adapt(self, algo: Algorithm) -> Algorithm:
        allowed = (
            "needs another algorithm: it sums over a number of silos that varies, and "
            f"{algo.label} needs a fixed number or noises inside local training"
        )
        require(algo.contributors.any_number, "aggregation", "secagg_exact_noise", allowed)
        return algo

    def cohort_size(self, n_invited: int) -> CohortSize:
        _, cohort, candidates = self.numbers(n_invited)
        return CohortSize(cohort, candidates)

    def threat_model(self) -> ThreatModel:
        base = super().threat_model()
        assumptions = (
            "nothing proves that a silo has added the noise that it has committed to",
            "SHA-256 is one-way and AES-256 is sound: noise that stays in a sum is made of their "
            "output",
        )
        return replace(base, assumptions=(*base.assumptions, *assumptions))

    def _least_cohort(self, candidates: int, threshold: int) -> int:
        return threshold if self.cohort is None else self.cohort

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> ExactSilo:
        return ExactSilo(name, silos, weighting, self)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> ExactServer:
        return ExactServer(silos, weighting, self)


class ExactSilo(SecAggSilo):
    """A silo that releases its surplus noise."""

    def member(self, query: Query, job: LocalJob, **common: Any) -> ExactMember:
        if job.secret is None:
            raise ValueError(f"query {query.name}: its noise has no secret that removes parts")
        return ExactMember(**common, noise=_removable(query), secret=job.secret)


class ExactServer(SecAggServer):
    """A server that removes surplus noise from the sum."""

    def collector(self, query: Query, **common: Any) -> ExactCollector:
        return ExactCollector(**common, noise=_removable(query))


def _removable(query: Query) -> RemovableNoise:
    if query.removable is None:
        raise ValueError(f"query {query.name}: a sum over any number needs removable noise")
    return query.removable


Revelation = tuple[dict[str, np.ndarray], dict[str, np.ndarray], bytes | None]
"""A silo's message in Unmasking: shares of masks' secrets, shares of the secret of each silo's
surplus noise, and the secret of its own surplus. The last two are empty without surplus."""


@dataclass(kw_only=True, repr=False)
class ExactMember(Member):
    """One silo for one query.

    noise: removable noise of the query.
    secret: first element of the chain that determines this silo's noise.
    """

    noise: RemovableNoise
    secret: bytes

    @property
    def secrets(self) -> tuple[bytes, ...]:
        return (*super().secrets, *self.noise.chain(self.secret)[:-1])

    def share_keys(self, roster: dict[str, Advert]) -> Sharing:
        """Also commit to the noise."""
        commitment, sealed = super().share_keys(roster)
        return commitment + self.noise.chain(self.secret)[-1], sealed

    def _chosen(self) -> Schema:
        return Names(self.sharing)

    def consent(self, sets: tuple[list[str], list[str], dict[str, bytes]]) -> bytes:
        """Also refuse a sum over fewer than `cohort` silos: it would have too little noise."""
        fits = self.terms.cohort <= len(sets[1]) <= self.terms.candidates
        self._demand(CHECK, fits, f"a sum over {len(sets[1])} silos")
        return super().consent(sets)

    def reveal(self, signatures: dict[str, bytes]) -> Revelation:
        """Also reveal what determines the surplus of every silo in U5."""
        held = self._held(signatures)
        kept = self.noise.kept(len(self.chosen))
        masks = self._of_masks(held)
        if kept == self.noise.parts:
            return masks, {}, None
        row = len(super().secrets) + kept
        shares = {peer: held[peer][row] for peer in self.chosen if peer != self.name}
        own = self.noise.chain(self.secret)[kept] if self.name in self.chosen else None
        return masks, shares, own


@dataclass
class ExactCollector(Collector):
    """The server for one query.

    noise: removable noise of the query.
    """

    noise: RemovableNoise

    def _sharing(self, roster: Collection[str]) -> Schema:
        secrets = 2 + self.noise.parts
        return Parts((Raw(2 * DIGEST_BYTES), Table(roster, sealed_schema(secrets), whole=False)))

    def choose(self, delivered: list[str]) -> list[str]:
        return delivered

    def _revealing(
        self, owners: Collection[str], chosen: list[str], *, whole: bool = True
    ) -> Schema:
        surplus = shares_schema(chosen, whole=False)
        return Parts((shares_schema(owners, whole=whole), surplus, Maybe(Raw(SECRET_BYTES))))

    def unmask(
        self,
        *,
        roster: dict[str, Advert],
        commitments: dict[str, bytes],
        masked: dict[str, np.ndarray],
        revealed: dict[str, Any],
    ) -> np.ndarray:
        """The sum without masks and without surplus noise.

        commitments: to the own mask and to the noise.
        """
        total = super().unmask(
            roster=roster,
            commitments={name: both[:DIGEST_BYTES] for name, both in commitments.items()},
            masked=masked,
            revealed={name: masks for name, (masks, _, _) in revealed.items()},
        )
        kept = self.noise.kept(len(masked))
        if kept == self.noise.parts:
            return total
        ends = {name: commitments[name][DIGEST_BYTES:] for name in sorted(masked)}
        links = self._links(points(roster), ends, revealed, kept)
        total -= self.terms.encoding.whole(self.noise.surplus(links, kept))
        return total

    def _links(
        self,
        place: dict[str, int],
        ends: dict[str, bytes],
        revealed: dict[str, Revelation],
        kept: int,
    ) -> list[bytes]:
        """The secret of each silo's surplus, from the silo or from the others' shares. Raises
        AggregationAbortedError that names a silo that lies."""

        def fits(name: str, link: bytes) -> bool:
            return self.noise.leads_to(ends[name], link, kept)

        links = []
        for name, end in ends.items():
            if name in revealed:
                link = revealed[name][2]
                with blaming(name):
                    if link is None or not self.noise.leads_to(end, link, kept):
                        raise ValueError(
                            "the secret of its surplus noise is not the one that it has "
                            "committed to"
                        )
                links.append(link)
                continue
            shares = {}
            for peer, (_, table, _) in revealed.items():
                with blaming(peer):
                    if name not in table:
                        raise ValueError(f"it holds back its share of {name}'s surplus noise")
                shares[peer] = table[name]
            links.append(self._rebuilt(name, place, shares, "surplus noise", fits))
        return links
