"""A paper's claim about a mechanism, beside what is true of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Counterexample:
    """A setting in which a paper's epsilon, or its proof, does not hold.

    name: paper, theorem or program, and setting.
    claimed: epsilon that the paper claims.
    certified: smallest known upper bound at the same delta; inf if there is none.
    note: delta, and why the claim fails.
    attained: an epsilon that the mechanism has on some pair of neighbouring data sets, so that
        every bound is at least as large; None if nobody has computed one.
    by_proof: result of the paper's own proof when its conditions are kept; None if it equals
        `certified`.
    """

    name: str
    claimed: float
    certified: float
    note: str
    attained: float | None = None
    by_proof: float | None = None

    @property
    def fails(self) -> Literal["number", "proof", "open"]:
        """Which part of the claim is wrong.

        "number": the mechanism exceeds the epsilon on some data.
        "proof": a valid bound lies below the epsilon, but the paper's proof is wrong.
        "open": the proof is wrong, and nobody has certified or refuted the epsilon.
        """
        if self.attained is not None and self.attained > self.claimed:
            return "number"
        return "proof" if self.certified <= self.claimed else "open"
