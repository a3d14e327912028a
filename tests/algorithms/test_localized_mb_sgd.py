"""Localized accelerated MB-SGD: the steps by hand, disjoint phases, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from erm_world import prepared, silos_of
from lowy_world import COMMON, quiet, states_of
from plans import charged, make_plan
from test_dp_erm import gradient

from fedpriv.accountants.ledger import headline
from fedpriv.accountants.pld import Pld, gaussian_epsilon
from fedpriv.algorithms.localized_mb_sgd import CENTRE, LocalizedMbSgd
from fedpriv.algorithms.proximal import ProximalOperator
from fedpriv.certificates.sampling import HalvedParts
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.query import Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL

SETTINGS = {name: value for name, value in COMMON.items() if name != "released"}
ALGO = LocalizedMbSgd(
    **SETTINGS | {"batch_size": None, "rounds": 8}, phases=3, regularisation=0.1, growth=8.0
)
SIZES = (40, 33, 36)
SILOS = silos_of(SIZES)
FEDERATION = Federation(4, 4, 10, (100, 100, 80, 60))
ROUNDS_OF_PHASES = {1: (1, 2, 3), 2: (4, 5, 6), 3: (7, 8)}
"""8 rounds, cut at 8 / 3 and 16 / 3."""


def silo_of(sim, index):
    return Silo(index, sim.silo_data[index], sim.model, sim.evaluation.task, sim.plan)


def part_of(sim, index, phase):
    """The records of one phase: the next half of what the phases before it left of one order."""
    rng = sim.plan.streams.generator("pass", party=f"silo{index}")
    order = rng.permutation(SIZES[index])
    for earlier in range(1, phase):
        order = order[SIZES[index] // 2**earlier :]
    rows = np.sort(order[: SIZES[index] // 2**phase])
    data = sim.silo_data[index]
    return replace(data, x=data.x[rows], y=data.y[rows])


def accelerated(sim, algo, operator):
    """The output after each round, as Ghadimi and Lan write their method."""
    output = sim.state.params
    for phase, rounds in ROUNDS_OF_PHASES.items():
        weight = 0.1 * 8.0 ** (phase - 1)
        centre = last = output
        parts = [part_of(sim, index, phase) for index in range(3)]
        for t in range(1, len(rounds) + 1):
            a, gamma = 2 / (t + 1), 4 * (1 / (2 * algo.global_lr)) / (t * (t + 1))
            below = gamma + (1 - a**2) * weight
            middle = (1 - a) * (weight + gamma) / below * output
            middle = middle + a * ((1 - a) * weight + gamma) / below * last
            slope = np.mean([gradient(middle, part, 0.0) for part in parts], axis=0)
            slope = slope + weight * (middle - centre)
            # argmin a (<slope, x> + weight / 2 |middle - x|^2)
            #        + ((1 - a) weight / 2 + gamma / 2) |last - x|^2 + a f1(x)
            whole = weight + gamma
            least = a * weight / whole * middle + ((1 - a) * weight + gamma) / whole * last
            last = operator(least - a / whole * slope, a / whole)
            output = a * last + (1 - a) * output
            yield output


@pytest.mark.parametrize("prox", [("none", 1.0), ("l1", 0.02), ("box", 0.1)], ids=lambda p: p[0])
def test_whole_parts_without_noise_are_accelerated_steps_on_halved_records(prox):
    algo = replace(ALGO, prox=prox[0], prox_size=prox[1])
    sim = quiet(algo, SILOS)
    start = sim.state.params
    expected = list(accelerated(sim, algo, ProximalOperator(*prox)))
    for found, output in zip(states_of(sim, 8), expected, strict=True):
        np.testing.assert_allclose(algo.output(found), output, atol=1e-6)
    assert np.linalg.norm(expected[-1] - start) > 0.05


@pytest.mark.parametrize("length", [0.5, 3.0])
def test_a_step_ends_in_the_ball_around_the_phases_start(length):
    """Of radius 2 L / lambda: the regularised loss has its minimum within half of it."""
    algo = replace(ALGO, clip=0.01, global_lr=1.0)
    sim = prepared(algo, SILOS, mechanism=Gaussian(0.01, 0.0))
    [query] = sim.queries(1)
    total = np.zeros(query.size)
    total[0] = -3 * length * (0.1 + 1)  # the first step is the gradient over lambda + eta
    state = algo.global_update(sim.state, query, Total(total, query.silos), sim.plan)
    moved = np.linalg.norm(state.params - state.slots[CENTRE])
    assert moved == pytest.approx(min(length, 2 * 0.01 / 0.1))


def test_no_record_is_in_two_phases_and_batches_within_one_are_drawn_afresh():
    algo = replace(ALGO, batch_size=5)
    sim = quiet(algo, SILOS)
    silo = silo_of(sim, 1)
    seen = {}
    for phase, rounds in ROUNDS_OF_PHASES.items():
        batches = []
        for number in rounds:
            [query] = sim.queries(number)
            draw, size = algo.draws(number, query.name)
            rows = draw.rows(silo, query, size(33))
            assert len(rows) == len(set(rows)) == min(5, 33 >> phase)
            batches.append(tuple(rows))
        assert len(set(batches)) > 1 or phase == 3
        seen[phase] = set().union(*batches)
        whole = HalvedParts(part=phase)
        assert seen[phase] <= set(whole.candidates(silo))
        assert len(whole.candidates(silo)) == 33 >> phase
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))


def plan_of(algo, noise=0.0):
    return make_plan(algo, Gaussian(1.0, noise), federation=FEDERATION)


def cost(algo, plan):
    return headline(charged(algo, plan, algo.rounds, Pld(1e-5)), "server")


@pytest.mark.parametrize("phases", [1, 2, 4])
def test_a_run_costs_the_rounds_of_one_phase(phases):
    """Whole parts: 8 / phases Gaussians, of which a record moves each mean by twice the bound."""
    algo = replace(ALGO, phases=phases, noise_multiplier=6.0)
    plan = plan_of(algo, noise=6.0)
    assert cost(algo, plan) == pytest.approx(gaussian_epsilon(2 * (8 / phases) ** 0.5 / 6.0, 1e-5))
    scopes = {e.scope for n in range(1, 9) for q in algo.queries(n, plan) for e in q.events}
    assert scopes == {f"silo{s}/phase{p}" for s in range(4) for p in range(1, phases + 1)}


def test_noise_by_the_certificate_costs_what_was_asked_for():
    algo = replace(ALGO, calibration="certified", epsilon=3.0)
    plan = plan_of(algo)
    assert cost(algo, plan) == pytest.approx(3.0, abs=1e-6)
    assert not [event for query in algo.queries(1, plan) for event in query.events if event.claimed]


def test_messages_of_the_smallest_part_fit_the_grid():
    """Their noise is 32 times that of the first part's."""
    given = ("algo.calibration=given", "algo.noise_multiplier=100", "preset.n_silos=2", "rounds=6")
    found = {}
    for aggregation in ("plain", "masked"):
        words = ("algo=localized_mb_sgd", "algo.phases=6", f"aggregation={aggregation}")
        with prepare(experiment(*SMALL, *given, *words)) as run:
            found[aggregation] = run.run_round(run.queries(6), run.state).state.params
    np.testing.assert_allclose(found["masked"], found["plain"], atol=1e-6)


def test_batches_are_amplified_by_their_share_of_the_phase():
    """5 of 50 records, but not 5 of 15."""
    algo = replace(ALGO, phases=2, batch_size=5, noise_multiplier=4.0)
    plan = plan_of(algo, noise=4.0)
    sources = []
    for number in (1, 5):
        [query] = algo.queries(number, plan)
        seen = {event.scope: event.certified for event in query.events}
        sources.append([getattr(one, "source_dataset_size", None) for one in seen.values()])
    assert sources == [[50, 50, 40, 30], [25, 25, 20, None]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("algo.phases=5 rounds=4", r"algo\.phases=5: 1 to 4, the number of rounds"),
        ("algo.phases=9 rounds=9", r"algo\.phases=9: at most \d, since the smallest silo has"),
        ("algo.calibration=paper", r"algo\.calibration=paper"),
        ("aggregation=shuffle mechanism=binomial", "shuffle: needs another algorithm"),
    ],
)
def test_what_cannot_work_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        prepare(experiment(*SMALL, "algo=localized_mb_sgd", *words.split()))
