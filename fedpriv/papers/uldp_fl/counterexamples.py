"""Counterexamples to the privacy claims of Kato et al., Uldp-FL (PVLDB 2024), computed by the
accountants."""

from __future__ import annotations

import math

from fedpriv.accountants.group import group_rdp_epsilon, paper_group_claim
from fedpriv.accountants.pld import gaussian_epsilon, group_pld
from fedpriv.accountants.rdp import claimed_epsilon
from fedpriv.papers.counterexample import Counterexample

DELTA = 1e-5


def counterexamples() -> list[Counterexample]:
    """ULDP-NAIVE at sigma 5 and 100 rounds; groups of records at rate 0.01, sigma 5 and 100,000
    steps."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    # Two silo updates of opposite signs attain the sensitivity 2C: the certificate is exact.
    naive = gaussian_epsilon(math.sqrt(100) * 2 / 5, DELTA)
    claim = claimed_epsilon([(GaussianDpEvent(5.0), 100)], DELTA)
    note = f"delta = {DELTA:g}; a user moves every silo's update by 2C, not C"
    found = [Counterexample("Uldp-FL, ULDP-NAIVE: 100 rounds", claim, naive, note, naive)]
    runs = [(PoissonSampledDpEvent(0.01, GaussianDpEvent(5.0)), 100_000)]
    for size in (32, 64):
        claim = paper_group_claim(runs, size, DELTA)
        lemma = group_rdp_epsilon(runs, size, DELTA)
        note = f"delta = {DELTA:g}; the lemma needs orders of at least {2 * size}"
        certified = group_pld(runs, size, DELTA)
        name = f"Uldp-FL, group lemma: {size} records"
        found.append(Counterexample(name, claim, certified, note, by_proof=lemma))
    return found
