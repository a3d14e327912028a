"""The server of a secure sum with exact noise: it removes the surplus and names silos that lie."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.secagg.messages import UNMASK, Advert, points, sealed_schema, shares_schema
from fedpriv.aggregation.secagg.server import Collector
from fedpriv.crypto.digest import DIGEST_BYTES
from fedpriv.crypto.secret_sharing import BadSharesError, Reconstruction
from fedpriv.errors import AggregationAbortedError
from fedpriv.mechanisms.removable_noise import SECRET_BYTES, RemovableNoise
from fedpriv.parties.post import blaming
from fedpriv.parties.schema import Maybe, Parts, Raw, Schema, Table

if TYPE_CHECKING:
    from fedpriv.aggregation.secagg.exact_silo import Revelation


@dataclass
class ExactCollector(Collector):
    """The server for one query.

    noise: removable noise of the query.
    """

    noise: RemovableNoise

    def _sharing(self, roster: Collection[str]) -> Schema:
        secrets = 2 + self.noise.parts
        return Parts((Raw(2 * DIGEST_BYTES), Table(roster, sealed_schema(secrets), whole=False)))

    def _chosen(self, delivered: list[str]) -> list[str]:
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
            links.append(self._rebuilt(name, place, shares, end, kept))
        return links

    def _rebuilt(
        self,
        owner: str,
        place: dict[str, int],
        shares: dict[str, np.ndarray],
        end: bytes,
        kept: int,
    ) -> bytes:
        """The secret of a silo that has left, from shares (LIMBS,) by holder.

        Tries sets of neighbouring holders on a ring. The secret of a set of honest holders fits the
        commitment, and then shows who lies.
        """
        holders = sorted(shares)
        needed = self.terms.threshold

        def joined(names: list[str]) -> bytes | None:
            try:
                rows = np.stack([shares[name] for name in names])
                return Reconstruction.at([place[name] for name in names]).secrets(rows[None])[0]
            except BadSharesError:
                return None

        for start in range(len(holders)):
            turned = holders[start:] + holders[:start]
            honest = turned[:needed]
            others = turned[needed:]
            link = joined(honest)
            if link is None or not self.noise.leads_to(end, link, kept):
                continue
            for name in others:
                with blaming(name):
                    if joined([*honest[1:], name]) != link:
                        raise ValueError(f"its share of {owner}'s surplus noise is wrong")
            return link
        raise AggregationAbortedError(f"{UNMASK}: the shares do not give {owner}'s surplus noise")
