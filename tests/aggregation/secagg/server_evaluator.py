"""All that a cheating server can see of a secure sum, and what it learns from it: an evaluator that
the rule of `fedpriv.aggregation.secagg.threat_model` is held against.

Signatures, encryption and pseudorandom masks are ideal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property

from secure_sums import names

from fedpriv.aggregation.secagg import threat_model

Silos = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Setting(threat_model.Setting):
    """most: largest number of silos in a sum, if the number varies."""

    most: int | None = None

    @property
    def honest(self) -> list[str]:
        """The names of the silos that do not collude, in order."""
        return names(self.silos - self.colluding)

    @property
    def everybody(self) -> Silos:
        return frozenset(names(self.silos))

    @property
    def colluders(self) -> Silos:
        return self.everybody - {*self.honest}

    @property
    def certified_noise(self) -> Fraction:
        """The least part of a sum's noise variance that stays hidden from the coalition."""
        return Fraction(max(0, self.cohort - self.colluding), self.cohort)

    @property
    def safe(self) -> bool:
        """Whether the theorem holds."""
        return self.one_statement and self.one_session

    @property
    def largest(self) -> int:
        return self.cohort if self.most is None else self.most


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


@dataclass(frozen=True, kw_only=True)
class ServerView:
    """What a coalition sees of one query.

    setting: of the query.
    claims: what each honest silo is told, by name; silos that are told nothing are left out.
    colluding: names of the colluding silos.
    witnesses: which silos sign.
    around: neighbours on a sparse graph; None: all candidates are neighbours.
    shares: shares that reveal a secret on a sparse graph; None: the threshold.
    """

    setting: Setting
    claims: Mapping[str, Claim]
    colluding: Silos = frozenset()
    witnesses: Witnesses = Witnesses.RECEIPTS
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
            and len(near) >= self._shares
            and len(roster) <= self.setting.candidates
            and not claim.replaced & self._near(claim.session, name, roster)
        )

    @property
    def _shares(self) -> int:
        return self.setting.threshold if self.shares is None else self.shares

    def _signed(self, name: str) -> list[Silos]:
        """The sets that a silo signs: the first one that it is asked about, if any."""
        claim = self.claims[name]
        return [chosen for chosen in claim.sets[:1] if self._signs(name, claim, chosen)]

    def _signs(self, name: str, claim: Claim, chosen: Silos) -> bool:
        fits = self.setting.cohort <= len(chosen) <= self.setting.largest
        if not fits or not chosen <= claim.listed:
            return False
        if self.witnesses is Witnesses.DELIVERED:
            return True
        if self.witnesses is Witnesses.CHOSEN:
            return name in chosen
        return all(self.lists.get(peer) == self.lists[name] for peer in chosen - self.colluding)

    @cached_property
    def revealing(self) -> list[tuple[str, Silos]]:
        """Honest silos that reveal shares, and the set for which they do."""
        signers = defaultdict[object, set[str]](set)
        signed = [(name, chosen) for name in self.lists for chosen in self._signed(name)]
        for name, chosen in signed:
            signers[self.lists[name], chosen].add(name)
        answers = []
        for name, chosen in signed:
            allowed = chosen if self.witnesses is Witnesses.CHOSEN else self.claims[name].listed
            found = (signers[self.lists[name], chosen] | self.colluding) & allowed
            if len(found) >= self.setting.threshold and self._opens(name):
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
                (seeds if peer in chosen else keys)[peer].add(name)

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
