"""Test the audit's confidence: how often its bounds exceed a tight certificate.

`python -m scripts.audit_coverage [repetitions] [trials]` repeats one audit. The attack is chosen
once, on separate runs; each repetition has fresh noise. A repetition has fewer trials than `fedpriv
audit --quick`: the confidence must hold for any number of trials. The exit code is 1 if, at a level
of 0.1 %, too many bounds exceed the certificate for `CONFIDENCE`.
"""

import sys
from contextlib import closing

from scipy.stats import binomtest

from fedpriv.audit.audit import CONFIDENCE, subjects
from fedpriv.audit.bounds import lower_bound
from fedpriv.audit.trials import Effort, chosen_attack, trials
from fedpriv.testing import experiment

WORDS = (
    "algo=uldp_sgd",
    "algo.noise_multiplier=1",
    "allocator.n_silos=1",
    "rounds=1",
    "accountant=pld",
)
OBSERVER = "released model"


def exceedances(repetitions: int, each: int) -> tuple[int, float]:
    """The number of bounds that exceed the certificate, and the mean bound over the certificate.

    repetitions: number of bounds.
    each: trials of a bound, with and without the unit.
    """
    exp = experiment(*WORDS)
    [subject] = subjects(exp, 1)
    [certified] = [row.certified for row in subject.rows if row.observer == OBSERVER]
    family = subject.family(OBSERVER)
    delta = exp.accountant.delta
    beaten = 0
    total = 0.0
    with closing(chosen_attack(exp, subject.plan, subject.events, Effort(1e9, 500), 1)) as attack:
        for seed in range(repetitions):
            scores = trials(attack, Effort(1e9, each), 2**40 * (seed + 1))[OBSERVER]
            bound = lower_bound(*scores, delta=delta, confidence=CONFIDENCE, family=family)
            beaten += bound.audited > certified
            total += bound.audited / certified
    return beaten, total / repetitions


def main() -> None:
    """Count exceedances, and test their number."""
    repetitions, each = (int(word) for word in (sys.argv[1:] or ["1000", "200"]))
    beaten, mean = exceedances(repetitions, each)
    chance = binomtest(beaten, repetitions, 1 - CONFIDENCE, alternative="greater").pvalue
    print(
        f"{beaten} of {repetitions} bounds exceed the certificate (p = {chance:.3g}); on average "
        f"{mean:.0%} of it"
    )
    sys.exit(int(chance < 1e-3))


if __name__ == "__main__":
    main()
