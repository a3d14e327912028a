"""Secure sums over all silos that deliver, with the right noise variance for any number of them.

Z. Jiang, W. Wang, R. Chen, Efficient federated learning with dropout-resilient differential privacy
(EuroSys 2024), on top of the protocol in `aggregation`, on its complete graph. A sum covers all of
U4, from `cohort` to `candidates` silos. Each silo adds noise for `cohort` silos, in parts
(`RemovableNoise`). It shares the parts' secrets among the candidates like its masks' secrets. Once
the set is signed, each survivor sends the secret of its own surplus and its shares of the others'
secrets. The server then removes the surplus from the sum, also that of silos that have left in
between.

    symbol           here            meaning
    |U|              candidates      most silos in the sum
    |U| - T          cohort          fewest; each silo's noise is sized for them
    T_C              colluding       silos whose noise does not count, because they reveal it

Where the paper makes the noise larger for T_C colluding silos, the certificate here leaves their
noise out; choose the noise multiplier accordingly. The paper's last stage, in which survivors
answer for silos that have left, is part of Unmasking: a survivor sends its shares of every surplus.

Trust, beyond that of the underlying protocol.

- A survivor's wrong secret is found by the commitment, and so is its name. A wrong share is found
  too, and named where more than `threshold` silos answer.
- Nothing proves that a silo has added the noise that it has committed to. A silo that adds none
  weakens everybody's privacy as if it colluded; `colluding` covers so many of them. A silo that
  releases noise which it has not added makes the sum noisier.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpriv.aggregation.base import CohortSize, require_setting
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.messages import Terms
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import require
from fedpriv.rounds.plan import ThreatModel
from fedpriv.rounds.query import Query


@dataclass(frozen=True)
class SecAggExactNoise(SecAgg):
    """Sums modulo 2^bits over all silos that deliver, at least `cohort`, with the same noise for
    any number.

    cohort: fewest silos in the sum; null: the threshold.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        complete = self.neighbours is None
        require_setting(self, "neighbours", complete, "null: exact noise uses the complete graph")
        for key in ("dropouts", "corrupt", "security_bits", "correctness_bits"):
            default = getattr(self, key) == getattr(SecAgg, key)
            require_setting(self, key, default, "left out: it applies to a sparse graph only")

    def adapt(self, algo: Algorithm) -> Algorithm:
        allowed = (
            "needs another algorithm: it sums over a number of silos that varies, and "
            f"{algo.label} needs a fixed number or noises inside local training"
        )
        require(algo.contributors.any_number, "aggregation", "secagg_exact_noise", allowed)
        return algo

    def terms(self, query: Query, told: bytes = b"") -> Terms:
        if query.removable is None:
            raise ValueError(f"query {query.name}: a sum over any number needs removable noise")
        return super().terms(query, told)

    def cohort_size(self, n_invited: int) -> CohortSize:
        _, cohort, candidates = self.numbers(n_invited)
        return CohortSize(cohort, candidates)

    def threat_model(self) -> ThreatModel:
        base = super().threat_model()
        assumptions = (
            "nothing proves that a silo has added the noise that it has committed to",
            "SHA-256 is one-way and AES-256 is sound: noise that stays in a sum is made of their "
            "output",
        )
        return replace(base, assumptions=(*base.assumptions, *assumptions))

    def _least_cohort(self, candidates: int, threshold: int) -> int:
        return threshold if self.cohort is None else self.cohort
