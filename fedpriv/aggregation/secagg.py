"""Secure sums that survive dropouts, over a random part of the silos.

K. Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning (CCS 2017), with the two random
draws that Huang et al. add for partial participation. A silo's vector is hidden under pairwise masks
that cancel and under a mask of its own; both masks' secrets are shared among the candidates, and the survivors reveal
one of the two for each silo, never both. Wrong shares end the round: they must give the public key or the commitment
that the silo sent along with them. The server draws the candidates U2 among those who answer, and the set U5
whose vectors make up the sum among those who delivered.

    symbol           here            meaning
    E0               candidates      most silos that are invited to share keys (U2)
    E                cohort          silos in the sum (U5), and fewest that must be left in the first phases
    Th               threshold       shares that reveal a secret, signatures that a set needs
    U1 .. U7         `senders`       who has answered in each phase

Phases: AdvertiseKeys, ShareKeys, MaskedInputCollection, ConsistencyCheck, Unmasking. Too few answers in any of them end
the round without a sum. As printed, Unmasking reconstructs keys over U5 \\ U3 and counts another list; here it is
U3 \\ U5 and U6.

Trust: verification keys handed out at set-up are genuine. Then the server, and fewer than `threshold` silos with it,
learn nothing but the sum, as long as 2 * threshold > candidates + colluding silos: no two sets can then both be
unmasked (the default, above two thirds, covers a server that cheats together with up to a third). Nothing proves that
the server's draws are random. With weights made of record counts the server learns the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, Party
from fedpriv.aggregation.ring import RingAggregation
from fedpriv.aggregation.secagg_messages import Terms, new_signing_key
from fedpriv.aggregation.secagg_server import Collector
from fedpriv.aggregation.secagg_silo import Member
from fedpriv.aggregation.weighted import fetch_weights, hand_out_weights_and_keys, message, shown_counts
from fedpriv.errors import require

if TYPE_CHECKING:
    from fedpriv.aggregation.fixed_point import FixedPoint
    from fedpriv.algorithms.base import Plan, Update


@dataclass(frozen=True)
class SecAgg(RingAggregation):
    """Sums modulo 2^bits over exactly `cohort` silos, for which noise shares are sized (`min_cohort`).

    candidates: null = all silos. cohort: null = all candidates. threshold: null = more than two thirds of the
    candidates.
    """

    threshold: int | None = None
    cohort: int | None = None
    candidates: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("threshold", "cohort", "candidates"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"aggregation.{key}", value, "a positive integer, or null")
        for low, high in (("threshold", "cohort"), ("cohort", "candidates"), ("threshold", "candidates")):
            small, large = getattr(self, low), getattr(self, high)
            fits = small is None or large is None or small <= large
            require(fits, f"aggregation.{low}", small, f"at most aggregation.{high}={large}")

    def min_cohort(self, silos: int) -> int:
        return self._numbers(silos)[1]

    def terms(self, silos: int, round: int, code: FixedPoint) -> Terms:
        """What all parties go by in a round to which `silos` are invited. Raises ConfigError when it does not fit."""
        return Terms(round, *self._numbers(silos), code)

    def _numbers(self, silos: int) -> tuple[int, int, int]:
        """Threshold, cohort and candidates."""
        candidates = silos if self.candidates is None else self.candidates
        cohort = candidates if self.cohort is None else self.cohort
        threshold = 2 * candidates // 3 + 1 if self.threshold is None else self.threshold
        require(candidates <= silos, "aggregation.candidates", candidates, f"at most the {silos} silos")
        require(cohort <= candidates, "aggregation.cohort", cohort, f"at most the {candidates} candidates")
        require(threshold <= cohort, "aggregation.threshold", threshold, f"at most aggregation.cohort={cohort}")
        require(2 * threshold > candidates, "aggregation.threshold", threshold, f"more than half of {candidates}")
        return threshold, cohort, candidates

    def setup(
        self,
        counts: dict[str, np.ndarray],
        weigh: Callable[[np.ndarray], np.ndarray],
        needs_counts: bool,
        memory: dict[str, dict[str, Any]],
    ) -> dict[str, Party]:
        shown = shown_counts(counts, needs_counts)
        parties = {name: self._silo_setup(own, memory[name]) for name, own in shown.items()}
        return {SERVER: hand_out_weights_and_keys(list(counts), weigh), **parties}

    def _silo_setup(self, counts: np.ndarray, memory: dict[str, Any]) -> Party:
        yield from fetch_weights(counts, memory)
        memory["signing_key"], verification_key = new_signing_key()
        memory["registry"] = (yield {SERVER: verification_key})[SERVER]

    def exchange(self, plan: Plan, updates: dict[str, Update], memory: dict[str, dict[str, Any]]) -> dict[str, Party]:
        terms = self.terms(len(updates), plan.round, plan.code)
        parties = {name: _silo(name, terms, update, memory[name]) for name, update in updates.items()}
        draws = plan.streams.secret("silo sample", plan.round, SERVER)
        return {SERVER: Collector(terms, sorted(updates), draws).run(), **parties}


def _silo(name: str, terms: Terms, update: Update, memory: dict[str, Any]) -> Party:
    def vector() -> np.ndarray:
        return message(name, update, memory, terms.code)

    yield from Member(name, terms, memory["signing_key"], memory["registry"], vector).run()
