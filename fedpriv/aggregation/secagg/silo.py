"""A silo in a secure sum: its five phases, and its checks of the server's answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg.graph import Graph
from fedpriv.aggregation.secagg.messages import (
    ADVERT,
    ADVERTISE,
    CHECK,
    COLLECT,
    SHARE,
    UNMASK,
    Advert,
    Delivery,
    Envelope,
    Sharing,
    Terms,
    keys_statement,
    pair_seed,
    points,
    receipt_schema,
    receipt_statement,
    sealed_schema,
    seed_commitment,
    session_of,
    set_statement,
    sharing_digest,
)
from fedpriv.crypto.prg import KEY_BYTES, add_masks
from fedpriv.crypto.secret_sharing import share
from fedpriv.crypto.signatures import SIGNATURE_BYTES, Ed25519Signer
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.errors import MisfitError
from fedpriv.mechanisms.removable_noise import RemovableNoise
from fedpriv.parties.party import Party
from fedpriv.parties.post import Expected, Post, blaming
from fedpriv.parties.schema import Array, Names, Parts, Raw, Schema, Table

MASK_KEY, OWN_MASK, SURPLUS = 0, 1, 2
"""Rows of the shares that one silo holds of another, (secrets, LIMBS) uint32: of the mask key, of
the seed and, where surplus noise is removed, from the third on of the secrets of its parts."""

Revelation = tuple[dict[str, np.ndarray], dict[str, np.ndarray], bytes | None]
"""A silo's message in Unmasking where surplus noise is removed: shares of masks' secrets, shares of
the secret of each silo's surplus noise, and the secret of its own surplus. The last two are empty
without surplus."""


@dataclass(kw_only=True, repr=False)
class Member:
    """One silo for one query.

    post: its gate.
    terms: the query's public numbers.
    signer: its signing key, and everybody's verification keys.
    trained: training that must end before the message is made.
    vector: makes its message in the clear, (size,) integers modulo R; called once.
    invited: silos that may be candidates.
    noise: the noise whose surplus is removed from the sum; None: all noise stays.
    secret: first element of the chain that determines this silo's removable noise.
    channel: this query's key for sealed shares; never revealed.
    masking: this query's key for pairwise masks.
    seed: of its own mask.
    advert: its public keys; the following fields are filled from phase to phase.
    roster: the adverts of the candidates U2.
    session: of the roster.
    graph: of the roster.
    own: its shares of its own secrets.
    pairs: seeds of the masks with its neighbours.
    sealed: shares from its neighbours in U3.
    sharing: U3.
    purpose: of all masks.
    delivered: U4.
    chosen: U5.
    """

    post: Post
    terms: Terms
    signer: Ed25519Signer
    trained: Callable[[], Party]
    vector: Callable[[], np.ndarray]
    invited: tuple[str, ...]
    noise: RemovableNoise | None = None
    secret: bytes = b""
    channel: PrivateKey = field(default_factory=PrivateKey.generate)
    masking: PrivateKey = field(default_factory=PrivateKey.generate)
    seed: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES))
    advert: Advert = field(init=False)
    roster: dict[str, Advert] = field(init=False)
    session: bytes = field(init=False)
    graph: Graph = field(init=False)
    own: np.ndarray = field(init=False)
    pairs: dict[str, bytes] = field(init=False)
    sealed: dict[str, bytes] = field(init=False)
    sharing: set[str] = field(init=False)
    purpose: bytes = field(init=False)
    delivered: set[str] = field(init=False)
    chosen: set[str] = field(init=False)

    def run(self) -> Party:
        """The five phases. Ends early when the server sends nothing, because this silo was not
        drawn or the server is gone."""
        steps: tuple[tuple[str, Callable[[Any], Any], Callable[[], Schema]], ...] = (
            (ADVERTISE, self.advertise, lambda: Table(self.invited, ADVERT, whole=False)),
            (SHARE, self.share_keys, self._letters),
            (COLLECT, self.masked_input, self._sets),
            (CHECK, self.consent, self._signatures),
        )
        answer: Any = None
        for phase, step, schema in steps:
            if phase == COLLECT:
                yield from self.trained()
            content = step(answer)
            received = yield from self.post.exchange(
                phase, {SERVER: content}, Expected(phase, schema(), (SERVER,))
            )
            if SERVER not in received:
                return
            answer = received[SERVER]
        yield from self.post.send(UNMASK, {SERVER: self.reveal(answer)})

    @property
    def name(self) -> str:
        return self.post.name

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The secrets that this silo shares with its neighbours, 32 bytes each."""
        chain = () if self.noise is None else self.noise.chain(self.secret)[:-1]
        return self.masking.raw, self.seed, *chain

    def _around(self) -> set[str]:
        return set(self.graph.around(self.name))

    def witnesses(self) -> set[str]:
        return self.graph.witnesses(self.delivered, self.chosen)

    def _signatures(self) -> Schema:
        """Schema of the witnesses' signatures."""
        return Table(self.witnesses(), Raw(SIGNATURE_BYTES), whole=False)

    def _letters(self) -> Schema:
        """Schema: which candidates, in order, have shared; what they have sealed for this silo."""
        sealed = Table(self._around() - {self.name}, sealed_schema(len(self.secrets)), whole=False)
        return Parts((Array(np.bool_, (len(self.roster),)), sealed))

    def _sets(self) -> Schema:
        """Schema: the silos that have delivered, those of them in the sum, and their receipts."""
        receipts = self.terms.topology.receipts
        shown = Table(self.sharing if receipts else (), receipt_schema(receipts), whole=False)
        return Parts((Names(self.sharing), self._chosen(), shown))

    def _chosen(self) -> Schema:
        """Schema of the silos in the sum."""
        return Names(self.sharing, size=self.terms.cohort if self.noise is None else None)

    def advertise(self, _: None) -> Advert:
        """This query's public keys, signed."""
        keys = self.channel.public.raw, self.masking.public.raw
        self.advert = (
            *keys,
            self.signer.key.sign(keys_statement(self.terms.stamp, self.name, keys)),
        )
        return self.advert

    def share_keys(self, roster: dict[str, Advert]) -> Sharing:
        """Check the candidates U2 and the neighbours' keys. Return the commitment to the own mask,
        and to the noise, and shares of all secrets, sealed for each neighbour."""
        self._check_candidates(roster)
        self.roster = roster
        self.session = session_of(self.terms.stamp, roster)
        self.graph = self.terms.topology.graph(self.session, roster)
        around = self.graph.around(self.name)
        self._check_keys(around)
        shares = [share(secret, self.terms.topology.shares, len(around)) for secret in self.secrets]
        held = np.stack(shares, axis=1)  # (silos around, secrets, LIMBS)
        row = {name: point - 1 for name, point in points(around).items()}
        self.own = held[row[self.name]]
        sealed = {}
        self.pairs = {}
        for peer in sorted(self._around() - {self.name}):
            with blaming(peer):
                sealed[peer] = self._envelope(self.name, peer).seal(held[row[peer]].tobytes())
                self.pairs[peer] = pair_seed(self.masking, PublicKey(roster[peer][1]), self.session)
        commitment = seed_commitment(self.session, self.name, self.seed)
        if self.noise is not None:
            commitment += self.noise.chain(self.secret)[-1]
        return commitment, sealed

    def _check_candidates(self, roster: dict[str, Advert]) -> None:
        self._demand(SHARE, roster.get(self.name) == self.advert, "own keys are missing or changed")
        fits = self.terms.cohort <= len(roster) <= self.terms.candidates
        self._demand(SHARE, fits, f"{len(roster)} candidates")
        keys = [key for advert in roster.values() for key in advert[:2]]
        self._demand(SHARE, len(set(keys)) == len(keys), "two keys are the same")

    def _check_keys(self, names: Iterable[str]) -> None:
        """Check that the owners have signed these keys. Other silos' keys make no mask of this
        silo, and need no check."""
        for name in names:
            channel, masking, signature = self.roster[name]
            statement = keys_statement(self.terms.stamp, name, (channel, masking))
            right = self.signer.registry[name].verifies(signature, statement)
            self._demand(SHARE, right, f"{name} has not signed its keys")

    def masked_input(self, letters: tuple[np.ndarray, dict[str, bytes]]) -> Delivery:
        """The vector under the own mask and the masks with all neighbours in U3, and a receipt for
        U3."""
        shared, self.sealed = letters
        self.sharing = {
            name for name, inside in zip(sorted(self.roster), shared.tolist()) if inside
        }
        self.purpose = sharing_digest(self.session, self.sharing)
        around = self.sharing & self._around()
        self._demand(
            COLLECT,
            around == {*self.sealed, self.name},
            "shares do not come from those who have shared",
        )
        self._demand(
            COLLECT, len(around) >= self.terms.topology.shares, f"shares of {len(around)} silos"
        )
        smaller = [self.pairs[peer] for peer in self.sealed if peer < self.name]
        larger = [self.pairs[peer] for peer in self.sealed if peer > self.name]
        masked = add_masks(self.vector(), [self.seed, *smaller], larger, purpose=self.purpose)
        return masked, self._receipt()

    def _receipt(self) -> bytes:
        if not self.terms.topology.receipts:
            return b""
        return self.signer.sign(receipt_statement(self.purpose))

    def consent(self, sets: tuple[list[str], list[str], dict[str, bytes]]) -> bytes:
        """Sign the set U5 of the summed silos, out of those that delivered, U4, once their receipts
        show that they have masked for the same U3. A silo signs one set only, and none of fewer
        than `cohort` silos: their sum would have too little noise."""
        delivered, chosen, receipts = sets
        fits = self.terms.cohort <= len(chosen) <= self.terms.candidates
        self._demand(CHECK, fits, f"a sum over {len(chosen)} silos")
        self.delivered = set(delivered)
        self.chosen = set(chosen)
        inside = self.chosen <= self.delivered and self.name in self.delivered
        self._demand(CHECK, inside, "the set holds silos that have not delivered")
        self._demand(
            CHECK,
            self.graph.holds_together(self.chosen),
            "the set leaves out too many neighbours in a row",
        )
        self._demand(CHECK, self.name in self.witnesses(), "it is asked about a set without it")
        self._check_receipts(receipts)
        return self.signer.key.sign(set_statement(self.purpose, chosen))

    def _check_receipts(self, receipts: dict[str, bytes]) -> None:
        """Check that all silos in the sum have masked for the silos for which this one has."""
        if not self.terms.topology.receipts:
            return
        statement = receipt_statement(self.purpose)
        for name in sorted(self.chosen):
            right = self.signer.verifies(name, receipts.get(name), statement)
            self._demand(
                CHECK, right, f"no receipt shows that {name} has masked for the same silos"
            )

    def reveal(self, signatures: dict[str, bytes]) -> dict[str, np.ndarray] | Revelation:
        """Shares of the own mask of every neighbour in U5, and of the mask key of every other
        neighbour in U3, (LIMBS,) each. Where noise can be removed, also what determines the surplus
        of every silo in U5."""
        held = self._held(signatures)
        masks = {
            peer: shares[OWN_MASK if peer in self.chosen else MASK_KEY]
            for peer, shares in held.items()
        }
        if self.noise is None:
            return masks
        kept = self.noise.kept(len(self.chosen))
        if kept == self.noise.parts:
            return masks, {}, None
        shares = {peer: held[peer][SURPLUS + kept] for peer in self.chosen if peer != self.name}
        own = self.noise.chain(self.secret)[kept] if self.name in self.chosen else None
        return masks, shares, own

    def _held(self, signatures: dict[str, bytes]) -> dict[str, np.ndarray]:
        """This silo's shares of its neighbours' secrets and of its own, once enough silos have
        signed the same set."""
        self._demand(
            UNMASK, len(signatures) >= self.terms.threshold, f"{len(signatures)} signatures"
        )
        statement = set_statement(self.purpose, self.chosen)
        for name in self.terms.topology.drawn(signatures):
            right = self.signer.registry[name].verifies(signatures[name], statement)
            self._demand(UNMASK, right, f"{name} signed another set")
        return {peer: self.opened(peer, sealed) for peer, sealed in self.sealed.items()} | {
            self.name: self.own
        }

    def _envelope(self, sender: str, receiver: str) -> Envelope:
        """Raises ValueError for a peer's key of a wrong length."""
        peer = PublicKey(self.roster[receiver if sender == self.name else sender][0])
        return Envelope(
            own=self.channel, peer=peer, session=self.session, sender=sender, receiver=receiver
        )

    def opened(self, sender: str, sealed: bytes) -> np.ndarray:
        try:
            opened = np.frombuffer(
                self._envelope(sender, self.name).unseal(sealed), dtype=np.uint32
            )
        except ValueError:
            opened = np.empty(0, dtype=np.uint32)
        self._demand(
            UNMASK, len(opened) == self.own.size, f"the shares from {sender} are not for it"
        )
        return opened.reshape(self.own.shape)

    def _demand(self, phase: str, holds: bool, otherwise: str) -> None:
        if not holds:
            raise MisfitError(f"{phase}: {self.name} refuses: {otherwise}")
