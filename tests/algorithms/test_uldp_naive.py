import math

import pytest
from dp_accounting import GaussianDpEvent, get_epsilon_gaussian
from plans import make_plan, only_query

from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import RdpAndPld
from fedpriv.algorithms.uldp_naive import UldpNaive
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
