"""How few neighbours are enough: degree and thresholds of a sparse graph from the probabilities
that they fail.

After Bell et al. (see `graph`), section 3, with exact tails instead of bounds on them. The ring's
order is uniformly random and independent of which silos collude (fixed before the query) and of
which drop out. With n candidates, c of them colluding, k neighbours, t shares that reveal a secret,
and at most l of k / 2 silos in a row left out:

- secrets: somebody has too many colluding neighbours. Their number is hypergeometric; those are
  added who are deceived about the set that is summed (below). They must stay below t, so that no
  secret is revealed that should not be, and below 2 t - (k + 1), so that two thresholds overlap in
  an honest silo.
- connection: k / 2 - l of k / 2 silos in a row collude. Only then may the honest silos in the sum
  fall apart.
- shares: of somebody's k neighbours fewer than t are left in the end; the sum is not had.
- stretches: of k / 2 silos in a row more than l are left out; silos refuse the sum.

The first two are failures of security, the others of correctness; each holds for all silos at once
(union bound).

Why a cheating server learns nothing but one sum then. Of all sets (with who had shared, U3) that
silos sign, A is the one with most honest signers; any other has at most (n + c) / 2 valid
signatures, and passes for one with `threshold` of them only with a silo whose `checked` random
signatures all happen to be valid: the deceived, a binomial number. So for the honest silos P in A
mask keys stay hidden, and for all other honest ones the own masks. A pair's mask depends on U3. (1)
Who of P was told another U3 than A's sends a mask that no one else sends: for its own mask to be
revealed t neighbours that signed A must have it as a neighbour, t must be in its U3, and an honest
one is both. (2) Neighbours in P who were both told A's U3 have their common mask in the sum with
opposite signs, and where one of them was not, the other sends a mask that no one else does. (3) P
is connected. So a combination of messages without unknown masks has the same factor for all of P,
and is a multiple of the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpriv.aggregation.secagg.graph import Sparse
from fedpriv.errors import require

GRINDING = 64
"""Binary logarithm of the orders of the ring that a cheating server may try while a query's keys
are fresh."""
CHECKED = 32
"""Signatures under a set that a silo verifies on a sparse graph."""


@dataclass(frozen=True)
class Failure:
    """Probabilities, as binary logarithms.

    secrets, connection, shares, stretches: see the module.
    curious: of the first two together for a server that keeps to the protocol;
    cheating: for one that does not.
    """

    secrets: float
    connection: float
    shares: float
    stretches: float

    @property
    def curious(self) -> float:
        return _sum(self.secrets, self.connection)

    @property
    def cheating(self) -> float:
        return self.curious + GRINDING

    @property
    def correctness(self) -> float:
        return _sum(self.shares, self.stretches)


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """What a query's silos are reckoned to do.

    candidates, cohort, threshold: as in `SecAgg`.
    colluding: silos.
    missing: candidates that are not in the sum, or silent in its last phases.
    """

    candidates: int
    cohort: int
    threshold: int
    colluding: int
    missing: int

    def sparse(self, degree: int, correctness_bits: int) -> Sparse:
        """The safest graph of this degree that fails to give a sum with a probability of at most
        2^-correctness_bits, if there is one: the more shares and the less slack, the safer."""
        share = 2.0 ** -(correctness_bits + 1) / self.candidates
        lost = _quantile(share, self.candidates - 1, self.missing, degree)
        slack = _quantile(share, self.candidates, self.candidates - self.cohort, degree // 2)
        return Sparse(degree, max(degree - lost, 1), slack, CHECKED)

    def failure(self, graph: Sparse) -> Failure:
        """What may happen on it. The candidates may be as few as the cohort and still hold all who
        collude."""
        from scipy.stats import binom, hypergeom

        n = self.candidates
        degree = graph.degree
        half = graph.degree // 2
        colluding = hypergeom.pmf(np.arange(degree + 1), self.cohort - 1, self.colluding, degree)
        deceived = binom.pmf(np.arange(degree + 2), degree + 1, self.deceived)
        against = np.convolve(colluding, deceived)
        enough = min(graph.share_threshold, 2 * graph.share_threshold - (degree + 1))
        return Failure(
            secrets=_log2(n * against[max(enough, 0) :].sum()) if enough > 0 else 0.0,
            connection=_log2(
                n * hypergeom.sf(half - graph.slack - 1, self.cohort, self.colluding, half)
            ),
            shares=_log2(
                n * hypergeom.sf(degree - graph.share_threshold, n - 1, self.missing, degree)
            ),
            stretches=_log2(n * hypergeom.sf(graph.slack, n, n - self.cohort, half)),
        )

    def required(self, degree: int, security_bits: int, correctness_bits: int) -> Sparse:
        """The graph of this degree. Raises ConfigError when it is not safe, or hardly ever gives a
        sum."""
        graph = self.sparse(degree, correctness_bits)
        failure = self.failure(graph)
        for wrong, bits, what in (
            (failure.cheating, security_bits, "a cheating server succeeds"),
            (failure.correctness, correctness_bits, "a sum fails"),
        ):
            allowed = (
                f"too few: {what} with a probability of {_told(wrong)} instead of 2^-{bits}; "
                "more, or auto"
            )
            require(wrong <= -bits, "aggregation.neighbours", degree, allowed)
        return graph

    def told(self, graph: Sparse) -> list[str]:
        """What a person should know of a sparse graph before a run."""
        failure = self.failure(graph)
        return [
            f"secagg: {graph.degree} neighbours out of {self.candidates - 1}, "
            f"{graph.share_threshold} shares reveal a "
            f"secret, at most {graph.slack} of {graph.degree // 2} in a row left out; reckoned "
            f"with {self.colluding} "
            f"silos that collude and {self.missing} that drop out",
            "in each query the graph fails to protect with a probability of "
            f"{_told(failure.cheating)} from a server "
            f"that cheats, {_told(failure.curious)} from one that does not; it fails to give a "
            "sum with "
            f"{_told(failure.correctness)}",
        ]

    @property
    def deceived(self) -> float:
        """Largest probability that a silo takes signatures for enough of which at most (n + c) / 2
        are valid."""
        valid = (self.candidates + self.colluding) // 2
        checked = min(CHECKED, self.threshold)
        if valid < checked:
            return 0.0
        return math.prod((valid - j) / (self.threshold - j) for j in range(checked))

    @lru_cache(maxsize=16)  # noqa: B019 (a frozen value is its own key)
    def least(self, security_bits: int, correctness_bits: int) -> Sparse | None:
        """The graph of least degree that is safe against a cheating server and correct but for
        probabilities of 2^-security_bits and 2^-correctness_bits; None where no degree below
        `cohort` is enough."""

        def fits(half: int) -> bool:
            failure = self.failure(self.sparse(2 * half, correctness_bits))
            return failure.cheating <= -security_bits and failure.correctness <= -correctness_bits

        most = (self.cohort - 1) // 2
        low = 0
        high = 1
        while high < most and not fits(high):
            low = high
            high = 2 * high
        high = min(high, most)
        if high < 1 or not fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return self.sparse(2 * high, correctness_bits)


def _told(failure: float) -> str:
    return "0" if failure == -math.inf else f"2^{min(failure, 0.0):.1f}"


def _quantile(probability: float, population: int, marked: int, drawn: int) -> int:
    """The smallest number that the marked ones among those drawn exceed with at most this
    probability."""
    from scipy.stats import hypergeom

    tails = hypergeom.sf(np.arange(drawn + 1), population, marked, drawn)
    return int(np.argmax(tails <= probability))


def _log2(probability: float) -> float:
    return math.log2(probability) if probability > 0 else -math.inf


def _sum(*logarithms: float) -> float:
    return _log2(sum(2.0**value for value in logarithms))
