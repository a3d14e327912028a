"""User level beside record level for the methods of Lowy et al.: Appendices B and G."""

import math
from dataclasses import dataclass, fields, replace

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from lowy_world import FEDERATION, METHODS, MINIBATCH, ONE_PASS
from plans import charged, make_plan, only_query
from scipy.optimize import brentq

from fedpriv.accountants.ledger import Ledger, headline
from fedpriv.accountants.pld import Pld, gaussian_epsilon, group_pld
from fedpriv.accountants.rdp import Rdp
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.shuffle import Shuffle
from fedpriv.algorithms.prox_sgd import MinibatchSgd
from fedpriv.data.stability import NO_STAGES, truncation
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.mechanisms.gaussian import Gaussian


def truncated(k):
    return replace(FEDERATION, stability=NO_STAGES.then(truncation(k)))


HYBRID = {
    "calibration": "certified",
    "epsilon": 3.0,
    "rounds": 6,
    "batch_size": None,
    "records_per_user": 5,
}


def rows_of(algo, aggregation=Plain(), mechanism=Gaussian(1.0, 0.0)):  # noqa: B008
    """PLD rows by observer and unit."""
    federation = truncated(algo.records_per_user) if algo.records_per_user else FEDERATION
    algo = aggregation.adapt(algo)
    plan = make_plan(algo, mechanism, aggregation, federation=federation)
    return {(row.observer, row.unit): row for row in charged(algo, plan, 6, Pld(1e-5))}


@pytest.mark.parametrize(
    ("algo", "shuffled"),
    [*((algo, False) for algo in METHODS), (MINIBATCH, True), (METHODS[-1], True)],
)
def test_the_hybrid_gives_a_user_what_is_asked_for_and_a_record_more(algo, shuffled):
    """Appendix G. k records in whole batches are k times as far apart as one: mu of five times a
    record's."""
    world = (Shuffle(), Binomial(1.0, 0.0)) if shuffled else ()
    rows = rows_of(replace(algo, **HYBRID), *world)
    user, record = rows["server", "user"], rows["server", "record"]
    assert user.certified == pytest.approx(3.0, rel=1e-3)
    assert headline([user, record], "server") == user.certified
    assert user.adjacency == record.adjacency == "replace"
    gap = brentq(lambda mu: gaussian_epsilon(mu, 1e-5) - 3.0, 0.1, 5.0)
    assert record.certified == pytest.approx(gaussian_epsilon(gap / 5, 1e-5), rel=1e-3)
    assert any("at most 5 records of a user train" in text for text in user.assumptions)
    assert any("are replaced by as many" in text for text in user.assumptions)


def test_the_papers_conversion_is_claimed_and_looser():
    """Appendix B: (k eps, k e^((k - 1) eps) delta), here at the delta of the table."""
    rows = rows_of(replace(ONE_PASS, **HYBRID | {"calibration": "paper", "epsilon": 0.5}))
    user, record = rows["server", "user"], rows["server", "record"]
    assert record.claimed == pytest.approx(0.5)
    rho = 0.5**2 / (8 * math.log(1e5))
    eps = user.claimed / 5
    delta_1 = math.exp(-(eps**2) / (8 * rho))
    assert 5 * math.exp(4 * eps) * delta_1 == pytest.approx(1e-5, rel=1e-4)
    assert record.certified < user.certified < user.claimed


def test_nothing_is_counted_for_a_group_in_a_batch_of_fixed_size():
    """A sampled record costs less than an unsampled one; a group of two as much as unsampled."""
    algo = replace(MINIBATCH, batch_size=6, noise_multiplier=8.0, rounds=6, records_per_user=2)
    plan = make_plan(algo, Gaussian(1.0, 8.0), federation=truncated(2))
    charges = charged(algo, plan, 6, Rdp(1e-5))
    rows = {row.unit: row.certified for row in charges if row.observer == "server"}
    whole = gaussian_epsilon(math.sqrt(6) * 2 * 2 / 8, 1e-5)
    assert rows["record"] < 0.5 * gaussian_epsilon(math.sqrt(6) * 2 / 8, 1e-5)
    assert whole <= rows["user"] < 4 * whole


def test_users_whose_records_are_sampled_by_coins_are_added_or_removed():
    algo = replace(
        MINIBATCH, batch_size=6, noise_multiplier=8.0, sampling="poisson", records_per_user=3
    )
    rows = rows_of(algo, mechanism=Gaussian(1.0, 8.0))
    assert rows["server", "user"].adjacency == "add/remove"
    assert rows["server", "user"].certified < 3
    assert rows["server", "record"].certified == math.inf  # another record comes in its place
    asked = rows_of(replace(algo, **HYBRID | {"records_per_user": 3}))
    assert 2.99 < asked["server", "user"].certified <= 3.0


@dataclass(frozen=True)
class OwnSizes(MinibatchSgd):
    """The larger silo has the smaller batches."""

    def size(self, name, records):
        return 12 if records == 12 else 5


def test_a_record_in_each_of_two_silos_moves_one_sum():
    """One record is in every batch, the other in few and then moves the mean further. The observer
    of the sum sees both under one noise, and the server sees each under its silo's own."""
    rate, delta = 5 / 274, 2.1e-4
    noise = 1 / 12 / (1.381 * math.hypot(1 / 12, 1 / 5))
    words = {"sampling": "poisson", "records_per_user": 2, "rounds": 1, "noise_multiplier": noise}
    known = {field.name: getattr(MINIBATCH, field.name) for field in fields(MINIBATCH)}
    algo = OwnSizes(**known | words | {"batch_size": None})
    federation = replace(truncated(2), n_silos=2, silo_records=(12, 274))
    certified = {}
    for aggregation in (Masked(), Plain()):
        plan = make_plan(algo, Gaussian(1.0, noise), aggregation, federation=federation)
        ledger = Ledger(Pld(delta))
        ledger.record(only_query(algo, plan).events)
        [row] = [row for row in ledger.rows(1) if (row.observer, row.unit) == ("server", "user")]
        certified[aggregation] = row.certified
    deviation = noise * math.hypot(1 / 12, 1 / 5)
    moved = from_mixture_gaussian_mechanism(
        deviation, [1 / 12, 1 / 12 + 1 / 5], [1 - rate, rate], value_discretization_interval=1e-3
    )
    exact = moved.get_epsilon_for_delta(delta)
    assert exact == pytest.approx(16.88, abs=0.01)
    assert exact <= certified[Masked()] < 1.4 * exact
    assert certified[Plain()] > certified[Masked()]


def poisson_users(sizes, k, *, invited=None):
    """The server's certificate for users with k records, and that of k records of the first silo.

    invited: scopes that take part; None: all.
    """
    words = {"sampling": "poisson", "records_per_user": k, "rounds": 20, "noise_multiplier": 1.0}
    algo = replace(MINIBATCH, **words, batch_size=6)
    federation = replace(truncated(k), n_silos=len(sizes), silo_records=sizes)
    plan = make_plan(algo, Gaussian(1.0, 1.0), Masked(), federation=federation)
    ledger = Ledger(Pld(1e-5))
    events = only_query(algo, plan).events
    if invited is not None:
        events = [event for event in events if event.scope in invited]
        events = [replace(event, together=None) for event in events]
    ledger.record(events, 20)
    rows = {row.observer: row.certified for row in ledger.rows(20) if row.unit == "user"}
    server = [e for e in events if (e.observer, e.scope, e.group_size) == ("server", "silo0", k)]
    return rows["server"], group_pld([(server[0].certified, 20)], k, 1e-5)


def test_records_of_equal_silos_move_a_sum_like_those_of_one():
    everyone, alone = poisson_users((100,) * 5, 4)
    assert everyone == alone
    parted, _ = poisson_users((100,) * 5, 4, invited=("silo0", "silo1", "silo2"))
    assert parted > alone  # silos that are not in every sum have no such bound


def test_records_of_unequal_silos_move_a_sum_like_those_of_the_worst_one():
    """With one size of batches, the smallest silo samples most, and no silo moves it farther."""
    everyone, alone = poisson_users((60, 100, 300), 4)
    assert everyone == alone
