"""A silo in a secure sum: five questions to the server, and the checks that decide whether to go on."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg.messages import (
    ADVERTISE,
    CHECK,
    COLLECT,
    SHARE,
    UNMASK,
    Advert,
    Envelope,
    Sharing,
    Terms,
    keys_statement,
    pair_seed,
    points,
    seed_commitment,
    session_of,
    set_statement,
)
from fedpriv.crypto.prg import KEY_BYTES, add_masks
from fedpriv.crypto.secret_sharing import LIMBS, share
from fedpriv.crypto.signatures import SigningKey, VerificationKey
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.party import Party

Shares = tuple[np.ndarray, np.ndarray]
"""One silo's shares of another's mask key and of its own mask's seed, (LIMBS,) uint32 each."""


@dataclass(kw_only=True, repr=False)
class Member:
    """One silo for one query.

    registry: every silo's verification key. vector: its message in the clear, (size,) integers modulo R, asked for
    once. channel, masking, seed: this query's secrets; nobody ever learns the first. The rest is filled from phase to
    phase: advert, its public keys; roster, those of U2, with their session; own, its shares of its own secrets; pairs,
    the seeds of its masks with the others in U2; sealed, what the others in U3 (sharing) have sent it; delivered, U4;
    chosen, U5.
    """

    name: str
    terms: Terms
    signing_key: SigningKey
    registry: Mapping[str, VerificationKey]
    vector: Callable[[], np.ndarray]
    channel: PrivateKey = field(default_factory=PrivateKey.generate)
    masking: PrivateKey = field(default_factory=PrivateKey.generate)
    seed: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES))
    advert: Advert = field(init=False)
    roster: dict[str, Advert] = field(init=False)
    session: bytes = field(init=False)
    own: Shares = field(init=False)
    pairs: dict[str, bytes] = field(init=False)
    sealed: dict[str, bytes] = field(init=False)
    sharing: set[str] = field(init=False)
    delivered: set[str] = field(init=False)
    chosen: set[str] = field(init=False)

    def run(self) -> Party:
        """The five phases. Ends early when the server has nothing to say: not drawn, or no longer there."""
        steps: tuple[tuple[str, Callable[[Any], Any]], ...] = (
            (ADVERTISE, self.advertise),
            (SHARE, self.share_keys),
            (COLLECT, self.masked_input),
            (CHECK, self.consent),
            (UNMASK, self.reveal),
        )
        answer: Any = None
        for phase, step in steps:
            said = (yield {SERVER: (phase, step(answer))}).get(SERVER)
            if not isinstance(said, tuple) or said[0] != phase:
                return
            answer = said[1]

    def advertise(self, _: None) -> Advert:
        """This query's public keys, signed."""
        keys = self.channel.public.raw, self.masking.public.raw
        self.advert = *keys, self.signing_key.sign(keys_statement(self.terms.serial, self.name, keys))
        return self.advert

    def share_keys(self, roster: dict[str, Advert]) -> Sharing:
        """Check the candidates U2 and their keys; shares of both secrets, sealed for each of the others."""
        self._check_candidates(roster)
        self.roster, self.session = roster, session_of(self.terms.serial, roster)
        key_shares = share(self.masking.raw, self.terms.threshold, len(roster))
        seed_shares = share(self.seed, self.terms.threshold, len(roster))
        row = {name: point - 1 for name, point in points(roster).items()}
        self.own = key_shares[row[self.name]], seed_shares[row[self.name]]
        others = [name for name in roster if name != self.name]
        both = {peer: key_shares[row[peer]].tobytes() + seed_shares[row[peer]].tobytes() for peer in others}
        try:
            sealed = {peer: self._envelope(self.name, peer).seal(shares) for peer, shares in both.items()}
            masking = {peer: PublicKey(roster[peer][1]) for peer in others}
            self.pairs = {peer: pair_seed(self.masking, key, self.session) for peer, key in masking.items()}
        except ValueError as error:
            raise AggregationAbortedError(f"{SHARE}: {self.name} refuses: {error}") from error
        return seed_commitment(self.session, self.name, self.seed), sealed

    def _check_candidates(self, roster: dict[str, Advert]) -> None:
        self._demand(SHARE, roster.get(self.name) == self.advert, "own keys are missing or changed")
        fits = self.terms.threshold <= len(roster) <= self.terms.candidates
        self._demand(SHARE, fits, f"{len(roster)} candidates")
        keys = [key for advert in roster.values() for key in advert[:2]]
        self._demand(SHARE, len(set(keys)) == len(keys), "two keys are the same")
        for name, (channel, masking, signature) in roster.items():
            statement = keys_statement(self.terms.serial, name, (channel, masking))
            known = name in self.registry and self.registry[name].verifies(signature, statement)
            self._demand(SHARE, known, f"{name} has not signed its keys")

    def masked_input(self, sealed: dict[str, bytes]) -> np.ndarray:
        """The vector under this silo's own mask and those with everybody in U3, (size,)."""
        self.sealed, self.sharing = sealed, {*sealed, self.name}
        self._demand(COLLECT, self.sharing <= set(self.roster), "shares from outside the candidates")
        self._demand(COLLECT, len(self.sharing) >= self.terms.threshold, f"shares of {len(self.sharing)} silos")
        smaller = [self.pairs[peer] for peer in self.sharing if peer < self.name]
        larger = [self.pairs[peer] for peer in self.sharing if peer > self.name]
        return add_masks(self.vector(), [self.seed, *smaller], larger, purpose=self.session)

    def consent(self, sets: tuple[list[str], list[str]]) -> bytes:
        """Sign the set U5 that the sum shall cover, out of those who delivered, U4. Once, and no other set."""
        delivered, chosen = sets
        self.delivered, self.chosen = set(delivered), set(chosen)
        right = len(chosen) == len(self.chosen) == self.terms.cohort
        self._demand(CHECK, right, f"a set of {len(self.chosen)} silos instead of {self.terms.cohort}")
        inside = self.chosen <= self.delivered <= self.sharing and self.name in self.delivered
        self._demand(CHECK, inside, "the set holds silos that have not shared their secrets")
        return self.signing_key.sign(set_statement(self.session, chosen))

    def reveal(self, signatures: dict[str, bytes]) -> dict[str, np.ndarray]:
        """Shares of the own mask of everybody in U5, and of the mask key of everybody else in U3, (LIMBS,) each."""
        self._demand(UNMASK, len(signatures) >= self.terms.threshold, f"{len(signatures)} signatures")
        self._demand(UNMASK, set(signatures) <= self.delivered, "signatures of silos that have not delivered")
        statement = set_statement(self.session, self.chosen)
        for name, signature in signatures.items():
            right = self.registry[name].verifies(signature, statement)
            self._demand(UNMASK, right, f"{name} signed another set")
        held = {peer: self._open(peer, sealed) for peer, sealed in self.sealed.items()} | {self.name: self.own}
        return {peer: shares[1 if peer in self.chosen else 0] for peer, shares in held.items()}

    def _envelope(self, sender: str, receiver: str) -> Envelope:
        """Raises ValueError for a peer's key of a wrong length."""
        peer = PublicKey(self.roster[receiver if sender == self.name else sender][0])
        return Envelope(own=self.channel, peer=peer, session=self.session, sender=sender, receiver=receiver)

    def _open(self, sender: str, sealed: bytes) -> Shares:
        try:
            opened = np.frombuffer(self._envelope(sender, self.name).unseal(sealed), dtype=np.uint32)
        except ValueError:
            opened = np.empty(0, dtype=np.uint32)
        self._demand(UNMASK, len(opened) == 2 * LIMBS, f"the shares from {sender} are not for it")
        return opened[:LIMBS], opened[LIMBS:]

    def _demand(self, phase: str, holds: bool, otherwise: str) -> None:
        if not holds:
            raise AggregationAbortedError(f"{phase}: {self.name} refuses: {otherwise}")
