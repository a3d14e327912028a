"""How few neighbours are enough: degree and thresholds of a sparse graph, from probabilities of
failure.

After Bell et al. (see `graph`), section 3, with exact tails instead of bounds on them. The ring's
order is uniformly random and independent of which silos collude (fixed before the query) and of
which drop out. Let there be n candidates, c of them colluding, k neighbours, t shares that reveal a
secret, and at most l of k / 2 silos in a row left out. Four things can fail:

- secrets: a silo has too many colluding neighbours. Their number is hypergeometric. Neighbours that
  are deceived about the summed set (below) are added. The total must stay below t, so that no wrong
  secret is revealed, and below 2 t - (k + 1), so that two thresholds overlap in an honest silo.
- connection: k / 2 - l of k / 2 silos in a row collude. Only then can the honest silos in the sum
  fall apart.
- shares: fewer than t of a silo's k neighbours are left at the end. There is no sum.
- stretches: more than l of k / 2 silos in a row are left out. Silos refuse the sum.

The first two are failures of security, the others of correctness. Each bound holds for all silos at
once (union bound).

Why a cheating server then learns nothing but one sum. Silos sign sets, together with the set U3 of
silos that had shared. Among all signed sets let A be the one with most honest signers. Any other
set has at most (n + c) / 2 valid signatures. A silo accepts it as signed by `threshold` silos only
if all of its `checked` random signatures happen to be valid. Such a silo is deceived; the number of
deceived silos is binomial. So the mask keys of the honest silos P in A stay hidden, and so do the
own masks of all other honest silos. A pair's mask depends on U3.

1. A silo of P that was told another U3 than A's sends a mask that no other silo sends. To reveal
   its own mask, t neighbours that signed A must have it as a neighbour, and t must be in its U3. An
   honest silo is both, which is impossible.
2. Neighbours in P that were both told A's U3 have their common mask in the sum with opposite signs.
   If one of them was not, the other sends a mask that no other silo sends.
3. P is connected. So a combination of messages without unknown masks has the same factor for all of
   P: it is a multiple of the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpriv.aggregation.secagg.graph import Sparse
from fedpriv.errors import require

GRINDING = 64
"""Binary logarithm of the number of ring orders that a cheating server may try in a query."""
CHECKED = 32
"""Signatures under a set that a silo verifies on a sparse graph."""


@dataclass(frozen=True)
class Failure:
    """Binary logarithms of the probabilities of the module's four failures."""

    secrets: float
    connection: float
    shares: float
    stretches: float

    @property
    def curious(self) -> float:
        """A server that follows the protocol breaks security."""
        return _sum(self.secrets, self.connection)

    @property
    def cheating(self) -> float:
        """A cheating server breaks security."""
        return self.curious + GRINDING

    @property
    def correctness(self) -> float:
        """There is no sum."""
        return _sum(self.shares, self.stretches)


@dataclass(frozen=True, kw_only=True)
class Assumed:
    """Assumptions about a query's silos.

    candidates: as in `SecAgg`.
    cohort: as in `SecAgg`.
    threshold: as in `SecAgg`.
    colluding: number of colluding silos.
    missing: candidates that are not in the sum, or silent in its last phases.
    others: silos that are no candidates. A cheating server may ask them for another sum.
    """

    candidates: int
    cohort: int
    threshold: int
    colluding: int
    missing: int
    others: int = 0

    def sparse(self, degree: int, correctness_bits: int) -> Sparse:
        """The safest graph of this degree that gives no sum with a probability of at most
        2^-correctness_bits, if there is one. More shares and less slack are safer."""
        share = 2.0 ** -(correctness_bits + 1) / self.candidates
        lost = _quantile(share, self.candidates - 1, self.missing, degree)
        slack = _quantile(share, self.candidates, self.candidates - self.cohort, degree // 2)
        return Sparse(degree, max(degree - lost, 1), slack, CHECKED)

    def failure(self, graph: Sparse) -> Failure:
        """How likely this graph fails. The candidates may be as few as the cohort and still include
        all colluding silos."""
        from scipy.stats import binom, hypergeom

        n = self.candidates
        degree = graph.degree
        half = graph.degree // 2
        colluding = hypergeom.pmf(np.arange(degree + 1), self.cohort - 1, self.colluding, degree)
        deceived = binom.pmf(np.arange(degree + 2), degree + 1, self.deceived)
        against = np.convolve(colluding, deceived)
        enough = min(graph.shares, 2 * graph.shares - (degree + 1))
        return Failure(
            secrets=_log2(n * against[max(enough, 0) :].sum()) if enough > 0 else 0.0,
            connection=_log2(
                n * hypergeom.sf(half - graph.slack - 1, self.cohort, self.colluding, half)
            ),
            shares=_log2(n * hypergeom.sf(degree - graph.shares, n - 1, self.missing, degree)),
            stretches=_log2(n * hypergeom.sf(graph.slack, n, n - self.cohort, half)),
        )

    def required(self, degree: int, security_bits: int, correctness_bits: int) -> Sparse:
        """The graph of this degree. Raises ConfigError when it is not safe, or too often gives no
        sum."""
        graph = self.sparse(degree, correctness_bits)
        failure = self.failure(graph)
        for wrong, bits, what in (
            (failure.cheating, security_bits, "a cheating server succeeds"),
            (failure.correctness, correctness_bits, "a sum fails"),
        ):
            probability = f"{what} with a probability of {_power(wrong)} instead of 2^-{bits}"
            allowed = f"too few: {probability}; take more, or auto"
            require(wrong <= -bits, "aggregation.neighbours", degree, allowed)
        return graph

    def describe(self, graph: Sparse) -> list[str]:
        """Lines for the log about a sparse graph."""
        failure = self.failure(graph)
        return [
            f"secagg: {graph.degree} neighbours out of {self.candidates - 1}, "
            f"{graph.shares} shares reveal a secret, at most {graph.slack} of "
            f"{graph.degree // 2} in a row left out; assuming that {self.colluding} silos collude "
            f"and {self.missing} drop out",
            "in each query the graph fails to protect with a probability of "
            f"{_power(failure.cheating)} from a cheating server, {_power(failure.curious)} from an "
            f"honest one; there is no sum with {_power(failure.correctness)}",
        ]

    @property
    def deceived(self) -> float:
        """Largest probability that a silo accepts a set with at most half as many
        valid signatures as there are silos and colluding ones."""
        valid = (self.candidates + self.others + self.colluding) // 2
        checked = min(CHECKED, self.threshold)
        if valid < checked:
            return 0.0
        return math.prod((valid - j) / (self.threshold - j) for j in range(checked))

    @lru_cache(maxsize=16)  # noqa: B019 (a frozen value is its own key)
    def least(self, security_bits: int, correctness_bits: int) -> Sparse | None:
        """The graph of least degree that is safe against a cheating server and gives a sum, except
        with probabilities of 2^-security_bits and 2^-correctness_bits. None if no degree below
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


def _power(failure: float) -> str:
    return "0" if failure == -math.inf else f"2^{min(failure, 0.0):.1f}"


def _quantile(probability: float, population: int, marked: int, drawn: int) -> int:
    """The smallest k such that more than k of the drawn items are marked with at most this
    probability (hypergeometric)."""
    from scipy.stats import hypergeom

    tails = hypergeom.sf(np.arange(drawn + 1), population, marked, drawn)
    return int(np.argmax(tails <= probability))


def _log2(probability: float) -> float:
    return math.log2(probability) if probability > 0 else -math.inf


def _sum(*logarithms: float) -> float:
    return _log2(sum(2.0**value for value in logarithms))
