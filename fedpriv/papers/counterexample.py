"""What a paper claims about a mechanism, beside what is true of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Counterexample:
    """A setting in which a paper's epsilon, or its proof, does not hold.

    certified: the smallest upper bound that is known at the same delta; inf when there is none.
    note: delta, and why the claim fails.
    attained: an epsilon that the mechanism really has on some pair of neighbouring data sets, so
        that no bound can be smaller; None when nobody has computed one.
    by_proof: what the paper's own route gives when its conditions are kept, where that is not
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
        """What is wrong with the claim. "number": the mechanism exceeds it on some data. "proof": a
        valid bound lies below it, though not by the paper's proof. "open": the proof is wrong;
        nobody has certified or refuted the number."""
        if self.attained is not None and self.attained > self.claimed:
            return "number"
        return "proof" if self.certified <= self.claimed else "open"
