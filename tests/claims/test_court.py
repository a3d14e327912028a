"""The published settings of docs/court, each against independent accounting."""

import math
import re
from functools import cache
from pathlib import Path

import dp_accounting as dp
import pytest
import yaml
from page_blocks import ROOT

from fedpriv.claims.reading import read
from fedpriv.claims.report import number
from fedpriv.claims.verdicts import (
    HOLDS,
    HOLDS_ELSEWHERE,
    NO_CERTIFICATE,
    NOT_SUPPORTED,
    judge,
)

CASES = sorted((ROOT / "docs" / "court" / "cases").glob("*.yaml"))
PAGE = ROOT / "docs" / "court" / "index.md"


def gaussian(gap, delta):
    return dp.get_epsilon_gaussian(1 / gap, delta)


def sampled(rate, ratio, count, delta):
    accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-3 if ratio < 0.6 else 1e-4)
    accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(ratio)), count)
    return accountant.get_epsilon(delta)


def unsampled(release, delta, *, tensors=1, twice=1):
    gap = twice * release["clip"] * math.sqrt(tensors * release["times"])
    return gaussian(gap / release["noise"]["deviation"], delta)


def poisson(release, delta, sites=1):
    ratio = release["noise"]["deviation"] / release["clip"]
    return sampled(release["sampling"]["rate"], ratio, sites * release["times"], delta)


def one_batch(release, delta):
    """One batch for all releases: ln(1 + q (e^eps(delta / q) - 1)) under replacement."""
    share = release["sampling"]["batch"] / release["sampling"]["of"]
    return math.log(share) + unsampled(release, delta / share, twice=2)


def known_batch(release, delta):
    """One batch for all releases, if it is known: delta counts for those who are in it."""
    return unsampled(release, delta * release["sampling"]["of"] / release["sampling"]["batch"])


def pure(release, delta):
    """The zCDP of pure guarantees, by the closed formula."""
    epsilon = 2 * release["clip"] / release["noise"]["deviation"]
    rho = release["times"] * epsilon**2 / 2
    return min(release["times"] * epsilon, rho + 2 * math.sqrt(rho * math.log(1 / delta)))


EXACT = {
    "dp_fl_laplace": pure,
    "dp_fl_moments_replace": one_batch,
    "dp_fl_moments_zero_out": known_batch,
    "dp_fl_simple_composition": lambda release, delta: unsampled(release, delta, twice=2),
    "flower_local_dp_1_round": lambda release, delta: unsampled(release, delta, twice=2),
    "flower_local_dp_3_rounds": lambda release, delta: unsampled(release, delta, twice=2),
    "secretflow_privatefl_fixed_bounds": lambda release, delta: unsampled(
        release, delta, tensors=3
    ),
}
SAMPLED = {
    "flamby_heart_disease_separate_seeds": lambda release, delta: poisson(release, delta),
    "flower_opacus_even": poisson,
    "flower_opacus_odd": poisson,
    "nvflare_hello_dp": poisson,
    "nvflare_notebook_separate_noise": lambda release, delta: poisson(release, delta, sites=2),
    "opacus_image_tutorial": poisson,
    "opacus_text_tutorial": poisson,
    "pfl_alpaca": poisson,
    "pfl_cifar10": poisson,
    "pfl_femnist": poisson,
    "pfl_flair": poisson,
    "pfl_lm": poisson,
    "pfl_oasst": poisson,
    "tff_tutorial": poisson,
}
VERDICTS = {
    HOLDS: [
        *["dp_fl_laplace", "dp_fl_simple_composition", "nvflare_hello_dp", "tff_tutorial"],
        *["opacus_image_tutorial", "opacus_text_tutorial", "pfl_alpaca", "pfl_cifar10"],
        *["pfl_femnist", "pfl_flair", "pfl_lm", "pfl_oasst"],
    ],
    HOLDS_ELSEWHERE: ["flower_fixed_cohort", "flower_local_dp_1_round"],
    NOT_SUPPORTED: [
        *["dp_fl_moments_replace", "dp_fl_moments_zero_out", "flamby_heart_disease"],
        *["flamby_heart_disease_separate_seeds", "flower_local_dp_3_rounds"],
        *["flower_opacus_even", "flower_opacus_odd", "nvflare_notebook"],
        *["nvflare_notebook_separate_noise", "pfl_cifar10_simulated"],
        "secretflow_privatefl_fixed_bounds",
    ],
    NO_CERTIFICATE: [
        *["flower_dp_secagg", "nvflare_svt", "pfllib", "secretflow_privatefl"],
        "secretflow_split_learning",
    ],
}


@cache
def found(name):
    claim = read(ROOT / "docs" / "court" / "cases" / f"{name}.yaml")
    [finding] = [finding for finding in judge(claim) if finding.verdict]
    return finding


def expected(name, formulas):
    data = yaml.safe_load((ROOT / "docs" / "court" / "cases" / f"{name}.yaml").read_text())
    delta = float(data["claims"][0]["delta"])
    releases = data["releases"][:1] if len(data["releases"]) == 2 else data["releases"]
    return max(formulas[name](release, delta) for release in releases)


def test_every_case_has_a_verdict():
    listed = sorted(name for names in VERDICTS.values() for name in names)
    assert listed == [path.stem for path in CASES]
    assert len(listed) >= 30


@pytest.mark.parametrize("name", EXACT)
def test_a_closed_formula_gives_the_certified_number(name):
    assert found(name).certified.epsilon == pytest.approx(expected(name, EXACT), abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_dp_accounting_gives_the_certified_number(name):
    number = expected(name, SAMPLED)
    assert found(name).certified.epsilon == pytest.approx(number, abs=1e-3, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verdict", "name"), [(verdict, name) for verdict, names in VERDICTS.items() for name in names]
)
def test_the_verdict(verdict, name):
    finding = found(name)
    assert finding.verdict == verdict
    assert finding.attack.epsilon <= finding.certified.epsilon * (1 + 1e-9)
    if verdict == HOLDS:
        assert not finding.refuted


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case_names_its_source(path: Path):
    source = read(path).source
    assert {"repository", "commit", "file", "says", "reading"} <= source.keys()
    assert len(source["commit"]) == 40


def test_the_page_lists_every_case():
    listed = re.findall(r"^\| \[.*\]\(cases/(\w+)\.yaml\)", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == [path.stem for path in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_page_s_numbers_are_those_that_are_computed(path):
    finding = found(path.stem)
    [line] = [line for line in PAGE.read_text().splitlines() if f"(cases/{path.stem}.yaml)" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    attack = number(finding.attack.epsilon) if finding.attack.epsilon > 0 else ""
    elsewhere = f" ({finding.elsewhere})" if finding.elsewhere else ""
    assert cells == [
        number(finding.claimed),
        number(finding.certified.epsilon),
        attack,
        finding.verdict + elsewhere,
    ]
