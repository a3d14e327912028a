import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, get_epsilon_gaussian
from plans import make_plan, only_query
from scipy.stats import norm

from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import RdpAndPld
from fedpriv.algorithms.uldp_naive import UldpNaive
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.plan import Federation


def naive(calibration):
    return UldpNaive(50, 64, 0.01, 1.0, 0.1, 5.0, calibration)


def events(calibration, silos=5):
    plan = make_plan(naive(calibration), Gaussian(0.1, 5.0), federation=Federation(100, silos, 10))
    return {event.observer: event for event in only_query(naive(calibration), plan).events}


def test_the_certificate_always_rests_on_twice_the_papers_sensitivity():
    assert events("paper")["released model"].certified == GaussianDpEvent(2.5)
    assert events("certified")["released model"].certified == GaussianDpEvent(5.0)
    assert (
        events("paper")["released model"].claimed
        == events("certified")["released model"].claimed
        == GaussianDpEvent(5.0)
    )
    assert events("paper")["silo"].certified.noise_multiplier == pytest.approx(2.5 * math.sqrt(0.8))


# ALGORITHMS 9, golden row 14
@pytest.mark.parametrize(
    ("rounds", "rdp", "exact"), [(50, 16.513, 15.456), (100, 25.931, 24.382), (200, 41.646, 39.383)]
)
def test_golden_row_14(rounds, rdp, exact):
    ledger = Ledger(RdpAndPld())
    ledger.record(events("paper").values(), rounds)
    rows = {row.method: row for row in ledger.rows(rounds) if row.observer == "released model"}
    assert rows["rdp"].certified == pytest.approx(rdp, abs=1e-3)
    assert rows["pld"].certified == pytest.approx(exact, abs=1e-3)
    assert rows["pld"].certified == pytest.approx(
        get_epsilon_gaussian(2.5 / math.sqrt(rounds), 1e-5), abs=1e-3
    )
    if rounds == 100:
        assert rows["rdp"].claimed == pytest.approx(10.7255, abs=1e-4)


def test_t1_the_claim_fails_on_two_point_updates():
    """ALGORITHMS 8, T1 and KA-1: one user turns every silo's update from -C to +C; the real delta
    of the claim.

    Gap 2 C S, noise sigma C S: over 100 rounds the loss is that of Gaussians a distance 20 / 5 = 4
    apart.
    """
    rounds, sigma, claimed = 100, 5.0, 10.7255
    gap = 2 * math.sqrt(rounds) / sigma
    delta = norm.cdf(gap / 2 - claimed / gap) - math.exp(claimed) * norm.cdf(
        -gap / 2 - claimed / gap
    )
    assert delta == pytest.approx(0.183, abs=1e-3)
    # The same by running it: the likelihood ratio of simulated sums.
    rng = np.random.default_rng(0)
    silos, clip = 5, 0.1
    shares = [
        Gaussian(clip, sigma).noise_share(200_000, silos, rng, sensitivity=silos)
        for _ in range(silos)
    ]
    sums = np.add.reduce([clip + share for share in shares]) / (sigma * clip * silos)
    assert sums.std() == pytest.approx(1, rel=0.01)
    loss = gap * rng.normal(
        gap / 2, 1, 200_000
    )  # of `rounds` such releases, in the direction of the change
    measured = np.maximum(0, 1 - np.exp(claimed - loss)).mean()
    assert measured == pytest.approx(delta, abs=5e-3)
    assert measured > 1e-2


def test_unknown_calibration_is_refused():
    with pytest.raises(ConfigError, match=r"algo\.calibration=none: paper, certified"):
        naive("none")
