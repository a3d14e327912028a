"""A silo in a secure sum: five questions to the server, and the checks that decide whether to go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag

from fedpriv.aggregation.base import SERVER, AggregationAborted, Party
from fedpriv.aggregation.field_shares import LIMBS, share
from fedpriv.aggregation.masks import add_masks, new_key
from fedpriv.aggregation.secagg_messages import (
    ADVERTISE,
    CHECK,
    COLLECT,
    SHARE,
    UNMASK,
    Advert,
    Sharing,
    Terms,
    keys_statement,
    points,
    seal,
    seed_between,
    seed_commitment,
    session_of,
    set_statement,
    sign,
    unseal,
    verifies,
)

Shares = tuple[np.ndarray, np.ndarray]
"""One silo's shares of another's mask key and of its own mask's seed, (LIMBS,) uint32 each."""


@dataclass
class Member:
    """One silo for one round. vector: its message in the clear, (d,) integers modulo R, asked for once."""

    name: str
    terms: Terms
    signing_key: bytes
    registry: dict[str, bytes]
    vector: Callable[[], np.ndarray]
    channel: tuple[bytes, bytes] = field(default_factory=new_key)
    masking: tuple[bytes, bytes] = field(default_factory=new_key)
    seed: bytes = field(default_factory=lambda: os.urandom(32))

    def run(self) -> Party:
        """The five phases. Ends early when the server has nothing to say: not drawn, or no longer there."""
        steps = (
            (ADVERTISE, self.advertise),
            (SHARE, self.share_keys),
            (COLLECT, self.masked_input),
            (CHECK, self.consent),
            (UNMASK, self.reveal),
        )
        answer: Any = None
        for phase, step in steps:
            inbox = yield {SERVER: (phase, step(answer))}
            said, answer = inbox.get(SERVER, (None, None))
            if said != phase:
                return

    def advertise(self, _: None) -> Advert:
        """This round's public keys, signed."""
        keys = self.channel[1], self.masking[1]
        self.advert = (*keys, sign(self.signing_key, keys_statement(self.terms.round, self.name, *keys)))
        return self.advert

    def share_keys(self, roster: dict[str, Advert]) -> Sharing:
        """Check the candidates U2 and their keys; shares of both secrets, sealed for each of the others."""
        threshold = self.terms.threshold
        self._demand(SHARE, roster.get(self.name) == self.advert, "own keys are missing or changed")
        self._demand(SHARE, threshold <= len(roster) <= self.terms.candidates, f"{len(roster)} candidates")
        keys = [key for advert in roster.values() for key in advert[:2]]
        self._demand(SHARE, len(set(keys)) == len(keys), "two keys are the same")
        for name, (channel, masking, signature) in roster.items():
            statement = keys_statement(self.terms.round, name, channel, masking)
            known = name in self.registry and verifies(self.registry[name], signature, statement)
            self._demand(SHARE, known, f"{name} has not signed its keys")
        self.roster, self.session = roster, session_of(self.terms.round, roster)
        key_shares = share(self.masking[0], threshold, len(roster))
        seed_shares = share(self.seed, threshold, len(roster))
        place = points(roster)
        self.own = key_shares[place[self.name] - 1], seed_shares[place[self.name] - 1]
        sealed = {
            peer: seal(
                self.channel[0],
                roster[peer][0],
                self.session,
                self.name,
                peer,
                key_shares[place[peer] - 1].tobytes() + seed_shares[place[peer] - 1].tobytes(),
            )
            for peer in roster
            if peer != self.name
        }
        return seed_commitment(self.session, self.name, self.seed), sealed

    def masked_input(self, sealed: dict[str, bytes]) -> np.ndarray:
        """The vector under this silo's own mask and those with everybody in U3, (d,)."""
        self.sealed, self.sharing = sealed, {*sealed, self.name}
        self._demand(COLLECT, self.sharing <= set(self.roster), "shares from outside the candidates")
        self._demand(COLLECT, len(self.sharing) >= self.terms.threshold, f"shares of {len(self.sharing)} silos")
        seeds = {peer: seed_between(self.masking[0], self.roster[peer][1], self.session) for peer in sealed}
        smaller = [seed for peer, seed in seeds.items() if peer < self.name]
        larger = [seed for peer, seed in seeds.items() if peer > self.name]
        return add_masks(self.vector(), [self.seed, *smaller], larger, purpose=self.session)

    def consent(self, sets: tuple[list[str], list[str]]) -> bytes:
        """Sign the set U5 that the sum shall cover, out of those who delivered, U4. Once, and no other set."""
        delivered, chosen = sets
        self.delivered, self.chosen = set(delivered), set(chosen)
        right = len(chosen) == len(self.chosen) == self.terms.cohort
        self._demand(CHECK, right, f"a set of {len(self.chosen)} silos instead of {self.terms.cohort}")
        inside = self.chosen <= self.delivered <= self.sharing and self.name in self.delivered
        self._demand(CHECK, inside, "the set holds silos that have not shared their secrets")
        return sign(self.signing_key, set_statement(self.session, chosen))

    def reveal(self, signatures: dict[str, bytes]) -> dict[str, np.ndarray]:
        """Shares of the own mask of everybody in U5, and of the mask key of everybody else in U3, (LIMBS,) each."""
        self._demand(UNMASK, len(signatures) >= self.terms.threshold, f"{len(signatures)} signatures")
        self._demand(UNMASK, set(signatures) <= self.delivered, "signatures of silos that have not delivered")
        statement = set_statement(self.session, list(self.chosen))
        for name, signature in signatures.items():
            self._demand(UNMASK, verifies(self.registry[name], signature, statement), f"{name} signed another set")
        held = {peer: self._open(peer, sealed) for peer, sealed in self.sealed.items()} | {self.name: self.own}
        return {peer: shares[1 if peer in self.chosen else 0] for peer, shares in held.items()}

    def _open(self, sender: str, sealed: bytes) -> Shares:
        key = self.channel[0], self.roster[sender][0]
        try:
            opened = np.frombuffer(unseal(*key, self.session, sender, self.name, sealed), dtype=np.uint32)
        except (InvalidTag, ValueError):
            opened = np.empty(0, dtype=np.uint32)
        self._demand(UNMASK, len(opened) == 2 * LIMBS, f"the shares from {sender} are not for it")
        return opened[:LIMBS], opened[LIMBS:]

    def _demand(self, phase: str, holds: bool, otherwise: str) -> None:
        if not holds:
            raise AggregationAborted(f"{phase}: {self.name} refuses: {otherwise}")
