import pytest

from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.removable_noise import LEAST_PART
from fedpriv.rounds.plan import (
    Federation,
    Observer,
    Plan,
    QueryParameters,
    ThreatModel,
)
from fedpriv.util.streams import Streams

OBSERVERS = (
    Observer("released model", sees_sample=False),
    Observer("server", sees_counts="counts are shown"),
    Observer("silo", own_shares=1, why_uncertified="its key is short"),
)


def plan(*observers, assumptions=("nobody colludes",)):
    parameters = QueryParameters(Gaussian(1.0, 5.0), 3, 3, None)
    threat_model = ThreatModel(observers or OBSERVERS, ("server",), assumptions)
    return Plan(Federation(10, 3, 5), {"update": parameters}, threat_model, Streams(0))


def test_who_hides_what():
    made = plan()
    assert made.hides_messages
    assert not made.hides_sample
    open_server = Observer("server", sees_messages=True)
    assert not plan(OBSERVERS[0], open_server).hides_messages
    blind = [Observer(name, sees_sample=False) for name in ("released model", "server", "silo")]
    assert plan(*blind).hides_sample


def test_an_observer_that_does_not_exist_is_named():
    with pytest.raises(
        ConfigError, match=r"algo\.observer=shuffler: .*released model, server, silo"
    ):
        plan().observer("shuffler")


def test_every_part_of_noise_that_can_be_taken_out_spans_the_grid():
    """Of 2 to 4 silos: a grid that is fine enough for a share is too coarse for its smallest
    part.
    """
    encoding = FixedPoint(32, 2.0**20, 4)
    noise = Gaussian(1.0, LEAST_PART * encoding.unit)
    QueryParameters(noise, 4, 2, encoding).check_noise()
    with pytest.raises(ConfigError, match=f"at least {LEAST_PART} are needed"):
        QueryParameters(noise, 4, 2, encoding, n_most=4).check_noise()


def test_whoever_drew_noise_is_assumed_to_subtract_it():
    assert Observer("server").subtracts == ()
    assert Observer("silo", own_shares=1).subtracts == (
        "one silo subtracts its own noise share and does not collude",
    )


def test_who_knows_which_shares_of_the_noise():
    """Without a key for colluding silos, a silo counts one share and the server none, and the
    certificate says that nobody tells the server more."""

    def known(aggregation):
        observers = {one.name: one for one in aggregation.threat_model().observers}
        return observers["silo"].own_shares, observers["server"].own_shares

    assert known(Plain()) == known(Masked()) == (1, 0)
    assert any("no silo tells the server" in text for text in Masked().threat_model().assumptions)
    for aggregation in (SecAgg, SecAggExactNoise):
        assert known(aggregation()) == (1, 0)
        assert known(aggregation(colluding=2))[1] == 2
        told = aggregation(colluding=2).threat_model().assumptions
        assert any("at most 2 silos collude with the server" in text for text in told)
