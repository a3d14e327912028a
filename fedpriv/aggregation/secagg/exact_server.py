"""The server of a secure sum with exact noise: it removes the surplus and names silos that lie."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.secagg.messages import Advert, points, sealed_schema, shares_schema
from fedpriv.aggregation.secagg.server import Collector
from fedpriv.crypto.digest import DIGEST_BYTES
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
