"""How often the audit's bounds exceed the truth: repetitions of one audit of a certificate that is
tight.

`python -m scripts.audit_coverage [repetitions] [trials]`. The attack is chosen once, by runs of its
own; each repetition has fresh noise. Effort is less than `fedpriv audit --quick` spends (3000
trials of each world): what is tested is the confidence, which must hold for any number of trials.
Exit code 1 where exceedances are too many for `CONFIDENCE`, at a level of 0.1 %.
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
    """How many of so many bounds, of `each` trials in both worlds, exceed the certificate; and
    their mean over it."""
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
    """Count, and test."""
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
