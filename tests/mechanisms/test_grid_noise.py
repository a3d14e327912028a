"""Noise that protects: its distribution, and that no observation excludes a candidate."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent
from plans import make_plan
from runs import experiment
from scipy import stats
from scipy.special import ndtr, ndtri

from fedpriv.aggregation.base import BROADCAST
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.errors import ConfigError
from fedpriv.mechanisms import grid_noise
from fedpriv.mechanisms.gaussian import MOST_STEPS, Gaussian
from fedpriv.mechanisms.grid_noise import MOST_NOISE, SLACK, noised, whole_steps
from fedpriv.rounds.contributors import UniformWeighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.query import Broadcast
from fedpriv.training.contributions import Contributions
from fedpriv.util.streams import Streams, SystemGenerator

TRIALS = 100_000
TRUTH, NEIGHBOUR = 0.0712345678, 0.0712335678
"""The same coordinate of a sum, with and without somebody: too near to be told apart by how large
the noise is."""


def observed(aggregation, silos):
    """One honest silo's message about `TRUTH` in every coordinate, as its weighted sum and noise
    make it, under randomness=system; with the plan. The other silos' shares are the observer's
    own."""
    algo = experiment("algo=uldp_avg").algo
    made = make_plan(
        algo,
        Gaussian(0.1, 5.0),
        aggregation,
        federation=Federation(n_users=8, n_silos=silos, n_parameters=TRIALS),
        streams=Streams(0, system=True),
    )
    [query] = algo.queries(1, made)
    noise = query.mechanism.noise_share(
        TRIALS, silos, made.streams.secret("noise", 1, "silo0"), encoding=query.encoding
    )
    block = Contributions(np.array([0]), torch.full((1, TRIALS), TRUTH, dtype=torch.float64))
    update = LocalJob(iter([block]), noise)
    silo = aggregation.silo("silo0", tuple(f"silo{i}" for i in range(silos)), UniformWeighting())
    silo.weights = np.ones(1)
    if isinstance(aggregation, Masked):
        return query.encoding.decode(silo.noised_sum(query, update)), query
    party = silo.query(query, lambda _: update)
    next(party)
    post = query.post("server", silo.signer)
    [broadcast] = next(post.send(BROADCAST, {"silo0": Broadcast({})})).values()
    message = party.send({"server": broadcast})["server"].content
    return (message if query.encoding is None else query.encoding.decode(message)), query


def inverted(noise, deviation):
    """The 52-bit uniform numbers (3, d) whose inverse normal distribution function comes next to
    `noise`."""
    nearest = np.floor(ndtr(noise / deviation) * 2.0**52)
    return (np.clip(nearest + np.array([[-1], [0], [1]]), 0, 2**52 - 1) + 0.5) * 2.0**-52


def floats(seen, candidate, query):
    """Whether what remains is the float64 that a 52-bit Gaussian makes of a uniform number, added
    as a float."""
    deviation = query.mechanism.share_deviation(query.n_summed)
    return (candidate + ndtri(inverted(seen - candidate, deviation)) * deviation == seen).any(
        axis=0
    )


def steps(seen, candidate, query):
    """The same for tails that are rounded to the messages' grid: whether any uniform number leads
    to this step."""
    if query.encoding is None:
        return np.zeros(len(seen), dtype=bool)
    unit, deviation = query.encoding.unit, query.mechanism.share_deviation(query.n_summed)
    k = (seen - candidate) / unit
    uniform = inverted(k * unit, deviation)
    return (np.rint(ndtri(uniform) * deviation / unit) == k).any(axis=0) & (
        abs(k) > 2.7 * deviation / unit
    )


def whole(seen, candidate, query):
    """Whether what remains is a whole number of the messages' grid steps."""
    if query.encoding is None:
        return np.zeros(len(seen), dtype=bool)
    unit = query.encoding.unit
    return np.fmod(seen - candidate, unit) == 0


@pytest.mark.parametrize("question", [floats, steps, whole])
@pytest.mark.parametrize(
    ("aggregation", "silos"), [(Plain(), 1), (Plain(), 3), (Masked(range=9.0), 2)], ids=str
)
def test_no_observation_excludes_the_neighbour(aggregation, silos, question):
    """Two proportions, of the trials that call the truth possible and of those that call the
    neighbour possible."""
    seen, query = observed(aggregation, silos)
    unit = query.encoding.unit if query.encoding is not None else 0.0
    candidates = [round(value / unit) * unit if unit else value for value in (TRUTH, NEIGHBOUR)]
    passed = [int(question(seen, candidate, query).sum()) for candidate in candidates]
    pooled = sum(passed) / (2 * TRIALS)
    spread = math.sqrt(2 * pooled * (1 - pooled) / TRIALS)
    assert abs(passed[0] - passed[1]) / TRIALS <= 5 * spread


@pytest.mark.parametrize("question", [floats, whole])
def test_noise_inside_training_excludes_no_neighbour_either(question):
    """What a step of local training goes along, in 10^5 coordinates, beside the candidates on its
    grid."""
    mechanism = Gaussian(0.1, 5.0)
    seen = mechanism.training_noise().add(np.full(TRIALS, TRUTH), SystemGenerator())
    query = Released(mechanism, Grid(2.0**-49))
    candidates = [round(value * 2**49) / 2**49 for value in (TRUTH, NEIGHBOUR)]
    passed = [int(question(seen, candidate, query).sum()) for candidate in candidates]
    spread = math.sqrt(max(passed) * (1 - max(passed) / TRIALS) * 2)
    assert abs(passed[0] - passed[1]) <= 5 * spread
    assert not whole(seen, candidates[0] + 2.0**-51, query).any()


@dataclass(frozen=True)
class Grid:
    unit: float


@dataclass(frozen=True)
class Released:
    mechanism: Gaussian
    encoding: Grid
    n_summed: int = 1


@pytest.mark.parametrize("deviation", [1e-9, 0.37])
def test_real_noise_is_gaussian(deviation):
    noise = noised(np.zeros(400_000), deviation, SystemGenerator()) / (deviation * (1 + SLACK))
    edges = ndtri(np.arange(1, 100) / 100)
    assert stats.chisquare(np.bincount(np.searchsorted(edges, noise), minlength=100)).pvalue > 1e-6
    for moment, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((noise**moment).mean() - expected) < 5 * math.sqrt(variance / len(noise))
    for tail in (3.0, 4.0):
        for side in (noise, -noise):
            assert (
                stats.binomtest(int((side > tail).sum()), len(noise), stats.norm.sf(tail)).pvalue
                > 1e-6
            )
    # Its low-order bits are as good as the others: even and odd steps.
    steps = np.ldexp(noised(np.zeros(100_000), 1.0, SystemGenerator()), 48)
    assert (steps == np.rint(steps)).all()
    assert stats.binomtest(int((np.fmod(steps, 2) == 0).sum()), len(steps)).pvalue > 1e-6


def test_the_signal_arrives_and_a_huge_one_is_cut():
    signal = np.array([-1e300, -5.0, 0.0, 3.25, 1e300])
    seen = noised(signal, 1e-3, SystemGenerator())
    assert abs(seen[1:4] - signal[1:4]).max() < 0.02
    assert seen[[0, 4]] == pytest.approx([-8.0, 8.0], rel=0.01)  # 2^61 steps of 2^-58
    assert np.array_equal(noised(signal, 0.0, SystemGenerator()), signal)


def test_real_noise_of_a_sum_is_that_of_its_mean_times_its_size():
    total = Gaussian(0.5, 3.0).training_noise(0.1 * 20).add(np.zeros(100_000), SystemGenerator())
    assert stats.kstest(total / 20, "norm", (0, 0.15)).pvalue > 1e-6


def test_more_coordinates_than_the_slack_pays_for_are_refused(monkeypatch):
    monkeypatch.setattr(grid_noise, "MOST_SIZE", 3)
    with pytest.raises(ValueError, match="4 coordinates"):
        noised(np.zeros(4), 1.0, SystemGenerator())
    assert noised(np.zeros(3), 1.0, SystemGenerator()).all()


@pytest.mark.parametrize("deviation", [1e-9, 0.37, 1.0, 4096.0])
def test_noise_in_training_spans_its_steps_with_the_slack(monkeypatch, deviation):
    """Too small a difference for any number of draws to show, so what is asked of the sampler is
    looked at."""
    asked = []

    def nothing(steps, size, rng):
        asked.append(steps)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(grid_noise, "discrete_gaussian", nothing)
    signal = np.linspace(-3, 3, 1001) * deviation
    rounded = noised(signal, deviation, SystemGenerator())
    (steps,) = asked
    step = deviation * (1 + 2**-14) / steps
    assert 2**48 <= deviation / step < 2**49 + 1
    np.testing.assert_allclose(rounded, signal, rtol=0, atol=0.5 * step * (1 + 1e-9))
    assert steps * 2.0 ** round(math.log2(step)) >= deviation * (1 + 2**-14)


def test_the_slack_pays_for_the_rounding_of_the_largest_signal():
    """Against the step of the finest and coarsest grids that a deviation can have."""
    for deviation in (1.0, 1.999):
        step = 2.0 ** -(grid_noise.FINE_BITS + 1 - math.frexp(deviation)[1])
        moved = deviation / (32 * MOST_NOISE)
        assert (
            deviation * (1 + SLACK) / (moved + math.sqrt(grid_noise.MOST_SIZE) * step)
            > deviation / moved
        )
    # As the docstring of `noised` has it, with as much to spare.
    assert math.sqrt(grid_noise.MOST_SIZE) * 2**-grid_noise.FINE_BITS * 32 * MOST_NOISE <= SLACK / 2
    assert Gaussian(1.0, 1e9).event() == GaussianDpEvent(MOST_NOISE)
    assert Gaussian(1.0, 6e4).event() == GaussianDpEvent(6e4)
    assert whole_steps(0.0) == 0  # and where nothing is declared, nothing is added


@pytest.mark.parametrize("system", [False, True])
def test_messages_in_the_clear_are_integers_only_where_their_noise_protects(system):
    randomness = Streams(0, system=system)
    federation = Federation(n_users=8, n_silos=2, n_parameters=5)
    for mechanism, integers in ((Gaussian(0.1, 5.0), system), (Gaussian(0.1, 0.0), False)):
        algo = replace(
            experiment("algo=uldp_avg").algo, noise_multiplier=mechanism.noise_multiplier
        )
        made = make_plan(algo, mechanism, federation=federation, streams=randomness)
        assert (made.encoding is not None) == integers
        if integers:
            [query] = algo.queries(1, made)
            assert query.events[0].assumptions[0] == "integer noise, exactly sampled"


def test_a_grid_too_fine_for_float64_is_refused():
    encoding = Gaussian(1.0, 1.0).encoding(1, 1.0, real=True)
    with pytest.raises(ConfigError, match="grid steps"):
        Gaussian(1.0, 2 * MOST_STEPS * encoding.unit).check_encoding(1, encoding)
