"""docs/privacy/honest_study.md says what results/honest_study/auc.csv holds."""

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import ttest_1samp

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.renyi import convert
from fedpriv.accountants.selection import TruncatedNegativeBinomial
from scripts.honest_study import (
    ALONE,
    ARMS,
    DRAWN,
    EACH,
    KNOWN,
    ROOT,
    SCALES,
    STEPS,
    WORDS,
    by_arm,
)

TABLE = pd.read_csv(KNOWN / "auc.csv")
PAGE = (ROOT / "docs" / "privacy" / "honest_study.md").read_text()


@pytest.mark.parametrize("name", WORDS)
def test_all_arms_have_the_ten_seeds_of_the_rule(name):
    found = by_arm(TABLE, name)
    assert list(found.index) == [*range(10)]
    assert list(found.columns) == [*ARMS]
    assert found.notna().all(axis=None)


@pytest.mark.parametrize("arm", ARMS)
def test_the_page_says_what_the_table_holds(arm):
    cells = [arm]
    for name in WORDS:
        found = by_arm(TABLE, name)
        lost = found["training alone charged"] - found[arm]
        low, high = ttest_1samp(lost, 0).confidence_interval(0.95)
        shown = f"{lost.mean():.4f} ± {(high - low) / 2:.4f}" if lost.any() else "reference"
        cells += [f"{found[arm].mean():.4f}", shown]
    assert f"| {' | '.join(cells)} |" in PAGE


def interval(name, one, other):
    return ttest_1samp(
        by_arm(TABLE, name)[one] - by_arm(TABLE, name)[other], 0
    ).confidence_interval()


@pytest.mark.parametrize("name", WORDS)
def test_findings_have_the_tables_verdicts(name):
    charged_arms = [arm for arm in ARMS if arm.startswith("all charged")]
    for one, other in combinations(charged_arms, 2):
        low, high = interval(name, one, other)
        assert low < 0 < high
    assert interval(name, "training alone charged", "all charged, best of four").low > 0
    assert "The best of four costs 0.004 of AUC for patients and 0.015 for payments" in PAGE


def gap(epsilon, delta=1e-5):
    """The mean gap of a Gaussian mechanism of this epsilon."""
    return brentq(lambda found: gaussian_epsilon(found, delta) - epsilon, 1e-3, 10)


@pytest.mark.parametrize(("runs", "each", "spent"), [(len(STEPS), EACH, 2.98), (1, ALONE, 2.97)])
def test_targets_of_the_ledgers_arms_add_up_in_squares(runs, each, spent):
    together = math.sqrt(gap(SCALES) ** 2 + runs * gap(each) ** 2)
    assert gaussian_epsilon(together, 5e-6) == pytest.approx(spent, abs=0.01)
    assert "are 2.98 and not 5.8" in PAGE


def test_a_random_number_of_runs_costs_three_with_the_scales():
    """Each at half of delta, and epsilons add up."""
    orders = np.array([1.5, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128])
    curve = orders * gap(DRAWN, 5e-6) ** 2 / 2
    found = TruncatedNegativeBinomial(4, 0).selected(orders, curve)
    assert SCALES + convert(tuple(orders), found, 5e-6) == pytest.approx(2.97, abs=0.02)
