"""What every accountant in conf/accountant must satisfy, whatever its method."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import DiscreteLaplaceDpEvent
from hydra.utils import get_class, instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError
from scipy import stats

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.accountants.pld import Pld
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError

CONF = Path(__file__).parents[2] / "conf" / "accountant"
YAMLS = sorted(CONF.glob("*.yaml"))
GAUSSIAN = dp.GaussianDpEvent(5.0)
POISSON = dp.PoissonSampledDpEvent(0.1, GAUSSIAN)
FIXED = dp.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN)

quick = settings(max_examples=6, deadline=None, derandomize=True)
rates = st.floats(1e-3, 1.0)
noises = st.floats(0.4, 100.0)
lengths = st.integers(1, 5000)


@pytest.fixture(scope="module", params=YAMLS, ids=lambda path: path.stem)
def accountant(request) -> Accountant:
    return instantiate(OmegaConf.load(request.param))


def epsilons(
    accountant: Accountant, q: float, sigma: float, rounds: int, k: int = 1
) -> dict[str, float]:
    return accountant.epsilons(
        [(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), rounds)], ADD_REMOVE, k
    )


def assert_none_falls(less: dict[str, float], more: dict[str, float]) -> None:
    assert less.keys() == more.keys()
    for method in less:
        assert less[method] <= more[method] * (1 + 1e-7) + 1e-9, method


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: path.stem)
def test_yaml_keys_are_the_fields(path):
    config = OmegaConf.load(path)
    cls = get_class(config.pop("_target_"))
    assert set(config) == {field.name for field in fields(cls)}
    assert cls() == cls(**config)  # the yaml holds the defaults
    with pytest.raises(ValidationError):
        OmegaConf.merge(OmegaConf.structured(cls), {"delta": "small"})
    for delta in (0.0, 1.0, -1e-5, math.nan):
        with pytest.raises(ConfigError, match=r"^accountant.delta="):
            cls(delta=delta)


def test_is_a_frozen_value(accountant):
    assert pickle.loads(pickle.dumps(accountant)) == accountant
    assert len({accountant, pickle.loads(pickle.dumps(accountant))}) == 1
    with pytest.raises(FrozenInstanceError):
        accountant.delta = 0.1


BOTH = pytest.mark.parametrize("method", [Rdp(), Pld()], ids=["rdp", "pld"])
"""The third accountant has the epsilons of these two."""


@BOTH
@pytest.mark.parametrize("grown", ["rate", "noise", "rounds"])
@quick
@given(st.tuples(rates, rates), st.tuples(noises, noises), lengths, st.integers(0, 5000))
def test_epsilon_never_falls_with_rate_and_rounds_and_as_noise_shrinks(
    method, grown, q, sigma, rounds, further
):
    (low, high), (quiet, loud) = sorted(q), sorted(sigma)
    less = {"q": low, "sigma": loud, "rounds": rounds}
    changes = {
        "rate": {"q": high},
        "noise": {"sigma": quiet},
        "rounds": {"rounds": rounds + further},
    }
    assert_none_falls(epsilons(method, **less), epsilons(method, **less | changes[grown]))


@BOTH
@quick
@given(rates, st.floats(2.0, 100.0), lengths, st.integers(1, 12), st.integers(1, 12))
def test_epsilon_never_falls_as_groups_grow(method, q, sigma, rounds, k, other):
    small, large = sorted((k, other))
    assert_none_falls(
        epsilons(method, q, sigma, rounds, small), epsilons(method, q, sigma, rounds, large)
    )


@BOTH
@pytest.mark.parametrize("q", [0.999, 1 - 1e-12])
def test_epsilon_does_not_fall_when_sampling_stops(method, q):
    for sigma, rounds in [(5.0, 100), (0.5, 10), (50.0, 1000)]:
        assert_none_falls(epsilons(method, q, sigma, rounds), epsilons(method, 1.0, sigma, rounds))


@quick
@given(rates, noises, lengths)
def test_methods_agree(q, sigma, rounds):
    rdp, pld = epsilons(Rdp(), q, sigma, rounds)["rdp"], epsilons(Pld(), q, sigma, rounds)["pld"]
    assert pld <= rdp * (1 + 1e-3)  # no looser than its chords
    # RDP gives up at most one conversion: the PLD certifies RDP's epsilon at no less than a
    # thousandth of the delta
    assert rdp <= epsilons(Pld(delta=1e-8), q, sigma, rounds)["pld"] + 1e-3


@quick
@given(rates, noises, lengths)
def test_epsilon_is_never_below_what_an_attack_reaches(accountant, q, sigma, rounds):
    """A realizable test: call the unit present when the summed outputs exceed a threshold.

    Given how many rounds sampled the unit the sum is exactly normal, so its error rates are exact
    too.
    """
    m = np.arange(rounds + 1)
    share, std = stats.binom.pmf(m, rounds, q), sigma * math.sqrt(rounds)
    threshold = np.linspace(0, q * rounds + 6 * std, 60)
    present, absent = (
        stats.norm.sf(threshold[:, None], m, std) @ share,
        stats.norm.sf(threshold, 0, std),
    )
    caught = (present > 2 * accountant.delta) & (absent > 0)
    reached = np.max(
        np.log((present[caught] - accountant.delta) / absent[caught]), initial=0
    )  # any epsilon is above
    for method, epsilon in epsilons(accountant, q, sigma, rounds).items():
        assert epsilon >= reached - 1e-9, method


@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE])
def test_nothing_costs_nothing_and_no_noise_certifies_nothing(accountant, adjacency):
    assert set(accountant.epsilons([], adjacency).values()) == {0.0}
    assert set(accountant.epsilons([(dp.NoOpDpEvent(), 5)], adjacency).values()) == {0.0}
    for bare in (dp.NonPrivateDpEvent(), dp.GaussianDpEvent(0.0)):
        assert set(accountant.epsilons([(GAUSSIAN, 1), (bare, 1)], adjacency).values()) == {
            math.inf
        }


def test_a_multiplier_counts_the_stated_adjacency(accountant):
    # dp_accounting's PLD accountant would double the sensitivity under replace, its RDP accountant
    # would not
    assert accountant.epsilons([(GAUSSIAN, 10)], REPLACE) == accountant.epsilons(
        [(GAUSSIAN, 10)], ADD_REMOVE
    )


@pytest.mark.parametrize(("event", "adjacency"), [(POISSON, REPLACE), (FIXED, ADD_REMOVE)])
def test_t15_a_sampling_scheme_never_borrows_the_other_adjacency(accountant, event, adjacency):
    with pytest.raises(
        ConfigError, match=rf"accountant=\w+: cannot account {type(event).__name__}.*{adjacency}"
    ):
        accountant.epsilons([(GAUSSIAN, 1), (event, 1)], adjacency)


@pytest.mark.parametrize(
    "event",
    [
        dp.SampledWithReplacementDpEvent(100, 10, GAUSSIAN),
        dp.UnsupportedDpEvent(),
        DiscreteLaplaceDpEvent(1.0, 1),
    ],
)
def test_events_without_a_bound_are_refused_by_name(accountant, event):
    with pytest.raises(ConfigError, match=rf"^accountant=[^\n]*{type(event).__name__}[^\n]*$"):
        accountant.epsilons([(event, 1)], ADD_REMOVE)
