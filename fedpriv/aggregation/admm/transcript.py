"""What colluding peers learn from real messages, in any number of aggregations, aborted ones
included.

Everything comes from the letters that the colluders sent or received: the groups, the messages, the
partial sums. `knowledge` says what these determine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedpriv.aggregation.admm.knowledge import Coalition, Observation
from fedpriv.aggregation.admm.peer import PARTIAL, RELAY, SHARE, SUM, Y
from fedpriv.aggregation.admm.penalty import Penalty
from fedpriv.parties.post import Serial
from fedpriv.parties.traffic import Letter


class Disclosure(NamedTuple):
    """What colluders know after an iteration.

    aggregation: its round and place.
    iteration: from 1.
    determined: (model, peer) of the vectors that are determined.
    """

    aggregation: Serial
    iteration: int
    determined: frozenset[tuple[Hashable, str]]


def _itself(serial: Serial) -> Hashable:
    return serial


@dataclass
class Eavesdroppers:
    """Colluding peers who have kept their mail.

    colluders: their names.
    penalty: rho of each iteration.
    shares: each peer's weight in the average, in the peers' order.
    model_of: names the vectors of an aggregation, given by round and place; by default each
        aggregation has its own.
    groups: members seen so far, by aggregation and iteration, then by peer.
    """

    colluders: Collection[str]
    penalty: Penalty
    shares: Mapping[str, float]
    model_of: Callable[[Serial], Hashable] = _itself
    groups: dict[tuple[Serial, int], dict[str, frozenset[str]]] = field(default_factory=dict)

    def steps(self, letters: Iterable[Letter]) -> list[Disclosure]:
        """The determined vectors after each iteration, in the order of the letters."""
        coalition = Coalition(self.colluders, self.penalty)
        steps = list[Disclosure]()
        for seen, _ in self.observations(letters):
            coalition.sees(seen)
            step = Disclosure(seen.aggregation, seen.iteration, coalition.determined())  # type: ignore[arg-type]
            if steps and steps[-1][:2] == step[:2]:
                steps.pop()
            steps.append(step)
        return steps

    def observations(
        self, letters: Iterable[Letter]
    ) -> Iterator[tuple[Observation, np.ndarray | None]]:
        """The weighted sums of messages that the colluders have, each with its value; None for
        masked integers."""
        kept = [(letter, *self._place(letter)) for letter in letters]
        for letter, phase, at in kept:
            if phase in (Y, SHARE):
                group = self.groups.setdefault(at, {})
                group[letter.sender] = group.get(letter.sender, frozenset((letter.sender,))) | {
                    letter.receiver
                }
        known: set[tuple[tuple[Serial, int], frozenset[str]]] = set()
        for letter, phase, at in kept:
            if self.colluders_have(letter):
                for members, value in self._sums(letter, phase, at):
                    if (at, members) not in known:
                        known.add((at, members))
                        yield self._observation(at, members), value

    def colluders_have(self, letter: Letter) -> bool:
        """Whether it is in their mail."""
        return letter.sender in self.colluders or letter.receiver in self.colluders

    def _sums(
        self, letter: Letter, phase: str, at: tuple[Serial, int]
    ) -> Iterator[tuple[frozenset[str], np.ndarray | None]]:
        """The peers whose messages a letter adds up, and the sum."""
        content = letter.message.content
        if phase == Y:
            yield frozenset((letter.sender,)), content
        elif phase == SUM:
            yield self.groups[at][letter.sender], content
        elif phase == PARTIAL:
            # A member soon has all parts, and with them the group's sum.
            yield self.groups[at][letter.sender], None
        elif phase == RELAY:
            own = self.groups[at][letter.sender]
            order = list(self.shares)
            others = set(self.groups[at].values()) - {own}
            foreign = sorted(others, key=lambda group: min(map(order.index, group)))
            yield from zip(foreign, content)

    def _observation(self, at: tuple[Serial, int], members: frozenset[str]) -> Observation:
        serial, iteration = at
        alone = len(members) == 1
        shares = {
            name: Fraction(1) if alone else Fraction(self.shares[name]) for name in sorted(members)
        }
        return Observation(serial, self.model_of(serial), iteration, shares)

    def _place(self, letter: Letter) -> tuple[str, tuple[Serial, int]]:
        message = letter.message
        phase, _, number = message.phase.partition(" ")
        return phase, ((message.round, message.place), int(number or 0))
