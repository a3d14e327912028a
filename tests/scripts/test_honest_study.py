"""docs/privacy/honest_study.md says what results/honest_study/auc.csv holds."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import ttest_1samp

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.runs.status import Status
from scripts.honest_study import ALONE, ARMS, EACH, KNOWN, ROOT, SCALES, STEPS, WORDS, charged

TABLE = pd.read_csv(KNOWN / "auc.csv")
PAGE = (ROOT / "docs" / "privacy" / "honest_study.md").read_text()


def test_all_arms_have_the_ten_seeds_of_the_rule():
    for name in WORDS:
        assert list(TABLE[TABLE["data"] == name]["seed"]) == [*range(10)]
    assert TABLE[[*ARMS]].notna().all(axis=None)


@pytest.mark.parametrize("arm", ARMS)
def test_the_page_says_what_the_table_holds(arm):
    cells = [ARMS[arm]]
    for name in WORDS:
        found = TABLE[TABLE["data"] == name]
        lost = found["free"] - found[arm]
        low, high = ttest_1samp(lost, 0).confidence_interval(0.95)
        half = (high - low) / 2
        shown = "reference" if arm == "free" else f"{lost.mean():.4f} ± {half:.4f}"
        cells += [f"{found[arm].mean():.4f}", shown]
    assert f"| {' | '.join(cells)} |" in PAGE


@pytest.mark.parametrize(("runs", "each"), [(len(STEPS), EACH), (1, ALONE)])
def test_the_targets_of_an_arm_add_up_to_less_than_three(runs, each):
    """Each costs a Gaussian of its own, at most 0.1 % below its target."""

    def squared(epsilon):
        return brentq(lambda gap: gaussian_epsilon(gap, 1e-5) - epsilon, 1e-3, 10) ** 2

    spent = gaussian_epsilon(math.sqrt(squared(SCALES) + runs * squared(each)), 5e-6)
    assert 2.9 < spent < 2.99
    assert f"{spent:.2f} and not" in PAGE or runs == 1


@pytest.mark.slow  # the test above adds up the same costs
def test_one_ledger_pays_for_the_whole_path(tmp_path):
    """On made-up payments, whose label is a sign."""
    columns = ["Time", *(f"V{number}" for number in range(1, 29)), "Amount"]
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 30)), columns=columns)
    frame = frame.assign(label=(frame["V1"] > 0).astype(int), person=[*map(str, range(100, 160))])
    frame.to_csv(tmp_path / "study.csv", index=False)
    raw = (f"data.path={tmp_path}/study.csv", "seed=0")
    run = charged("creditcard", tmp_path / "own", raw, ["0.1"], 2.7)
    ledger = DataLedger.seen(tmp_path / "own" / "ledger.jsonl")
    paid = [(one.population, one.settled) for one in ledger.runs.values()]
    assert paid == [("everybody", True), ("training", True), ("tests", True)]
    for name in ledger.populations:
        assert 2.9 < ledger.spent(name) <= 3
    for folder in (tmp_path / "own" / "scales", run, run / "evaluation"):
        assert Status.read(folder).dp_valid
