"""What a cheating server can learn from a secure sum: the rule that settings obey, and an evaluator
of views that checks it.

The server and `colluding` silos pool what they know. The server chooses what it tells each honest
silo. Signatures, encryption and pseudorandom masks are ideal.

Theorem. Let masks and signatures depend on the session (roster) and on the list of silos that
shared. Let a silo sign one set of `cohort` silos, after it has seen signed receipts: each silo of
the set has masked for the same session and list. Let a silo reveal shares after `threshold`
signatures on its own statement (session, list, set): of the own mask for each silo in the set, of
the mask key for each other silo on the list. If

    2 threshold > candidates + colluding,  and
    2 cohort > silos + colluding  or  candidates = silos,

the coalition learns at most one sum, over the honest silos of one set of `cohort` silos.

Proof. An honest silo signs one statement, and colluding silos sign all. Two statements of one
session have 2 threshold signatures of at most `candidates` silos only if 2 threshold <= candidates
+ colluding. As colluding < threshold, each signed statement has an honest signer. It has seen the
receipts, so all honest silos of the set are in the statement's session. Two sessions thus need
2 cohort <= silos + colluding; with candidates = silos they need 2 threshold <= silos + colluding.
So one statement (S, V, F) at most has `threshold` signatures. Honest silos then reveal own masks in
F and mask keys in V \\ F alone. The message of a silo outside F keeps its own mask. All honest
silos of F have masked for S and V, and no mask key of theirs is known. Their common masks cancel
only in the sum over all of them.

Without receipts it is enough that silos sign only sets with themselves inside, for candidates =
silos (K. Bonawitz et al., Practical secure aggregation, CCS 2017, theorem 6.5): the list of a
readable message has `threshold` members. So it contains an honest signer of F, whose mask cancels
only if the lists are equal. It is not enough that all silos that have delivered may sign: the mask
keys of signers outside F are revealed, and open their masks with silos that got another list.

Corollary, for noise whose surplus is removed (`exact_noise`). A silo reveals secrets of surplus
after the same signatures, and for the size of its own F alone; the coalition's `colluding` shares
reveal none. All that is revealed is thus for the one F: of n silos in it, each honest one keeps
variance 1 / n of the certified sum's. The sum keeps at least (n - colluding) / n, so at least
(cohort - colluding) / cohort, which is what is certified. Two statements would not do: with the
surplus for all n silos removed, a sum over k of them keeps k / n.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property

Silos = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The numbers that decide what a cheating server can learn.

    silos: invited silos.
    candidates: most silos on a roster.
    cohort: silos in a sum; with `most` the fewest.
    threshold: shares that reveal a secret; signatures that a set needs.
    colluding: silos that pool their knowledge with the server.
    most: largest number of silos in a sum, if the number varies.
    """

    silos: int
    candidates: int
    cohort: int
    threshold: int
    colluding: int = 0
    most: int | None = None

    @property
    def one_statement(self) -> bool:
        """Whether no two statements of one session can have enough signatures."""
        return 2 * self.threshold > self.candidates + self.colluding

    @property
    def one_session(self) -> bool:
        """Whether no two sessions can both end with a sum."""
        return self.candidates == self.silos or 2 * self.cohort > self.silos + self.colluding

    @property
    def certified_noise(self) -> Fraction:
        """The least part of a sum's noise variance that stays hidden from the coalition."""
        return Fraction(max(0, self.cohort - self.colluding), self.cohort)

    @property
    def safe(self) -> bool:
        """Whether the theorem holds."""
        return self.one_statement and self.one_session

    def nearest(self) -> Setting:
        """A safe setting of possible numbers, each as small as this setting's or as little larger
        as can be. Needs fewer colluding silos than silos."""
        candidates = min(self.candidates, self.silos)
        while True:
            least = least_majority(candidates, self.colluding)
            threshold = min(max(self.threshold, least), candidates)
            cohort = max(self.cohort, threshold)
            if candidates < self.silos:
                cohort = max(cohort, least_majority(self.silos, self.colluding))
            if max(cohort, least) <= candidates or candidates == self.silos:
                return replace(
                    self,
                    candidates=candidates,
                    cohort=min(cohort, candidates),
                    threshold=max(threshold, least),
                )
            candidates = min(max(cohort, least), self.silos)


def least_majority(members: int, colluding: int) -> int:
    """The smallest number m of members with 2 m > members + colluding: two sets of m members have
    an honest one in common."""
    return (members + colluding) // 2 + 1


class Check(Enum):
    """What an honest silo makes sure of.

    GENUINE_KEYS: the owners have signed the keys on the roster.
    ROSTER_SIZE: a roster has at most `candidates` silos.
    LIST_SIZE: at least `threshold` silos have shared. The theorem does without it, the variant
        without receipts does not.
    SET_SIZE: a set has `cohort` silos.
    SET_IN_SIGNATURES: a signature counts for the set that it was made for.
    ONE_SET: it signs one set.
    WITNESS: it may sign, see `Witnesses`.
    ENOUGH_SIGNATURES: it reveals shares after `threshold` signatures.
    ONE_SECRET: it reveals shares of one of a silo's two secrets.
    """

    GENUINE_KEYS = auto()
    ROSTER_SIZE = auto()
    LIST_SIZE = auto()
    SET_SIZE = auto()
    SET_IN_SIGNATURES = auto()
    ONE_SET = auto()
    WITNESS = auto()
    ENOUGH_SIGNATURES = auto()
    ONE_SECRET = auto()


ALL = frozenset(Check)


class Witnesses(Enum):
    """Which silos sign a set: those that have delivered, those in the set, or those that have
    delivered and have seen the set's receipts."""

    DELIVERED = auto()
    CHOSEN = auto()
    RECEIPTS = auto()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the server tells one honest silo in one query.

    session: number of the roster.
    listed: silos that have shared, with this silo.
    sets: the sets that it is asked to sign; honest silos answer the first one.
    replaced: silos in whose place the server has put its own keys.
    roster: silos on the roster; None: `listed`.
    """

    listed: Silos
    sets: tuple[Silos, ...] = ()
    session: int = 0
    replaced: Silos = frozenset()
    roster: Silos | None = None


Around = Callable[[int, str], Silos]
"""A silo and its neighbours in a session."""
Pad = tuple[Silos, object]
"""A mask: its silo, or its two silos, and what it depends on."""
Statement = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class ServerView:
    """What a coalition sees of one query.

    setting: of the query.
    claims: what each honest silo is told, by name; silos that are told nothing are left out.
    colluding: names of the colluding silos.
    witnesses: which silos sign.
    checks: what honest silos check.
    around: neighbours on a sparse graph; None: all candidates are neighbours.
    shares: shares that reveal a secret on a sparse graph; None: the threshold.
    """

    setting: Setting
    claims: Mapping[str, Claim]
    colluding: Silos = frozenset()
    witnesses: Witnesses = Witnesses.RECEIPTS
    checks: frozenset[Check] = ALL
    around: Around | None = None
    shares: int | None = None

    def learned(self) -> list[Silos]:
        """The sums that the coalition can compute, each by the honest silos in it.

        A message with an unknown mask that is in no other message is useless. Two messages with an
        unknown mask in common are useful only together, as the mask has opposite signs in them.
        """
        places = defaultdict[Pad, list[str]](list)
        for name in self.lists:
            for pad in self._unknown(name):
                places[pad].append(name)
        joined = {name: {name} for name in self.lists}
        for pair in places.values():
            if len(pair) == 2 and joined[pair[0]] is not joined[pair[1]]:
                joined[pair[0]] |= joined[pair[1]]
                for name in joined[pair[1]]:
                    joined[name] = joined[pair[0]]
        alone = {pair[0] for pair in places.values() if len(pair) == 1}
        parts = {id(part): frozenset(part) for part in joined.values()}
        return sorted((part for part in parts.values() if not part & alone), key=sorted)

    @property
    def leaks(self) -> bool:
        """Whether the coalition learns more than one sum, one over too few honest silos, or one
        with too little noise."""
        learned = self.learned()
        least = max(1, self.setting.cohort - len(self.colluding))
        bare = self.setting.most is not None and any(
            self.noise_left(part) < self.setting.certified_noise for part in learned
        )
        return bare or len(learned) > 1 or any(len(part) < least for part in learned)

    @cached_property
    def lists(self) -> dict[str, object]:
        """The session and list for which each honest silo masks that answers at all."""
        return {
            name: (claim.session, claim.listed)
            for name, claim in self.claims.items()
            if self._accepts(name, claim)
        }

    def _near(self, session: int, name: str, names: Silos) -> Silos:
        return names if self.around is None else names & self.around(session, name)

    def _accepts(self, name: str, claim: Claim) -> bool:
        near = self._near(claim.session, name, claim.listed)
        roster = claim.listed if claim.roster is None else claim.roster
        return (
            name in claim.listed
            and name not in claim.replaced
            and claim.listed <= roster
            and (Check.LIST_SIZE not in self.checks or len(near) >= self._shares)
            and (Check.ROSTER_SIZE not in self.checks or len(roster) <= self.setting.candidates)
            and (
                Check.GENUINE_KEYS not in self.checks
                or not claim.replaced & self._near(claim.session, name, roster)
            )
        )

    @property
    def _shares(self) -> int:
        return self.setting.threshold if self.shares is None else self.shares

    def _statement(self, claim: Claim, chosen: Silos) -> Statement:
        return (
            claim.session,
            claim.listed,
            chosen if Check.SET_IN_SIGNATURES in self.checks else None,
        )

    def _signed(self, name: str) -> list[Silos]:
        """The sets that a silo signs."""
        claim = self.claims[name]
        asked = claim.sets[:1] if Check.ONE_SET in self.checks else claim.sets
        return [chosen for chosen in asked if self._signs(name, claim, chosen)]

    def _signs(self, name: str, claim: Claim, chosen: Silos) -> bool:
        most = self.setting.cohort if self.setting.most is None else self.setting.most
        fits = self.setting.cohort <= len(chosen) <= most
        if not chosen <= claim.listed or (Check.SET_SIZE in self.checks and not fits):
            return False
        if Check.WITNESS not in self.checks or self.witnesses is Witnesses.DELIVERED:
            return True
        if self.witnesses is Witnesses.CHOSEN:
            return name in chosen
        return all(self.lists.get(peer) == self.lists[name] for peer in chosen - self.colluding)

    @cached_property
    def revealing(self) -> list[tuple[str, Silos]]:
        """Honest silos that reveal shares, and the set for which they do."""
        signers = defaultdict[Statement, set[str]](set)
        signed = {name: self._signed(name) for name in self.lists}
        for name, sets in signed.items():
            for chosen in sets:
                signers[self._statement(self.claims[name], chosen)].add(name)
        answers = []
        for name, sets in signed.items():
            claim = self.claims[name]
            for chosen in sets:
                inside = self.witnesses is Witnesses.CHOSEN and Check.WITNESS in self.checks
                allowed = chosen if inside else claim.listed
                found = (signers[self._statement(claim, chosen)] | self.colluding) & allowed
                enough = len(found) >= self.setting.threshold
                if (enough or Check.ENOUGH_SIGNATURES not in self.checks) and self._opens(name):
                    answers.append((name, chosen))
        return answers

    def _opens(self, name: str) -> bool:
        """Whether the letters with shares are for this silo: their senders must have sealed them
        in the same session."""
        claim = self.claims[name]
        near = self._near(claim.session, name, claim.listed) - self.colluding - claim.replaced
        return all(
            peer in self.claims and self.claims[peer].session == claim.session for peer in near
        )

    def noise_left(self, part: Silos) -> Fraction:
        """The noise variance in a learned sum over these honest silos that the coalition cannot
        remove, as a part of the whole. Needs `setting.most`."""
        most = self.setting.most
        assert most is not None
        return sum(
            (
                Fraction(1, most - self.surplus.get(name, most - self.setting.cohort))
                for name in part
            ),
            start=Fraction(0),
        )

    @cached_property
    def surplus(self) -> dict[str, int]:
        """How many removable parts of each honest silo's noise stay hidden from the coalition; of
        silos that are missing, all."""
        most = self.setting.most
        assert most is not None
        held = defaultdict[tuple[str, int], set[str]](set)
        known = defaultdict[str, set[int]](set)
        for name, chosen in self.revealing:
            kept = most - len(chosen)
            if kept >= most - self.setting.cohort:
                continue  # there is no surplus
            if name in chosen:
                known[name].add(kept)
            claim = self.claims[name]
            for peer in self._near(claim.session, name, chosen):
                held[peer, kept].add(name)
        for (name, kept), holders in held.items():
            own = self._own_shares(name, self.claims[name]) if name in self.claims else frozenset()
            if len(holders | own) >= self._shares:
                known[name].add(kept)
        return {name: min(kept) for name, kept in known.items()}

    @cached_property
    def secrets(self) -> tuple[Silos, Silos]:
        """Honest silos of which the coalition knows the seed of the own mask; the mask key."""
        seeds = defaultdict[str, set[str]](set)
        keys = defaultdict[str, set[str]](set)
        for name, chosen in self.revealing:
            claim = self.claims[name]
            for peer in self._near(claim.session, name, claim.listed):
                if peer in chosen or Check.ONE_SECRET not in self.checks:
                    seeds[peer].add(name)
                if peer not in chosen or Check.ONE_SECRET not in self.checks:
                    keys[peer].add(name)

        def known(shares: Mapping[str, set[str]]) -> Silos:
            return frozenset(
                name
                for name, claim in self.claims.items()
                if len(shares.get(name, set()) | self._own_shares(name, claim)) >= self._shares
            )

        return known(seeds), known(keys)

    def _own_shares(self, name: str, claim: Claim) -> Silos:
        """Members of the coalition, or names that it has taken, that got a silo's shares."""
        return self._near(claim.session, name, self.colluding | claim.replaced)

    def _unknown(self, name: str) -> Iterable[Pad]:
        """The masks of a message that the coalition does not know."""
        seeds, keys = self.secrets
        claim = self.claims[name]
        purpose = self.lists[name]
        if name not in seeds:
            yield frozenset([name]), purpose
        if name in keys:
            return
        for peer in self._near(claim.session, name, claim.listed) - {name}:
            if peer not in self.colluding | keys | claim.replaced:
                yield frozenset([name, peer]), purpose
