"""A server that tells each real silo what it likes, silos that collude with it, and what they read.

The coalition makes the colluding silos' keys, and signs in their names whatever it needs. What it
learns is worked out from the shares that it holds, and from messages and masks as numbers.
"""

from __future__ import annotations

import numpy as np
from coalition_view import eliminated
from parties_of_generators import SESSION
from queries import query_for
from secure_sums import names, ready
from server_evaluator import ServerView, Setting

from fedpriv.aggregation.base import BROADCAST, SERVER
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.aggregation.secagg.messages import (
    ADVERTISE,
    CHECK,
    COLLECT,
    SHARE,
    Envelope,
    keys_statement,
    pair_seed,
    points,
    receipt_statement,
    session_of,
    set_statement,
    sharing_digest,
)
from fedpriv.crypto.prg import add_masks
from fedpriv.crypto.secret_sharing import LIMBS, Reconstruction
from fedpriv.crypto.x25519 import PrivateKey, PublicKey
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Broadcast

KEY, SEED = 0, 1
"""Rows of a silo's shares: of its mask key, and of its own mask's seed."""
SIZE = 3


def aggregation_of(setting: Setting) -> SecAgg:
    """The aggregation with these numbers."""
    numbers = {
        key: getattr(setting, key) for key in ("threshold", "cohort", "candidates", "colluding")
    }
    return SecAgg(**numbers) if setting.most is None else SecAggExactNoise(**numbers)


class Unguarded(SecAgg):
    """Runs with numbers that are not safe."""

    def require_safe(self, setting):
        pass


class UnguardedExact(SecAggExactNoise):
    """Runs with numbers that are not safe."""

    def require_safe(self, setting):
        pass


def unguarded(setting: Setting) -> SecAgg:
    """The aggregation with these numbers, safe or not."""
    numbers = {key: getattr(setting, key) for key in ("threshold", "cohort", "candidates")}
    return Unguarded(**numbers) if setting.most is None else UnguardedExact(**numbers)


class Attack:
    """One query in which the server tells real silos what a view says.

    refused: why honest silos refused, by name.
    messages: masked vectors of honest silos. inputs: what they hide.
    held: shares (LIMBS,) in the coalition's hands, by owner and row, then holder.
    """

    def __init__(
        self,
        view: ServerView,
        aggregation: SecAgg,
        protocols=None,
        round=1,
        *,
        earlier=None,
        chance=None,
    ):
        """protocols: of silos that have a set-up behind them. earlier: an attack of another query
        or set-up, from which this one replays. chance: draws what is replayed, and what is sent
        out of order."""
        self.view, self.earlier, self.chance = view, earlier, chance
        setting = view.setting
        self.silos = names(setting.silos)
        self.honest = [name for name in self.silos if name not in view.colluding]
        self.protocols = protocols or ready(aggregation, setting.silos)
        self.query = query_for(aggregation, setting.silos, round, size=SIZE)
        self.terms = aggregation.terms(self.query, digest_of(Broadcast({})))
        self.stamp = (SESSION, *self.query.serial, digest_of(Broadcast({})))
        self.members, self.refused, self.held = {}, {}, {}
        self._start()
        self.adverts = self._say(BROADCAST, dict.fromkeys(self.honest, Broadcast({})))
        self.own = {}
        self.rosters = {name: self._roster(name) for name in view.claims}
        self.shared = self._say(ADVERTISE, {n: r for n, (_, r) in self.rosters.items()})
        delivered = self._say(SHARE, {n: self._letters(n) for n in self.shared})
        self.messages = {name: vector for name, (vector, _) in delivered.items()}
        self.receipts = {name: receipt for name, (_, receipt) in delivered.items()}
        asked = {name: view.claims[name] for name in delivered if view.claims[name].sets}
        self.signatures = self._say(COLLECT, {n: self._sets(n) for n in asked})
        self.revealed = self._say(CHECK, {n: self._signed(n) for n in self.signatures})
        self._hold()

    def _start(self):
        rng = np.random.default_rng(self.query.round)
        vectors = {n: rng.integers(-99, 100, SIZE).astype(float) for n in self.honest}
        self.secrets = {name: rng.bytes(32) for name in self.honest}
        updates = {n: LocalJob(iter(()), v, self.secrets[n]) for n, v in vectors.items()}
        self.inputs = {n: self.query.encoding.encode(v, n) for n, v in vectors.items()}
        for name in self.honest:
            silo = self.protocols[name]
            silo.member = self._remembering(type(silo).member.__get__(silo), name)
        cast = self.protocols.query(self.query, updates)
        self.cast = {name: cast[name] for name in self.honest}
        for party in self.cast.values():
            next(party)

    def _remembering(self, made, name):
        def member(*args, **common):
            self.members[name] = made(*args, **common)
            return self.members[name]

        return member

    def _say(self, phase, contents):
        """The answers; silos that refuse or have left are left out."""
        answers = {}
        for name, content in contents.items():
            letter = self.protocols.letter(self.query, phase, SERVER, name, content)
            try:
                if self._by_chance():
                    other = self.chance.choice([BROADCAST, ADVERTISE, SHARE, COLLECT, CHECK])
                    early = self.protocols.letter(self.query, other, SERVER, name, content)
                    sent = {} if other == phase else self.cast[name].send({SERVER: early})
                    assert not sent  # it waits for its phase
                sent = self.cast[name].send({SERVER: letter})
            except AggregationAbortedError as abort:
                self.refused[name] = str(abort)
            except StopIteration:
                self.refused[name] = "left"
            else:
                if sent:
                    answers[name] = sent[SERVER].content
        return answers

    def _by_chance(self):
        return self.chance is not None and self.chance.random() < 0.05

    def _replayed(self, kept: str, name, otherwise):
        """Now and then what a silo sent in the earlier query, in place of what it sent now."""
        old = getattr(self.earlier, kept, {})
        return old[name] if name in old and self._by_chance() else otherwise

    def _own_keys(self, session, name):
        """Channel and mask keys that the coalition has made in a silo's name."""
        made = PrivateKey.generate(), PrivateKey.generate()
        return self.own.setdefault((session, name), made)

    def _roster(self, name):
        """The session's digest, and the roster as this silo gets it."""
        claim = self.view.claims[name]
        roster = {}
        for peer in sorted(claim.listed if claim.roster is None else claim.roster):
            if peer in self.adverts and peer not in claim.replaced:
                roster[peer] = self._replayed("adverts", peer, self.adverts[peer])
                continue
            keys = tuple(key.public.raw for key in self._own_keys(claim.session, peer))
            key = self.protocols[min(self.view.colluding or {peer})].signer.key
            if peer in self.view.colluding:
                key = self.protocols[peer].signer.key
            elif peer in claim.replaced:
                key = self.protocols[SERVER].signer.key
            roster[peer] = (*keys, key.sign(keys_statement(self.stamp, peer, keys)))
        return session_of(self.stamp, roster), roster

    def _letters(self, name):
        session, roster = self.rosters[name]
        claim = self.view.claims[name]
        letters = {}
        for peer in sorted((claim.listed & self._around(name)) - {name}):
            if peer in self.view.colluding | claim.replaced:
                channel, _ = self._own_keys(claim.session, peer)
                envelope = self._envelope(channel, roster[name][0], session, (peer, name))
                rows = len(self.members[name].secrets)
                letters[peer] = envelope.seal(np.zeros((rows, LIMBS), np.uint32).tobytes())
            elif peer in self.shared and name in self.shared[peer][1]:
                shared = self._replayed("shared", peer, self.shared[peer])
                letters[peer] = shared[1].get(name, self.shared[peer][1][name])
            else:  # a letter that nobody has written
                letters[peer] = bytes(len(next(iter(self.shared[name][1].values()))))
        return np.array([peer in claim.listed for peer in sorted(roster)]), letters

    def _around(self, name):
        return set(self.members[name].graph.around(name))

    def _envelope(self, own, peer, session, way):
        return Envelope(
            own=own, peer=PublicKey(peer), session=session, sender=way[0], receiver=way[1]
        )

    def _sets(self, name):
        claim = self.view.claims[name]
        chosen = sorted(claim.sets[0])
        if not self.terms.topology.receipts:
            return sorted(claim.listed), chosen, {}
        about = receipt_statement(self.members[name].purpose)
        shown = {
            peer: self._replayed("receipts", peer, self.receipts.get(peer, bytes(64)))
            for peer in chosen
        }
        for peer in self.view.colluding & set(chosen):
            shown[peer] = self.protocols[peer].signer.sign(about)
        return sorted(claim.listed), chosen, shown

    def _signed(self, name):
        """All signatures that this silo would take, in its own witnesses' names."""
        member = self.members[name]
        statement = set_statement(member.purpose, sorted(member.chosen))
        right = {
            peer: signature
            for peer, signature in self.signatures.items()
            if self.protocols[peer].signer.key.sign(statement) == signature
        }
        for peer in self.view.colluding:
            right[peer] = self.protocols[peer].signer.key.sign(statement)
        return {peer: right[peer] for peer in sorted(right) if peer in member.witnesses()}

    def _hold(self):
        """Collect the shares that the coalition has been given, or has from its own members."""
        for name, answer in self.revealed.items():
            masks = answer[0] if isinstance(answer, tuple) else answer
            chosen = self.members[name].chosen
            for owner, share in masks.items():
                if owner in self.honest:
                    self._take(owner, SEED if owner in chosen else KEY, name, share)
            if isinstance(answer, tuple):
                row = 2 + self.query.removable.kept(len(chosen))
                for owner, share in answer[1].items():
                    if owner in self.honest:
                        self._take(owner, row, name, share)
        for owner, (_, sealed) in self.shared.items():
            claim = self.view.claims[owner]
            for peer in (self.view.colluding | claim.replaced) & set(sealed):
                channel, _ = self._own_keys(claim.session, peer)
                session, roster = self.rosters[owner]
                envelope = self._envelope(channel, roster[owner][0], session, (owner, peer))
                raw = np.frombuffer(envelope.unseal(sealed[peer]), np.uint32)
                for row, share in enumerate(raw.reshape(-1, LIMBS)):
                    self._take(owner, row, peer, share)

    def _take(self, owner, row, holder, share):
        self.held.setdefault((owner, row), {})[holder] = share

    def knows(self, owner, row):
        """Whether the shares give the secret; they are put together to see."""
        shares = self.held.get((owner, row), {})
        least = self.terms.topology.shares
        if len(shares) < least:
            return False
        place = points(self.members[owner].graph.around(owner))
        holders = sorted(shares)[:least]
        rows = np.array([[shares[holder] for holder in holders]])
        (secret,) = Reconstruction.at([place[holder] for holder in holders]).secrets(rows)
        assert secret == self.members[owner].secrets[row]
        return True

    def _masks(self, name):
        """The masks of a message, by their silos and purpose, with signs; each as numbers."""
        member = self.members[name]
        masks = {(frozenset([name]), member.purpose): (1, member.seed)}
        for peer in member.sealed:
            sign = 1 if peer < name else -1
            masks[frozenset([name, peer]), member.purpose] = (sign, member.pairs[peer])
        total = np.zeros(SIZE, np.uint64)
        for (_, purpose), (sign, seed) in masks.items():
            add_masks(total, [seed] * (sign > 0), [seed] * (sign < 0), purpose=purpose)
        return {mask: sign for mask, (sign, _) in masks.items()}, total

    def learned(self):
        """Generators of the combinations of inputs that the coalition can compute: factors by
        silo, modulo 2^64."""
        keys = {name for name in self.honest if name in self.members and self.knows(name, KEY)}
        seeds = {name for name in self.honest if name in self.members and self.knows(name, SEED)}
        rows, hidden = {}, set()
        for name, message in self.messages.items():
            masks, total = self._masks(name)
            assert (message == self.inputs[name] + total).all()  # nothing else hides the input
            out = self.view.colluding | keys | self.view.claims[name].replaced
            rows[name] = {
                mask: sign
                for mask, sign in masks.items()
                if (mask[0] - seeds if len(mask[0]) == 1 else not mask[0] & out)
            }
            hidden |= set(rows[name])
        order = sorted(hidden, key=lambda mask: (sorted(mask[0]), mask[1]))
        table = [
            [rows[u].get(mask, 0) for mask in order] + [int(u == v) for v in rows] for u in rows
        ]
        found = [row for row in eliminated(table, len(order), 2**64) if any(row)]
        return [dict(zip(rows, row)) for row in found]

    def surplus(self):
        """How many removable parts of each honest silo's noise the coalition cannot compute, by
        silo: from secrets that silos have told, and from shares that it puts together."""
        noise, found = self.query.removable, {}
        for name in self.honest:
            links = noise.chain(self.secrets[name])
            told = {a[2] for n, a in self.revealed.items() if n == name and a[2] is not None}
            shared = [
                k for k in range(noise.parts) if name in self.members and self.knows(name, 2 + k)
            ]
            found[name] = min([*(links.index(link) for link in told), *shared, noise.parts])
        return found

    def beyond(self):
        """What the coalition learns beyond what the evaluator says."""
        sums = self.view.learned()
        known = frozenset().union(*sums)
        return [
            row
            for row in self.learned()
            if any(factor for name, factor in row.items() if name not in known)
            or any(len({row.get(name, 0) for name in part}) > 1 for part in sums)
        ]

    def agrees(self):
        """Whether the coalition learns just what the evaluator says."""
        return len(self.learned()) == len(self.view.learned()) and not self.beyond()

    def read(self, part):
        """The sum of the inputs of some silos, computed from their messages and the secrets that
        the coalition knows; None if one is missing."""
        total = np.zeros(SIZE, np.uint64)
        for name in part:
            member = self.members[name]
            if not self.knows(name, SEED):
                return None
            plus, minus = [], [member.seed]
            for peer in set(member.sealed) - set(part):
                if peer in self.view.colluding:
                    _, own = self._own_keys(self.view.claims[name].session, peer)
                    public = PublicKey(self.rosters[name][1][name][1])
                elif self.knows(name, KEY):
                    own = PrivateKey(member.secrets[KEY])
                    public = PublicKey(self.rosters[name][1][peer][1])
                elif peer in self.members and self.knows(peer, KEY):
                    own = PrivateKey(self.members[peer].secrets[KEY])
                    public = PublicKey(self.rosters[name][1][name][1])
                else:
                    return None
                seed = pair_seed(own, public, self.rosters[name][0])
                (minus if peer < name else plus).append(seed)
            about = sharing_digest(self.rosters[name][0], self.view.claims[name].listed)
            total += add_masks(self.messages[name].copy(), plus, minus, purpose=about)
        return total
