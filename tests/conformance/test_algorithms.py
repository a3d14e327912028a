"""What every algorithm must do. Add a new one to ALGORITHMS with its plain federated twin."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from scipy import stats

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.private_weighting import PrivateWeighting
from fedpriv.aggregation.secagg import SecAgg
from fedpriv.algorithms.base import Federation, Local
from fedpriv.algorithms.cdp_fedavg import CdpFedAvg, DistributedDpSgd
from fedpriv.algorithms.dp_erm import DpErm
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.algorithms.uldp import UldpAvg, UldpBase, UldpSgd
from fedpriv.algorithms.uldp_naive import UldpNaive
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import Records
from fedpriv.data.silo import split_by_silo
from fedpriv.engines.inprocess import InProcess
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.simulation import Simulation
from fedpriv.streams import Streams
from fedpriv.tasks import Classification

SILOS, USERS, FEATURES, CLASSES, EPOCHS, RATE = 3, 7, 4, 3, 3, 0.2
COMMON = {"clip": 1.0, "noise_multiplier": 5.0, "user_rate": 1.0, "global_lr": 2.0}
DEVICES = {"batch_size": None, "local_lr": RATE, "clip": 1.0, "noise_multiplier": 0.0, "cohort": None}
DEVICES |= {"participation": "balanced", "feature_norm": None, "calibration": "none", "epsilon": 1.0}
DEVICES |= {"observer": "server", "rounds": 5, "delta": 1e-5}
ERM = {"strong_convexity": 1e-9, "smoothness": 1 / (4 * RATE), "clip": 1.0, "noise_multiplier": 0.0, "noise": "given"}
ERM |= {"broadcast_all": False, "epsilon": 1.0, "rounds": 5, "delta": 1e-5}
"""Regularised so little that the first rates are 1 / (4 L) and weights do not decay."""
LOCAL = {"local_epochs": EPOCHS, "batch_size": 1000, "local_lr": RATE}


def twin_fedavg(train, counts):
    return 1.5 / SILOS * sum(train(silo, None, EPOCHS, RATE) for silo in range(SILOS))


def twin_uldp(weights, epochs, rate):
    def step(train, counts):
        pairs = np.argwhere(counts > 0)
        total = sum(weights(counts)[s, u] * train(s, u, epochs, rate) for s, u in pairs)
        return 2.0 / (USERS * SILOS) * total

    return step


def twin_synchronous_sgd(train, counts):
    return sum(train(silo, None, 1, RATE) for silo in range(SILOS)) / SILOS


def twin_local_gradient_descent(train, counts):
    return sum(train(silo, None, EPOCHS, RATE) for silo in range(SILOS)) / SILOS


def uniform(counts):
    return np.full(counts.shape, 1 / SILOS)


def records(counts):
    return counts / np.maximum(counts.sum(0), 1)


ALGORITHMS = {
    "fedavg": (FedAvg(global_lr=1.5, **LOCAL), twin_fedavg),
    "uldp_naive": (UldpNaive(global_lr=1.5, clip=1.0, noise_multiplier=5.0, sensitivity="sound", **LOCAL), twin_fedavg),
    "uldp_naive_paper": (
        UldpNaive(global_lr=1.5, clip=1.0, noise_multiplier=5.0, sensitivity="paper", **LOCAL),
        twin_fedavg,
    ),
    "uldp_avg": (UldpAvg(weighting="uniform", **COMMON, **LOCAL), twin_uldp(uniform, EPOCHS, RATE)),
    "uldp_avg_w": (UldpAvg(weighting="records", **COMMON, **LOCAL), twin_uldp(records, EPOCHS, RATE)),
    "uldp_sgd": (UldpSgd(weighting="uniform", **COMMON), twin_uldp(uniform, 1, 1.0)),
    "uldp_sgd_w": (UldpSgd(weighting="records", **COMMON), twin_uldp(records, 1, 1.0)),
    "cdp_fedavg": (CdpFedAvg(local_steps=1, **DEVICES), twin_synchronous_sgd),
    "dp_sgd": (DistributedDpSgd(local_steps=1, **DEVICES), twin_synchronous_sgd),
    "dp_erm": (DpErm(local_steps=EPOCHS, **ERM), twin_local_gradient_descent),
    "dp_erm_one_step": (DpErm(local_steps=1, **ERM), twin_synchronous_sgd),
}
PRIVATE = {name: algo for name, (algo, _) in ALGORITHMS.items() if hasattr(algo, "global_lr") and name != "fedavg"}
"""Algorithms whose whole noise is a share of each silo's message, for the unit user under add/remove."""
PER_USER = {name: algo for name, algo in PRIVATE.items() if isinstance(algo, UldpBase)}


AGGREGATIONS = {
    "plain": Plain(),
    "masked": Masked(),
    "masked32": Masked(bits=32),
    "secagg": SecAgg(),
    "secagg2": SecAgg(threshold=2, cohort=2),
    "private": PrivateWeighting(key_bits=256, n_max=36, precision=16),
}
MECHANISMS = {"gaussian": Gaussian, "discrete_gaussian": DiscreteGaussian}


def summed_by(names, aggregations=tuple(AGGREGATIONS)):
    """Algorithms each with every aggregation that can sum for it."""
    by_records = [name for name in names if ALGORITHMS[name][0].needs_counts]
    return [(name, a) for a in aggregations for name in (by_records if a == "private" else names)]


def denominator(algo, covered=SILOS):
    """What a sum over so many silos is divided by before global_lr."""
    return USERS * covered if isinstance(algo, UldpBase) else covered


def sensitivity(algo, covered=SILOS):
    """Largest change that one user causes in a sum over so many silos, in units of the clip bound."""
    return 1 if isinstance(algo, UldpBase) else 2 * covered


def multiplier(event):
    """Noise over sensitivity."""
    return event.noise_multiplier if isinstance(event, GaussianDpEvent) else (2 * event.rho) ** -0.5


@pytest.fixture(scope="module")
def world():
    """Records, their allocation, a model and its flat weights."""
    rng = np.random.default_rng(0)
    n = 60
    data = Records(rng.normal(size=(n, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, n))
    user, silo = rng.integers(0, USERS, n), rng.integers(0, SILOS, n)
    silo[user == 0] = 1  # a user who is missing from two silos
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 5), torch.nn.ReLU(), torch.nn.Linear(5, CLASSES))
    theta = torch.cat([p.detach().flatten() for p in model.parameters()]).double().numpy()
    return data, Allocation(user, silo, np.ones(n, dtype=bool), USERS, SILOS), model, theta


def simulation(world, algo, mechanism, seed=0, n_users=USERS, aggregation=Plain()):  # noqa: B008
    data, allocation, model, theta = world
    streams, task = Streams(seed), Classification()
    silos = split_by_silo(data, allocation, "cpu")
    parties = [Local(s, records, copy.deepcopy(model), task, mechanism, streams) for s, records in enumerate(silos)]
    memory = {name: {} for name in [SERVER, *(local.name for local in parties)]}
    federation = Federation(n_users, SILOS, len(theta), tuple(len(records.x) for records in silos))
    counts = {local.name: algo.counts(local, federation) for local in parties}
    InProcess().run(aggregation.setup(counts, algo.weights, algo.needs_counts, memory))
    experiment = SimpleNamespace(
        algo=algo, mechanism=mechanism, aggregation=aggregation, engine=InProcess(), federation=federation
    )
    plan = algo.plan(1, federation, mechanism, aggregation, streams)
    return Simulation(experiment, algo, federation, model, theta, parties, data, None, "cpu", memory), plan


@pytest.mark.parametrize("name", ALGORITHMS)
def test_without_noise_and_clipping_it_is_its_plain_twin(name, world):
    algo, twin = ALGORITHMS[name]
    data, allocation, model, theta = world

    def train(silo, user, epochs, rate):
        """Full-batch SGD with torch's own optimiser on one user's (None: all) records in one silo."""
        rows = (allocation.silo == silo) & ((allocation.user == user) if user is not None else True)
        net = copy.deepcopy(model)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate)
        for _ in range(epochs):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                net(torch.from_numpy(data.x[rows])), torch.from_numpy(data.y[rows])
            )
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in net.parameters()]).double().numpy() - theta

    sim, plan = simulation(world, algo, NoMechanism())
    step = sim.run_round(plan, theta).theta - theta
    np.testing.assert_allclose(step, twin(train, allocation.counts()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("name", "aggregation"), summed_by(PRIVATE))
def test_the_noise_of_a_round_is_what_its_event_declares(name, aggregation, mechanism, world):
    """The step with noise less the step without it, against the noise multiplier of the released model's event."""
    algo, theta = PRIVATE[name], world[3]
    clip, size = 0.7, len(theta)
    noisy, quiet = MECHANISMS[mechanism](clip, 5.0), MECHANISMS[mechanism](clip, 0.0)
    total, covered = 0.0, AGGREGATIONS[aggregation].min_cohort(SILOS)
    for seed in range(40):
        sim, plan = simulation(world, algo, noisy, seed, aggregation=AGGREGATIONS[aggregation])
        reference, _ = simulation(world, algo, quiet, seed, aggregation=AGGREGATIONS[aggregation])
        [declared] = {multiplier(e.certified) for e in plan.events if e.observer == "released model"}
        noise = sim.run_round(plan, theta).theta - reference.run_round(plan, theta).theta
        noise *= denominator(algo, covered) / algo.global_lr
        total += float((noise**2).sum()) / (declared * clip * sensitivity(algo, covered)) ** 2
    assert min(stats.chi2.cdf(total, 40 * size), stats.chi2.sf(total, 40 * size)) > 1e-6


@pytest.mark.parametrize(("name", "aggregation"), summed_by(ALGORITHMS, ("masked", "secagg", "private")))
def test_a_secure_sum_gives_the_plain_step_to_its_rounding(name, aggregation, world):
    algo, theta = ALGORITHMS[name][0], world[3]
    mechanism = Gaussian(0.7, 5.0) if name in PRIVATE else NoMechanism()
    plain, plan = simulation(world, algo, mechanism)
    secure, secure_plan = simulation(world, algo, mechanism, aggregation=AGGREGATIONS[aggregation])
    apart = secure.run_round(secure_plan, theta).theta - plain.run_round(plan, theta).theta
    most = getattr(algo, "global_lr", 1.0) / denominator(algo) * secure_plan.code.rounding
    assert np.abs(apart).max() <= most * (1 + 1e-6) + 1e-15


@pytest.mark.parametrize("name", PRIVATE)
def test_removing_a_user_moves_the_sum_by_at_most_the_sensitivity(name, world):
    data, allocation, model, theta = world
    algo, mechanism = PRIVATE[name], Gaussian(0.3, 0.0)
    total = step_total(world, algo, mechanism)
    for user in range(USERS):
        without = Allocation(allocation.user, allocation.silo, allocation.user != user, USERS, SILOS)
        change = np.linalg.norm(total - step_total((data, without, model, theta), algo, mechanism))
        assert change <= 0.3 * sensitivity(algo) * (1 + 1e-9)


def step_total(world, algo, mechanism):
    sim, plan = simulation(world, algo, mechanism)
    return (sim.run_round(plan, world[3]).theta - world[3]) * denominator(algo) / algo.global_lr


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_plan_repeats_and_looks_at_no_data(name):
    algo, federation = ALGORITHMS[name][0], Federation(50, SILOS, 10, (20, 30, 40))
    mechanism = Gaussian(1.0, 5.0) if name in PRIVATE else NoMechanism()
    one, two = (algo.plan(4, federation, mechanism, Plain(), Streams(3)) for _ in range(2))
    assert one.events == two.events
    assert one.cohort == two.cohort == (0, 1, 2)
    observers = {event.observer for event in one.events}
    assert {"released model", "server", "silo"} <= observers


@pytest.mark.parametrize("name", ALGORITHMS)
def test_pickles_and_has_a_label(name):
    algo = ALGORITHMS[name][0]
    assert pickle.loads(pickle.dumps(algo)) == algo
    assert algo.label


@pytest.mark.parametrize("name", PER_USER)
def test_a_diverging_user_is_recorded_and_harms_nobody(name, world):
    data, allocation, model, theta = world
    broken = data.x.copy()
    broken[allocation.user == 3] = np.inf
    sick = Records(broken, data.y)
    algo, mechanism = PRIVATE[name], Gaussian(0.3, 0.0)
    sim, plan = simulation((sick, allocation, model, theta), algo, mechanism)
    result = sim.run_round(plan, theta)
    assert np.isfinite(result.theta).all()
    assert result.tally.nonfinite == np.count_nonzero(allocation.counts()[:, 3])
    without = Allocation(allocation.user, allocation.silo, allocation.user != 3, USERS, SILOS)
    healthy, plan = simulation((data, without, model, theta), algo, mechanism)
    if not algo.needs_counts:
        np.testing.assert_allclose(result.theta, healthy.run_round(plan, theta).theta, atol=1e-9)
