"""Methods written from docs/extending/algorithm.md alone: their noise is what they declare, their
epsilons are right, and each is one short file."""

import math
import re
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from newcomers.dp_fedavg import MyDpFedAvg
from newcomers.fed_prox import MyFedProx
from newcomers.personal_clipping import MyPersonalClipping
from page_blocks import ROOT

from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import prepare
from fedpriv.testing import check_algorithm, experiment

METHODS = {
    "fed_prox": MyFedProx(),
    "dp_fedavg": MyDpFedAvg(),
    "personal_clipping": MyPersonalClipping(),
}
SMALL = ["preset.n_users=8", "rounds=2"]


def lines(name):
    file = Path(__file__).parents[1] / "newcomers" / f"{name}.py"
    return sum(bool(line.strip()) for line in file.read_text().splitlines())


def test_the_page_says_how_long_they_are():
    page = (ROOT / "docs/extending/algorithm.md").read_text()
    stated = re.search(r"three more methods, in about (\d+) lines each", page)
    assert stated
    assert max(map(lines, METHODS)) <= 1.1 * int(stated[1])


@pytest.mark.parametrize("name", ["dp_fedavg", "personal_clipping"])
def test_the_framework_finds_the_noise_that_is_declared(name):
    assert not check_algorithm(METHODS[name]).declared


def test_fed_prox_is_the_shipped_one():
    settings = ["local_epochs=2", "batch_size=32", "local_lr=0.1", "proximal=0.1", "global_lr=1"]
    steps = []
    for exp in (
        experiment(*SMALL, algo=MyFedProx()),
        experiment(*SMALL, "algo=fedprox", *(f"algo.{setting}" for setting in settings)),
    ):
        with prepare(exp) as prepared:
            result = prepared.run_round(prepared.queries(1), prepared.state)
            steps.append(result.state.params)
    assert np.allclose(*steps, rtol=1e-12, atol=1e-15)


def test_epsilons_are_those_of_independent_accounting():
    exp = experiment(*SMALL, "accountant=pld", algo=METHODS["personal_clipping"])
    rows = EpsilonForecast.of(exp).rows_at([2])
    found = {row.group: row.certified for row in rows if row.observer == "released model"}
    for group, bound in {"careful": 0.25, "others": 1.0}.items():
        event = dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0 / bound))
        expected = PLDAccountant().compose(event, 2).get_epsilon(exp.accountant.delta)
        assert found[group] == pytest.approx(expected, abs=1e-4)
    assert found["careful"] < found["others"] < math.inf
