"""What a cheating server can learn from a secure sum: the rule that settings obey. Tests check it
with an evaluator of all that such a server can see.

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

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The numbers that decide what a cheating server can learn.

    silos: invited silos.
    candidates: most silos on a roster.
    cohort: silos in a sum; fewest, if their number varies.
    threshold: shares that reveal a secret; signatures that a set needs.
    colluding: silos that pool their knowledge with the server.
    """

    silos: int
    candidates: int
    cohort: int
    threshold: int
    colluding: int = 0

    @property
    def one_statement(self) -> bool:
        """Whether no two statements of one session can have enough signatures."""
        return 2 * self.threshold > self.candidates + self.colluding

    @property
    def one_session(self) -> bool:
        """Whether no two sessions can both end with a sum."""
        return self.candidates == self.silos or 2 * self.cohort > self.silos + self.colluding


def least_majority(members: int, colluding: int) -> int:
    """The smallest number m of members with 2 m > members + colluding: two sets of m members have
    an honest one in common."""
    return (members + colluding) // 2 + 1
