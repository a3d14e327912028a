"""A silo in a secure sum with exact noise: it commits to the secrets of its noise, shares them, and
releases the surplus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.aggregation.secagg.messages import CHECK, Advert, Sharing
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.mechanisms.removable_noise import RemovableNoise
from fedpriv.parties.schema import Names, Schema

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
