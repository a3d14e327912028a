import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from plans import answer, block_of, charged, make_plan, only_query
from scipy import stats
from torch import nn

from fedpriv.accountants.events import REPLACE
from fedpriv.accountants.pld import RdpAndPld, gaussian_epsilon
from fedpriv.accountants.zcdp import zcdp_epsilon
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.algorithms.cdp_fedavg import CdpFedAvg, DistributedDpSgd
from fedpriv.certificates.noise import touches as most_touches
from fedpriv.data.allocate import Allocation
from fedpriv.data.embedded import BreastCancer
from fedpriv.data.silo import SiloData
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.calibration import zcdp_noise
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.models.linear import Linear
from fedpriv.models.mlp import Mlp
from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression, convex_loss
from fedpriv.rounds.plan import UPDATE, Federation
from fedpriv.rounds.silo_context import Silo
from fedpriv.util.streams import Streams

# The experiments of Hu et al. on Adult: 16 devices of 2,441 training records, 10 of them in a
# round, delta 1e-4.
LOGISTIC = convex_loss(Linear(), Classification(), 2)
ADULT = Federation(16, 16, 218, (2441,) * 16, loss=LOGISTIC)
BASE = CdpFedAvg(
    local_steps=10,
    batch_size=None,
    local_lr=0.1,
    clip=1.0,
    noise_multiplier=0.0,
    cohort=10,
    participation="balanced",
    feature_norm=4.0,
    calibration="given",
    epsilon=10.0,
    observer="server",
    rounds=20,
    delta=1e-4,
)
GAUSSIAN = Gaussian(1.0, 0.01)
BASELINE = DistributedDpSgd(**vars(replace(BASE, local_steps=1, batch_size=244)))


def on_adult(algo, aggregation, **changes):
    """The plan with the noise that the algorithm's calibration asks for. changes: of the
    federation."""
    mechanism = Gaussian(algo.clip, algo.noise_multiplier)
    return make_plan(algo, mechanism, aggregation, federation=replace(ADULT, **changes))


def epsilons(algo, plan):
    """(observer, method) -> (certified, claimed) after all rounds."""
    rows = charged(algo, plan, algo.rounds, RdpAndPld(1e-4))
    return {(row.observer, row.method): (row.certified, row.claimed) for row in rows}


# ALGORITHMS 9, row 22: sigma at which Theorem 1 gives (10, 1e-4), G = 1, m = 2441, r = 10
@pytest.mark.parametrize(
    ("taken", "steps", "size", "sigma"),
    [
        (12.5, 10, 244, 0.00480582),
        (31.25, 5, 488, 0.00379933),
        (12.5, 2, 1220, 0.00096116),
        (12, 10, 244, 0.00470872),
        (13, 10, 244, 0.00490099),
    ],
)
def test_golden_rows_22_and_23(taken, steps, size, sigma):
    algo = replace(BASE, local_steps=steps)
    assert algo.batch(2441) == size
    rho = taken * algo.claimed_rho(2441, 1.0, on_adult(algo, Masked()))
    assert zcdp_noise(rho, 10.0, 1e-4) == pytest.approx(sigma, abs=1e-7)
    # row 23: what is certain without the division by r
    rho = taken * algo.claimed_rho(2441, sigma, on_adult(algo, Plain()))
    assert zcdp_epsilon(rho, 1e-4) == pytest.approx(44.050, abs=1e-2)
    assert gaussian_epsilon(math.sqrt(2 * rho), 1e-4) == pytest.approx(39.819, abs=1e-2)


# ALGORITHMS 9, row 24, with the fractional 12.5 participations of its T = 20
@pytest.mark.parametrize(("silos", "sigma"), [(16, 0.00380011), (10, 0.00480680)])
def test_golden_row_24(silos, sigma):
    rho = 12.5 * BASELINE.claimed_rho(2441, 1.0, on_adult(BASELINE, Masked(), n_silos=silos))
    assert zcdp_noise(rho, 10.0, 1e-4) == pytest.approx(sigma, abs=1e-8)
    honest = 12.5 * BASELINE.claimed_rho(2441, 0.00380011, on_adult(BASELINE, Masked(), n_silos=10))
    if silos == 16:
        assert zcdp_epsilon(honest, 1e-4) == pytest.approx(13.258, abs=1e-3)


@pytest.mark.parametrize("aggregation", [Masked(), Plain()], ids=["masked", "plain"])
@pytest.mark.parametrize(
    "algo", [BASE, BASELINE, replace(BASE, participation="uniform")], ids=["", "dp-sgd", "drawn"]
)
def test_the_papers_calibration_claims_its_target(algo, aggregation):
    algo = replace(algo, calibration="paper")
    rows = epsilons(algo, on_adult(algo, aggregation))
    assert {round(claimed, 9) for _, claimed in rows.values()} == {10.0}


EVERY = (Masked(), Plain(), SecAgg(threshold=8, cohort=8))
OBSERVED = [
    (algo, aggregation, ("server", "released model", "silo")[(i + j) % 3])
    for i, algo in enumerate((BASE, BASELINE, replace(BASE, feature_norm=None)))
    for j, aggregation in enumerate(EVERY)
]
"""Each algorithm under each aggregation, and each observer of each."""


@pytest.mark.parametrize(("algo", "aggregation", "observer"), OBSERVED)
def test_the_certified_calibration_meets_its_target(algo, aggregation, observer):
    algo = replace(algo, calibration="certified", observer=observer)
    rows = epsilons(algo, on_adult(algo, aggregation))
    assert rows[observer, "pld"][0] == pytest.approx(10, abs=1e-6)
    assert rows[observer, "rdp"][0] >= rows[observer, "pld"][0]


def test_one_pass_on_a_convex_loss_certifies_what_is_claimed():
    """HU-3's exact case; 10 * 244 of 2441 records in a pass make the claim's rho 2440 / 2441 of the
    certified one."""
    algo = replace(BASE, calibration="paper")
    plan = on_adult(algo, Masked())
    rows = epsilons(algo, plan)
    rho = 13 * algo.claimed_rho(2441, plan.mechanism.noise_multiplier, plan) * 2441 / 2440
    assert rows["server", "pld"][0] == pytest.approx(
        gaussian_epsilon(math.sqrt(2 * rho), 1e-4), rel=1e-6
    )
    assert rows["server", "pld"][0] < 10
    assert rows["released model", "pld"] == rows["server", "pld"]
    # a curious device knows one of the ten shares
    assert rows["silo", "pld"][0] == pytest.approx(
        gaussian_epsilon(math.sqrt(2 * rho * 10 / 9), 1e-4), rel=1e-6
    )


@pytest.mark.parametrize(
    "change",
    [
        {"feature_norm": None},  # no public smoothness
        {"local_lr": 2.0},  # longer than 2 / smoothness: the steps spread models
        {"batch_size": 2441},  # ten passes a round: ten touches under the last step's noise
    ],
)
def test_where_the_sum_gives_nothing_the_claim_is_far_below(change):
    algo = replace(BASE, calibration="paper", **change)
    rows = epsilons(algo, on_adult(algo, Masked()))
    assert rows["server", "pld"][0] == pytest.approx(39.8, abs=0.1)  # row 23
    assert {round(claimed, 9) for _, claimed in rows.values()} == {10.0}


def test_a_network_is_not_convex_and_a_server_without_masks_sees_every_message():
    network = convex_loss(Mlp([64, 32], False, 0.0), Classification(), 2)
    assert network is None
    algo = replace(BASE, noise_multiplier=0.0049)
    local = epsilons(algo, on_adult(algo, Masked(), loss=network))["server", "pld"][0]
    plain = epsilons(algo, on_adult(algo, Plain()))
    assert plain["server", "pld"][0] == pytest.approx(local, rel=1e-6)
    assert plain["released model", "pld"][0] < 0.3 * local


@pytest.mark.parametrize(
    ("records", "size", "steps", "touches"),
    [
        (2441, 244, 10, 1),
        (100, 100, 7, 7),
        (11, 4, 5, 3),
        (10, 3, 4, 2),
        (9, 3, 3, 1),
        (9, 3, 4, 2),
    ],
)
def test_a_record_is_touched_once_a_pass(records, size, steps, touches):
    """A pass has floor(m / gamma) batches: with m = 11, gamma = 4, five steps begin three passes (5
    * 4 / 11 < 2)."""
    from fedpriv.training.noisy_sgd import partition_batches

    def most(seed):
        order = np.random.default_rng(seed)
        return np.bincount(
            np.concatenate(list(partition_batches(records, size, steps, order=order)))
        )

    assert most_touches(records, size, steps) == touches
    assert max(most(seed).max() for seed in range(200)) == touches


def test_only_the_cohort_is_charged_each_device_for_its_rounds():
    plan = make_plan(BASE, Gaussian(1.0, 0.01), Masked(), federation=ADULT, streams=Streams(3))
    events = [event for t in range(1, 8) for event in only_query(BASE, plan, t).events]
    assert {(event.unit, event.adjacency) for event in events} == {("record", REPLACE)}
    taken = Counter(silo for t in range(1, 8) for silo in BASE.invited(t, ADULT, Streams(3)))
    charged = Counter(event.scope for event in events if event.observer == "server")
    assert charged == {f"silo{silo}": rounds for silo, rounds in taken.items()}
    # delta is above 1 / m^2: HU-7
    assert "delta=0.0001 is above 1 / 2441^2" in events[0].assumptions


def test_a_partial_secure_sum_counts_the_silos_that_it_covers():
    algo = replace(BASE, noise_multiplier=0.01)
    query = only_query(algo, on_adult(algo, SecAgg(threshold=8, cohort=8)))
    assert query.n_summed == 8
    assert len(query.invited) == 10
    server, silo = (
        next(e for e in query.events if e.observer == name) for name in ("server", "silo")
    )
    assert server.certified.noise_multiplier == pytest.approx(0.01 * 244 / 2 * math.sqrt(8))
    assert silo.certified.noise_multiplier == pytest.approx(0.01 * 244 / 2 * math.sqrt(7))


def test_smoothness_belongs_to_the_task_and_the_model():
    # softmax of two classes: 1/2 |(x, 1)|^2; logit: 1/4 |(x, 1)|^2
    assert LOGISTIC.smoothness(4.0) == pytest.approx(8.5)
    assert convex_loss(Linear(bias=False), BinaryClassification(), 1).smoothness(
        2.0
    ) == pytest.approx(1.0)
    assert convex_loss(Linear(), Classification(), 3) is None
    assert convex_loss(Linear(), CoxRegression(), 1) is None
    assert convex_loss(Mlp([3], False, 0.0), BinaryClassification(), 1) is None


def test_what_inherits_from_a_convex_class_of_the_framework_is_not_taken_for_convex():
    """It may put anything on top of the scores, or change the loss."""

    class Curved(Linear):
        def build(self, shape, outputs):
            return nn.Sequential(*super().build(shape, outputs), nn.Tanh())

    class Doubled(BinaryClassification):
        def loss(self, outputs, y, weight):
            return 2 * super().loss(outputs, y, weight)

    assert convex_loss(Curved(), BinaryClassification(), 1) is None
    assert convex_loss(Linear(), Doubled(), 1) is None


@pytest.mark.parametrize(("task", "outputs"), [(Classification(), 2), (BinaryClassification(), 1)])
@pytest.mark.parametrize("clip", [0.3, 100.0])
def test_clipped_steps_below_two_over_beta_never_spread_models(task, outputs, clip):
    """What Lambda = 1 rests on, measured with the gradients that train."""
    from fedpriv.training.clipped import ClippedGradients

    rng, norm = np.random.default_rng(0), 1.7
    model = Linear().build((3,), outputs)
    gradients = ClippedGradients(model, task, clip, shape=(3,))
    rate = 2 / convex_loss(Linear(), task, outputs).smoothness(norm)
    size, closest = 4 * outputs, 0.0
    for _ in range(150):
        x = torch.from_numpy(rng.normal(size=(2, 3))).float()
        x = norm * x / x.norm(dim=1, keepdim=True)
        y = torch.from_numpy(rng.integers(0, 2, 2))
        y = y.float() if outputs == 1 else y
        one = rng.normal(size=size) * rng.choice([0.1, 1, 3])
        two = one + rng.normal(size=size) * rng.choice([1e-2, 1])
        stepped = [
            theta - rate * gradients.sum(torch.from_numpy(theta).float(), x, y).numpy() / 2
            for theta in (one, two)
        ]
        spread = np.linalg.norm(stepped[0] - stepped[1]) / np.linalg.norm(one - two)
        closest = max(closest, spread)
    assert closest <= 1 + 1e-4
    assert closest > 0.99


PAIR = Federation(1, 2, 600, (40, 40), loss=LOGISTIC)


def silo_of(plan, n=40, features=300, x=None, bias=False):
    model = Linear(bias=bias).build((features,), 2)
    rows = torch.zeros(n, features) if x is None else x
    data = SiloData(rows, torch.arange(n) % 2, np.array([0]), np.array([0, n]))
    return Silo(0, data, model, Classification(), plan)


def in_pairs(algo, mechanism, aggregation, federation=PAIR, seed=0):
    return make_plan(algo, mechanism, aggregation, federation=federation, streams=Streams(seed))


@pytest.mark.parametrize("aggregation", [Plain(), Masked()], ids=["plain", "masked"])
def test_a_silos_noise_is_what_the_events_declare(aggregation):
    """Records of zeros have no gradient: a message is noise of tau steps, and its noise share is
    the last step's."""
    mechanism = Gaussian(0.5, 0.08)
    algo = replace(BASE, cohort=2, local_steps=5, clip=0.5, feature_norm=1.0)
    # local bound: one touch of 2 G / gamma; gamma = 8
    events = only_query(algo, in_pairs(algo, mechanism, Plain())).events
    alone = next(event.certified for event in events if event.observer == "server")
    assert alone.noise_multiplier == pytest.approx(0.08 * 8 / 2)
    whole, last = 0.0, 0.0
    for seed in range(8):
        plan = in_pairs(algo, mechanism, aggregation, seed=seed)
        [block], noise = answer(algo, silo_of(plan), only_query(algo, plan), np.zeros(600))
        sigma = alone.noise_multiplier * 2 * 0.5 / 8 * algo.local_lr
        message = block.vectors.numpy()[0] + noise
        whole += float((message**2).sum()) / (5 * sigma**2)
        last += float((noise**2).sum()) / sigma**2
    for total in (whole, last):
        assert min(stats.chi2.cdf(total, 8 * 600), stats.chi2.sf(total, 8 * 600)) > 1e-6


def test_no_coordinate_of_a_message_leaves_the_public_range():
    mechanism = Gaussian(0.5, 0.5)
    algo = replace(BASE, cohort=2, local_steps=5, clip=0.5)
    bound = algo.message_bound(UPDATE, mechanism, 2, PAIR)
    x = 100 * torch.randn(40, 300, generator=torch.Generator().manual_seed(0))
    plan = in_pairs(algo, mechanism, Masked())
    assert plan.encoding.bound == bound
    [block], noise = answer(algo, silo_of(plan, x=x), only_query(algo, plan), np.zeros(600))
    largest = float(np.abs(block.vectors.numpy()[0] + noise).max())
    assert 0.02 * bound < largest < bound


def test_replacing_a_record_moves_one_pass_of_a_convex_loss_by_at_most_the_declared_gap():
    """The sum bound without the noise: eta 2 G / gamma, whatever the record."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 3, generator=generator)
    algo = replace(BASE, cohort=2, local_steps=5, local_lr=0.5, clip=0.5, feature_norm=2.0)
    assert algo.local_lr <= 2 / LOGISTIC.smoothness(2.0)
    plan = in_pairs(algo, Gaussian(0.5, 0.0), Masked(), replace(PAIR, n_parameters=8))
    query, params = only_query(algo, plan), np.random.default_rng(0).normal(size=8)

    def message(records):
        return block_of(algo, silo_of(plan, x=records, features=3, bias=True), query, params)[0]

    declared, moved = 0.5 * 2 * 0.5 / 8, []
    for row in range(20):
        other = x.clone()
        other[row] = -50 * x[row]
        moved.append(np.linalg.norm(message(other) - message(x)))
    assert max(moved) <= declared * (1 + 1e-4)
    assert max(moved) > 0.5 * declared


@pytest.mark.parametrize(
    ("algo", "mechanism", "changes", "message"),
    [
        (BASE, GAUSSIAN, {"n_silos": 3}, r"algo\.cohort=10: at most 3"),
        (BASE, DiscreteGaussian(1.0, 1.0), {}, "mechanism=discrete_gaussian"),
        (replace(BASE, calibration="paper"), NoMechanism(), {}, r"algo\.calibration=paper: given"),
        (BASE, GAUSSIAN, {"records_per_draw": 2}, "algo=cdpfedavg: another for this data set"),
    ],
)
def test_impossible_combinations_are_refused(algo, mechanism, changes, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(algo, mechanism, federation=replace(ADULT, **changes))


def test_batches_and_steps_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match=r"algo\.local_steps=10"):
        DistributedDpSgd(**vars(BASE))
    spread = Allocation(np.arange(5), np.array([0, 0, 1, 1, 1]), np.ones(5, dtype=bool), 5, 2)
    with pytest.raises(ConfigError, match=r"algo\.batch_size=3: at most 2"):
        replace(BASE, batch_size=3).training_records(spread, BreastCancer())
