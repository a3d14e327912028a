"""The server of a secure sum: collects, draws, passes on, and takes the masks off the sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.secagg.messages import (
    ADVERTISE,
    CHECK,
    COLLECT,
    SHARE,
    UNMASK,
    Advert,
    Terms,
    pair_seed,
    points,
    seed_commitment,
    session_of,
)
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.secret_sharing import LIMBS, BadSharesError, Reconstruction
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.query import Total

if TYPE_CHECKING:
    from fedpriv.parties.party import Mail, Party
    from fedpriv.query import Broadcast
    from fedpriv.streams import SystemGenerator

Revealed = dict[str, np.ndarray]


@dataclass
class Collector:
    """The server for one query to the `invited` silos.

    draws: for U2 and U5. Whoever could foretell them would know which silos to drop; a simulation's are seeded.
    """

    terms: Terms
    invited: list[str]
    draws: np.random.Generator | SystemGenerator

    def run(self, broadcast: Broadcast) -> Party:
        """The broadcast and the five phases; returns the Total over U5."""
        terms = self.terms
        inbox = yield dict.fromkeys(self.invited, broadcast)
        adverts = self._senders(ADVERTISE, inbox, self.invited, least=terms.cohort)
        drawn = self._draw(adverts, min(terms.candidates, len(adverts)))
        roster = {name: adverts[name] for name in drawn}

        inbox = yield dict.fromkeys(roster, (ADVERTISE, roster))
        shared = self._senders(SHARE, inbox, roster, least=terms.cohort)
        commitments = {name: commitment for name, (commitment, _) in shared.items()}
        sealed = {name: letters for name, (_, letters) in shared.items()}
        whole = all(set(letters) == set(roster) - {name} for name, letters in sealed.items())
        self._demand(SHARE, whole, "shares for some candidates only")
        for_each = {name: {peer: sealed[peer][name] for peer in sealed if peer != name} for name in sealed}

        inbox = yield {name: (SHARE, letters) for name, letters in for_each.items()}
        masked = self._senders(COLLECT, inbox, sealed, least=terms.cohort)
        delivered = sorted(masked)
        chosen = self._draw(delivered, terms.cohort)

        inbox = yield dict.fromkeys(delivered, (COLLECT, (delivered, chosen)))
        signatures = self._senders(CHECK, inbox, delivered, least=terms.threshold)

        inbox = yield dict.fromkeys(signatures, (CHECK, signatures))
        revealed = self._senders(UNMASK, inbox, signatures, least=terms.threshold)
        summed = {name: masked[name] for name in chosen}
        total = self.unmask(roster=roster, commitments=commitments, masked=summed, revealed=revealed)
        return Total(terms.encoding.decode(total), tuple(chosen))

    def _draw(self, names: Iterable[str], size: int) -> list[str]:
        """`size` of the names, uniformly without replacement, in order."""
        ordered = sorted(names)
        return [ordered[i] for i in np.sort(np.argsort(self.draws.random(len(ordered)))[:size])]

    def _senders(self, phase: str, inbox: Mail, expected: Collection[str], *, least: int) -> dict[str, Any]:
        """Contents of this phase's messages from those who may send one; a late message of another phase is none.

        Raises AggregationAbortedError when fewer than `least` are left.
        """
        contents = {name: inbox[name][1] for name in expected if name in inbox and inbox[name][0] == phase}
        if len(contents) < least:
            silent = ", ".join(sorted(set(expected) - set(contents)))
            raise AggregationAbortedError(
                f"{phase}: {len(contents)} of at least {least} silos; no message from {silent}"
            )
        return contents

    def unmask(
        self,
        *,
        roster: dict[str, Advert],
        commitments: dict[str, bytes],
        masked: dict[str, np.ndarray],
        revealed: dict[str, Revealed],
    ) -> np.ndarray:
        """The sum over U5 of what was under the masks, (d,) integers modulo R.

        commitments: to the own masks' seeds, of U3. masked: messages of U5. revealed: shares from each silo of U7.
        Raises AggregationAbortedError when they do not fit together.
        """
        chosen, left_out = sorted(masked), sorted(set(commitments) - set(masked))
        vectors = list(masked.values())
        self._demand(UNMASK, len({vector.shape for vector in vectors}) == 1, "vectors of different lengths")
        seeds = self._secrets(roster, chosen, revealed)
        keys = self._secrets(roster, left_out, revealed)
        session = session_of(self.terms.serial, roster)
        for name, seed in seeds.items():
            right = seed_commitment(session, name, seed) == commitments[name]
            self._demand(UNMASK, right, f"the shares do not give {name}'s own mask")
        plus: list[bytes] = []
        minus = list(seeds.values())
        for gone, key in keys.items():
            private = PrivateKey(key)
            right = private.public.raw == roster[gone][1]
            self._demand(UNMASK, right, f"the shares do not give {gone}'s mask key")
            for name in chosen:
                # `name` has added the mask of the pair if its own name is the larger one, and subtracted it otherwise.
                (minus if name > gone else plus).append(pair_seed(private, PublicKey(roster[name][1]), session))
        total = np.zeros_like(vectors[0])
        for vector in vectors:
            total += vector
        return add_masks(total, plus, minus, purpose=session)

    def _secrets(self, roster: dict[str, Advert], owners: list[str], revealed: dict[str, Revealed]) -> dict[str, bytes]:
        if not owners:
            return {}
        place = points(roster)
        answers = sorted(revealed)[: self.terms.threshold]
        rows = [[revealed[name].get(owner) for name in answers] for owner in owners]
        whole = all(row is not None and row.shape == (LIMBS,) for line in rows for row in line)
        self._demand(UNMASK, whole, "shares are missing")
        try:
            secrets = Reconstruction.at([place[name] for name in answers]).secrets(np.array(rows))
        except BadSharesError as error:
            raise AggregationAbortedError(f"{UNMASK}: {error}") from error
        return dict(zip(owners, secrets))

    def _demand(self, phase: str, holds: bool, otherwise: str) -> None:
        if not holds:
            raise AggregationAbortedError(f"{phase}: {otherwise}")
