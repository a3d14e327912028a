"""The server of a secure sum: collects, draws, passes on, and removes the masks from the sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.aggregation.base import BROADCAST
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
    Terms,
    delivery_schema,
    pair_seed,
    points,
    receipt_statement,
    sealed_schema,
    seed_commitment,
    session_of,
    shares_schema,
    sharing_digest,
)
from fedpriv.aggregation.secagg.silo import Revelation
from fedpriv.crypto.digest import DIGEST_BYTES
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.secret_sharing import BadSharesError, Reconstruction
from fedpriv.crypto.signatures import SIGNATURE_BYTES
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.errors import AggregationAbortedError, MisfitError
from fedpriv.mechanisms.removable_noise import SECRET_BYTES, RemovableNoise
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, blaming
from fedpriv.parties.schema import Maybe, Parts, Raw, Schema, Table
from fedpriv.rounds.query import Broadcast, Total
from fedpriv.util.streams import SystemGenerator

Revealed = dict[str, np.ndarray]


@dataclass
class Collector:
    """The server for one query.

    post: its gate.
    terms: the query's public numbers.
    invited: silos that are asked.
    draws: random numbers for U2 and U5, seeded in a simulation. An attacker that could predict them
        would know which silos to drop.
    message: schema of a silo's masked vector.
    noise: the noise whose surplus is removed from the sum; None: all noise stays.
    """

    post: Post
    terms: Terms
    invited: list[str]
    draws: np.random.Generator | SystemGenerator
    message: Schema
    noise: RemovableNoise | None = None

    def run(self, broadcast: Broadcast) -> Party:
        """The broadcast and the five phases; returns the Total over U5."""
        terms = self.terms
        said: Mail = dict.fromkeys(self.invited, broadcast)
        adverts = yield from self._heard(
            BROADCAST, said, Expected(ADVERTISE, ADVERT, self.invited), least=terms.cohort
        )
        drawn = self._draw(adverts, min(terms.candidates, len(adverts)))
        roster = {name: adverts[name] for name in drawn}
        session = session_of(terms.stamp, roster)
        graph = terms.topology.graph(session, roster)

        said = dict.fromkeys(roster, roster)
        shared = yield from self._heard(
            ADVERTISE, said, Expected(SHARE, self._sharing(roster), roster), least=terms.cohort
        )
        commitments = {name: commitment for name, (commitment, _) in shared.items()}
        sealed = {name: letters for name, (_, letters) in shared.items()}
        for name, letters in sealed.items():
            with blaming(name):
                if set(letters) != set(graph.around(name)) - {name}:
                    raise ValueError("shares for some candidates only")
        deliveries = yield from self._heard(
            SHARE,
            self._letters(graph, sealed),
            Expected(COLLECT, delivery_schema(self.message, terms.topology.receipts), sealed),
            least=terms.cohort,
        )
        masked, receipts = self._with_receipts(deliveries, sharing_digest(session, sealed))
        delivered = sorted(masked)
        chosen = delivered if self.noise else self._draw(delivered, terms.cohort)
        self._demand(
            CHECK, graph.holds_together(chosen), "the silos left out are too close together"
        )
        revealed = yield from self._consented(graph, sealed, delivered, chosen, receipts)
        summed = {name: masked[name] for name in chosen}
        total = self.unmask(
            roster=roster, commitments=commitments, masked=summed, revealed=revealed
        )
        return Total(terms.encoding.decode(total), tuple(chosen))

    def _letters(self, graph: Graph, sealed: dict[str, dict[str, bytes]]) -> Mail:
        """For each silo that has shared: which candidates have, and what they have sealed for
        it."""
        sharers = np.array([name in sealed for name in graph.names])
        found = {}
        for name in sealed:
            peers = (peer for peer in graph.around(name) if peer in sealed and peer != name)
            found[name] = sharers, {peer: sealed[peer][name] for peer in peers}
        return found

    def _with_receipts(
        self, deliveries: dict[str, Delivery], sharing: bytes
    ) -> tuple[dict[str, np.ndarray], dict[str, bytes]]:
        """The masked vectors and receipts of the silos with a right receipt. The others count as
        not heard: with one of them in the set, no witness would sign."""
        if not self.terms.topology.receipts:
            return {name: vector for name, (vector, _) in deliveries.items()}, {}
        statement = receipt_statement(sharing)
        right = {
            name: delivery
            for name, delivery in deliveries.items()
            if self.post.signer.verifies(name, delivery[1], statement)
        }
        wrong = ", ".join(sorted(set(deliveries) - set(right)))
        found = f"{len(right)} of at least {self.terms.cohort} silos; no right receipt of {wrong}"
        self._demand(COLLECT, len(right) >= self.terms.cohort, found)
        return (
            {name: vector for name, (vector, _) in right.items()},
            {name: receipt for name, (_, receipt) in right.items()},
        )

    def _consented(
        self,
        graph: Graph,
        sealed: Collection[str],
        delivered: list[str],
        chosen: list[str],
        receipts: dict[str, bytes],
    ) -> Generator[Mail, Mail, dict[str, Any]]:
        """What U7 reveals, once U6 has signed the set U5."""
        terms = self.terms
        witnesses = sorted(graph.witnesses(set(delivered), set(chosen)))
        shown = {name: receipts[name] for name in chosen if terms.topology.receipts}
        said: Mail = dict.fromkeys(witnesses, (delivered, chosen, shown))
        consent = Expected(CHECK, Raw(SIGNATURE_BYTES), witnesses)
        signatures = yield from self._heard(COLLECT, said, consent, least=terms.threshold)

        said = dict.fromkeys(signatures, signatures)
        any_shares = self._revealing(sealed, chosen, whole=False)
        revealed = yield from self._heard(
            CHECK, said, Expected(UNMASK, any_shares, signatures), least=terms.threshold
        )
        for name, shares in revealed.items():
            with blaming(name):
                self._revealing(
                    [peer for peer in graph.around(name) if peer in sealed], chosen
                ).check(shares)
        return revealed

    def _sharing(self, roster: Collection[str]) -> Schema:
        """Schema of a silo's message in ShareKeys."""
        digests, parts = (1, 0) if self.noise is None else (2, self.noise.parts)
        letters = Table(roster, sealed_schema(2 + parts), whole=False)
        return Parts((Raw(digests * DIGEST_BYTES), letters))

    def _revealing(
        self, owners: Collection[str], chosen: list[str], *, whole: bool = True
    ) -> Schema:
        """Schema of a silo's message in Unmasking.

        owners: silos whose shares it sends; unless `whole`, it may send fewer.
        """
        shares = shares_schema(owners, whole=whole)
        if self.noise is None:
            return shares
        return Parts((shares, shares_schema(chosen, whole=False), Maybe(Raw(SECRET_BYTES))))

    def _draw(self, names: Iterable[str], size: int) -> list[str]:
        """`size` of the names, uniformly without replacement, in order."""
        ordered = sorted(names)
        return [ordered[i] for i in np.sort(np.argsort(self.draws.random(len(ordered)))[:size])]

    def _heard(
        self, phase: str, said: Mail, expected: Expected, *, least: int
    ) -> Generator[Mail, Mail, Mail]:
        """Send and wait for answers. Raises AggregationAbortedError for fewer than `least`."""
        heard = yield from self.post.exchange(phase, said, expected)
        if len(heard) < least:
            silent = self.post.describe_missing(sorted(set(expected.senders) - set(heard)))
            raise AggregationAbortedError(
                f"{expected.phase}: {len(heard)} of at least {least} silos; {silent}"
            )
        return heard

    def unmask(
        self,
        *,
        roster: dict[str, Advert],
        commitments: dict[str, bytes],
        masked: dict[str, np.ndarray],
        revealed: dict[str, Any],
    ) -> np.ndarray:
        """The sum over U5 without masks and without surplus noise, (d,) integers modulo R.

        commitments: of U3 to the own masks' seeds and, if noise can be removed, to the noise.
        masked: messages of U5.
        revealed: contents of U7's last messages.

        Raises AggregationAbortedError when they do not fit together.
        """
        noise = self.noise
        if noise is None:
            return self._without_masks(roster, commitments, masked, revealed)
        kept = noise.kept(len(masked))
        seeds = {name: both[:DIGEST_BYTES] for name, both in commitments.items()}
        of_masks = {name: masks for name, (masks, _, _) in revealed.items()}
        total = self._without_masks(roster, seeds, masked, of_masks)

        def fits(name: str, link: bytes) -> bool:
            return noise.leads_to(commitments[name][DIGEST_BYTES:], link, kept)

        if kept < noise.parts:
            links = self._links(points(roster), sorted(masked), revealed, fits)
            total -= self.terms.encoding.whole(noise.surplus(links, kept))
        return total

    def _without_masks(
        self,
        roster: dict[str, Advert],
        commitments: dict[str, bytes],
        masked: dict[str, np.ndarray],
        revealed: dict[str, Revealed],
    ) -> np.ndarray:
        chosen = sorted(masked)
        left_out = sorted(set(commitments) - set(masked))
        vectors = list(masked.values())
        session = session_of(self.terms.stamp, roster)
        graph = self.terms.topology.graph(session, roster)

        def is_seed(name: str, seed: bytes) -> bool:
            return seed_commitment(session, name, seed) == commitments[name]

        def is_key(name: str, key: bytes) -> bool:
            return PrivateKey(key).public.raw == roster[name][1]

        seeds = self._secrets(graph, chosen, revealed, "own mask", is_seed)
        keys = self._secrets(graph, left_out, revealed, "mask key", is_key)
        plus: list[bytes] = []
        minus = list(seeds.values())
        for gone, key in keys.items():
            private = PrivateKey(key)
            for name in graph.around(gone):
                if name not in masked:
                    continue
                # `name` has added the mask of the pair if its own name is the larger one, and
                # subtracted it otherwise.
                with blaming(name):
                    (minus if name > gone else plus).append(
                        pair_seed(private, PublicKey(roster[name][1]), session)
                    )
        total = np.zeros_like(vectors[0])
        for vector in vectors:
            total += vector
        return add_masks(total, plus, minus, purpose=sharing_digest(session, commitments))

    def _secrets(
        self,
        graph: Graph,
        owners: list[str],
        revealed: dict[str, Revealed],
        what: str,
        fits: Callable[[str, bytes], bool],
    ) -> dict[str, bytes]:
        """The owners' secrets. Owners whose shares lie at the same points are reconstructed in one
        product.

        what: the secrets' name in errors.
        fits: whether an owner's secret is the one that it has committed to.

        Raises AggregationAbortedError for wrong shares. If more than enough silos answer, it names
        those who gave them and the owner, who may have dealt them; else all who may have lied.
        """
        least = self.terms.topology.shares
        secrets = dict[str, bytes]()
        at: dict[tuple[int, ...], dict[str, list[np.ndarray]]] = {}
        for owner in owners:
            place = points(graph.around(owner))
            answers = [name for name in place if name in revealed][:least]
            self._demand(
                UNMASK,
                len(answers) == least,
                f"{len(answers)} of {least} shares of {owner}'s secrets",
            )
            rows = at.setdefault(tuple(place[name] for name in answers), {})
            rows[owner] = [revealed[name][owner] for name in answers]
        try:
            for where, rows in at.items():
                secrets |= zip(
                    rows, Reconstruction.at([*where]).secrets(np.array([*rows.values()]))
                )
        except BadSharesError:
            secrets = {}
        for owner in owners:
            if owner not in secrets or not fits(owner, secrets[owner]):
                place = points(graph.around(owner))
                shares = {name: revealed[name][owner] for name in place if name in revealed}
                secrets[owner] = self._rebuilt(owner, place, shares, what, fits)
        return secrets

    def _rebuilt(
        self,
        owner: str,
        place: dict[str, int],
        shares: dict[str, np.ndarray],
        what: str,
        fits: Callable[[str, bytes], bool],
    ) -> bytes:
        """One owner's secret, from shares (LIMBS,) by holder. Raises AggregationAbortedError that
        names the holders of wrong ones.

        Tries sets of neighbouring holders on a ring. The secret of a set of honest holders fits the
        owner's commitment, and then shows who lies.
        """
        needed = self.terms.topology.shares
        holders = sorted(shares)
        for start in range(len(holders)):
            turned = holders[start:] + holders[:start]
            honest = turned[:needed]
            secret = _joined(honest, place, shares)
            if secret is None or not fits(owner, secret):
                continue
            liars = [
                name
                for name in turned[needed:]
                if _joined([*honest[1:], name], place, shares) != secret
            ]
            if liars:
                raise MisfitError(
                    f"{UNMASK}: the shares do not give {owner}'s {what}: wrong is that of "
                    f"{', '.join(sorted(liars))}, unless {owner} has dealt it so"
                )
            return secret
        suspects = ", ".join(dict.fromkeys([owner, *holders]))
        raise AggregationAbortedError(
            f"{UNMASK}: the shares do not give {owner}'s {what}: one of {suspects} has lied"
        )

    def _links(
        self,
        place: dict[str, int],
        names: list[str],
        revealed: dict[str, Revelation],
        fits: Callable[[str, bytes], bool],
    ) -> list[bytes]:
        """The secret of each silo's surplus, from the silo or from the others' shares. Raises
        AggregationAbortedError that names a silo that lies."""
        links = []
        wrong = "the secret of its surplus noise is not the one that it has committed to"
        for name in names:
            if name in revealed:
                link = revealed[name][2]
                with blaming(name):
                    if link is None or not fits(name, link):
                        raise ValueError(wrong)
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

    def _demand(self, phase: str, holds: bool, otherwise: str) -> None:
        if not holds:
            raise AggregationAbortedError(f"{phase}: {otherwise}")


def _joined(names: list[str], place: dict[str, int], shares: dict[str, np.ndarray]) -> bytes | None:
    """The secret that these holders' shares give; None if they come from none."""
    try:
        rows = np.stack([shares[name] for name in names])
        return Reconstruction.at([place[name] for name in names]).secrets(rows[None])[0]
    except BadSharesError:
        return None
