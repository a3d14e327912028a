import math
from dataclasses import replace

import numpy as np
import pytest
from erm_world import prepared, silos_of
from plans import charged, make_plan, only_query
from test_dp_erm import gradient

from fedpriv.accountants.ledger import headline
from fedpriv.accountants.pld import Pld
from fedpriv.algorithms.local_sgd import LocalSgd
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.rounds.plan import Federation

ALGO = LocalSgd(
    local_steps=5,
    batch_size=1,
    local_lr=0.1,
    clip=1.0,
    noise_multiplier=0.0,
    cohort=None,
    participation="uniform",
    feature_norm=None,
    calibration="given",
    epsilon=3.0,
    observer="server",
    rounds=12,
    delta=1e-5,
)


def test_a_round_averages_models_after_a_step_a_record():
    """Silos of 5 equal records: in whatever order they come, every step is along the same
    gradient.
    """
    [one] = silos_of([1])
    silo = replace(
        one, x=one.x.repeat(5, 1), y=one.y.repeat(5), starts=np.array([0, 5]), records=np.arange(5)
    )
    sim = prepared(ALGO, [silo, silo], mechanism=NoMechanism())
    theta = sim.state.params
    for _ in range(5):
        theta = theta - 0.1 * gradient(theta, silo, 0.0)
    np.testing.assert_allclose(
        sim.run_round(sim.queries(1), sim.state).state.params, theta, atol=1e-6
    )


def test_the_papers_noise_and_what_it_costs():
    """8 K R ln(2 / delta) / (n epsilon)^2; a record in one step a round has rho = 2 / z^2 in
    each.
    """
    algo = replace(ALGO, calibration="paper", delta=1238**-2, rounds=25, local_steps=606)
    plan = make_plan(algo, Gaussian(1.0, 0.0), federation=Federation(1, 1, 10, (1238,)))
    z = plan.mechanism.noise_multiplier
    assert z**2 == pytest.approx(8 * 606 * 25 * math.log(2 * 1238**2) / (1238 * 3.0) ** 2)
    rows = charged(algo, plan, 25, Pld(1238**-2))
    assert [row.claimed for row in rows] == pytest.approx([3.0] * len(rows))
    event = only_query(algo, plan).events[0].certified
    exact = Pld(1238**-2).epsilons([(event, 25)], "replace")["pld"]
    assert headline(rows, "server") == pytest.approx(exact)
    assert exact > (2 * 5 / z) ** 2 / 2 > 3


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match=r"algo\.batch_size=2"):
        replace(ALGO, batch_size=2)
    with pytest.raises(ConfigError, match=r"algo\.local_steps=5: at most 4"):
        make_plan(ALGO, Gaussian(1.0, 1.0), federation=Federation(2, 2, 10, (4, 9)))
