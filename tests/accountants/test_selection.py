"""The best of a random number of runs."""

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
from dp_accounting.dp_event import RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant

from fedpriv.accountants.renyi import ORDERS, convert, rdp_curve
from fedpriv.accountants.selection import TruncatedNegativeBinomial

NUMBERS = [(10, 1), (10, 0), (3, 0.5), (50, 2), (1.5, 1)]


@pytest.mark.parametrize(("mean", "shape"), NUMBERS)
@pytest.mark.parametrize(("noise", "rounds"), [(2.0, 3), (20.0, 1), (0.8, 10)])
def test_the_cost_is_that_of_dp_accounting_for_a_single_setting(mean, shape, noise, rounds):
    curve = rdp_curve([(GaussianDpEvent(noise), rounds)], "add/remove", ORDERS)
    number = TruncatedNegativeBinomial(mean, shape)
    oracle = RdpAccountant(ORDERS)
    oracle.compose(
        RepeatAndSelectDpEvent(SelfComposedDpEvent(GaussianDpEvent(noise), rounds), mean, shape)
    )
    ours = convert(ORDERS, number.selected(np.array(ORDERS), curve), 1e-5)
    assert ours == pytest.approx(oracle.get_epsilon(1e-5), rel=1e-6)
    assert ours > convert(ORDERS, curve, 1e-5)


@pytest.mark.parametrize(("mean", "shape"), NUMBERS)
def test_numbers_have_the_distribution_that_is_accounted(mean, shape):
    """Inverting a fine grid of chances gives each number as often as its probability says."""
    number = TruncatedNegativeBinomial(mean, shape)
    cells = 20_000
    drawn = np.array(
        [number.draw(lambda chance=chance: chance) for chance in (np.arange(cells) + 0.5) / cells]
    )
    assert drawn.min() == 1
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    found = np.bincount(drawn, minlength=8)[1:8] / cells
    relative = [1.0]
    for k in range(1, 7):  # P(k + 1) / P(k)
        relative.append(relative[-1] * (1 - number.gamma) * (k + shape) / (k + 1))
    np.testing.assert_allclose(found, np.array(relative) * found[0], atol=2 / cells)


@pytest.mark.parametrize(("mean", "shape"), NUMBERS)
def test_every_chance_gives_a_number(mean, shape):
    """Also the largest, beside which a number's probability is less than rounding."""
    number = TruncatedNegativeBinomial(mean, shape)
    assert number.draw(lambda: 0.0) == 1
    assert number.expected_at(number.gamma) == pytest.approx(mean, rel=1e-9)
    assert 10 * mean < number.draw(lambda: float(np.nextafter(1, 0))) < 200 * mean


@pytest.mark.parametrize("shape", [0, 1, 2])
def test_one_run_for_certain_costs_what_it_costs(shape):
    number = TruncatedNegativeBinomial(1, shape)
    assert number.gamma == 1
    assert {number.draw(lambda chance=chance: chance) for chance in (0.0, 0.5, 0.999999)} == {1}
