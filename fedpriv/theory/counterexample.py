"""What a paper claims about a mechanism, beside what is true of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counterexample:
    """A setting in which a paper's epsilon does not hold.

    certified: a valid upper bound at the same delta; inf when there is none. note: delta, and why the claim fails.
    attained: an epsilon that the mechanism really has on some pair of neighbouring data sets, so that no bound can be
    smaller; None when nobody has computed one.
    """

    name: str
    claimed: float
    certified: float
    note: str
    attained: float | None = None
