"""A silo in a secure sum with exact noise: commits to the secrets of its noise, shares them, and
lets go of surplus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.aggregation.secagg.messages import CHECK, Advert, Sharing
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.mechanisms.removable_noise import RemovableNoise
from fedpriv.parties.schema import Names, Parts, Schema

Revelation = tuple[dict[str, np.ndarray], dict[str, np.ndarray], bytes | None]
"""What a silo sends in Unmasking: shares of masks' secrets, shares of the secret of each silo's
surplus noise, and the secret of its own; the last two are empty where nothing is surplus."""


@dataclass(kw_only=True, repr=False)
class ExactMember(Member):
    """One silo for one query.

    noise: of the query.
    secret: the first of the chain that this silo's noise hangs on.
    """

    noise: RemovableNoise
    secret: bytes

    @property
    def secrets(self) -> tuple[bytes, ...]:
        return (*super().secrets, *self.noise.chain(self.secret)[:-1])

    def share_keys(self, roster: dict[str, Advert]) -> Sharing:
        """As without; commits to the noise too."""
        commitment, sealed = super().share_keys(roster)
        return commitment + self.noise.chain(self.secret)[-1], sealed

    def _sets(self) -> Schema:
        return Parts((Names(self.sharing), Names(self.sharing)))

    def consent(self, sets: tuple[list[str], list[str]]) -> bytes:
        """As without. Noise that is sized for `cohort` silos is too little for fewer."""
        fits = self.terms.cohort <= len(sets[1]) <= self.terms.candidates
        self._demand(CHECK, fits, f"a sum over {len(sets[1])} silos")
        return super().consent(sets)

    def reveal(self, signatures: dict[str, bytes]) -> Revelation:
        """As without, and what the surplus of everybody in U5 is made of."""
        held = self._held(signatures)
        kept = self.noise.kept(len(self.chosen))
        masks = self._of_masks(held)
        if kept == self.noise.parts:
            return masks, {}, None
        row = len(super().secrets) + kept
        shares = {peer: held[peer][row] for peer in self.chosen if peer != self.name}
        return (
            masks,
            shares,
            self.noise.chain(self.secret)[kept] if self.name in self.chosen else None,
        )
