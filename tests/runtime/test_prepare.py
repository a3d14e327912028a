"""What a run is made of before its first round: device, network, what a checkpoint brings back, and
its end."""

import importlib
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from own_networks import Branching
from runs import experiment

from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Records
from fedpriv.engines.inprocess import InProcess, InProcessSession
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.models.linear import Linear
from fedpriv.runtime import prepare
from fedpriv.runtime.own_records import home_silos
from fedpriv.runtime.prepare import resolve_device
from fedpriv.testing.faults import Faulty, drop
from fedpriv.training.description import AS_IT_IS

WORDS = ("algo=uldp_avg", "algo.noise_multiplier=1", "preset.n_silos=3", "preset.n_users=6")


@pytest.mark.parametrize(
    ("device", "present", "resolved"),
    [
        ("auto", 0, "cpu"),
        ("auto", 1, "cuda"),
        ("cpu", 1, "cpu"),
        ("cuda", 0, None),
        ("cuda", 1, "cuda"),
        ("cuda:0", 1, "cuda:0"),
        ("cuda:1", 1, None),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_a_device_is_one_that_is_there(device, present, resolved, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: present)
    if resolved is None:
        with pytest.raises(
            ConfigError, match=f"^device={device}: this machine has no such CUDA device"
        ):
            resolve_device(device)
    else:
        assert resolve_device(device) == resolved


def test_an_engine_that_cannot_run_here_is_never_opened():
    @dataclass(frozen=True)
    class Elsewhere(InProcess):
        def check(self, device):
            raise ConfigError("engine", "elsewhere", f"not with device={device}")

        def open(self, specs, memories):
            pytest.fail("opened")

    with pytest.raises(ConfigError, match="not with device=cpu"):
        prepare(replace(experiment(*WORDS, "device=cpu"), engine=Elsewhere()))


TEXT = (
    "algo=local_only",
    "data=shakespeare",
    "model=char_gru",
    "allocator=by_user",
    "allocator.n_silos=3",
    "device=cpu",
)


@pytest.mark.parametrize(
    ("words", "trainer", "fits"),
    [
        (WORDS, "batched", True),
        (WORDS, "plain", True),
        (TEXT, "plain", True),
        (TEXT, "batched", False),
        (TEXT, "compiled", True),
    ],
)
def test_a_trainer_that_cannot_train_the_network_is_told_before_data_are_loaded(
    words, trainer, fits, monkeypatch
):
    class LoadedError(Exception):
        pass

    def load(*_):
        raise LoadedError

    monkeypatch.setattr(importlib.import_module("fedpriv.runtime.own_records"), "load", load)
    with pytest.raises(
        LoadedError if fits else ConfigError, match=None if fits else f"^trainer={trainer}"
    ):
        prepare(experiment(*words, f"trainer={trainer}"))


@pytest.mark.parametrize("captured", [True, False])
def test_certificates_say_what_they_assume_of_a_network_that_is_not_captured(captured):
    exp = experiment(*WORDS)
    exp = exp if captured else replace(exp, model=Branching())
    with prepare(exp) as prepared:
        [query] = prepared.queries(1)
        assert query.events
        assert all((AS_IT_IS in event.assumptions) != captured for event in query.events)
        assert ("plain: users one by one" in prepared.facts.trainer) != captured


def test_first_weights_are_of_the_seed_alone():
    def weights(*words):
        with prepare(experiment(*WORDS, *words)) as prepared:
            return prepared.state.params

    torch.manual_seed(5)
    first = weights()
    torch.manual_seed(6)
    assert np.array_equal(first, weights())
    assert not np.array_equal(first, weights("seed=1"))
    torch.manual_seed(7)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    weights()
    assert torch.equal(torch.rand(3), drawn)  # nobody else's draws are moved


def test_a_network_of_another_size_than_it_says_is_refused():
    class Larger(Linear):
        def size(self, shape, outputs):
            return super().size(shape, outputs) - 1

    exp = experiment(*WORDS)
    with pytest.raises(
        ConfigError,
        match=r"^model=Larger: size\(\) says \d+ parameters, and build\(\) creates \d+$",
    ):
        prepare(replace(exp, model=Larger()))


def test_a_checkpoint_brings_back_what_silos_remember_and_the_last_query_without_a_sum():
    words = ("algo=scaffold", "preset.n_silos=3")
    with prepare(experiment(*words)) as prepared:
        assert (prepared.standing.aborted, prepared.standing.failures) == (None, 0)
        assert {(row["round"], row["query"]) for row in prepared.facts.setup} <= {(0, "setup")}
        state = prepared.run_round(prepared.queries(1), prepared.state).state
        prepared.standing.aborted, prepared.standing.failures = (4, 1), 3
        kept, remembered = prepared.arrays(state), prepared.standing.silo_states
    assert remembered
    with prepare(experiment(*words), kept) as again:
        assert (again.standing.aborted, again.standing.failures) == ((4, 1), 3)
        assert again.standing.silo_states.keys() == remembered.keys() == {"silo0", "silo1", "silo2"}
        for silo, own in remembered.items():
            assert again.standing.silo_states[silo].keys() == own.keys()
            for key, value in own.items():
                np.testing.assert_array_equal(again.standing.silo_states[silo][key], value)
        np.testing.assert_array_equal(again.state.params, state.params)


@pytest.mark.parametrize("aggregation", ["masked", "secagg"])
def test_a_set_up_that_is_repeated_is_still_before_the_first_round(aggregation):
    exp = experiment(*WORDS, f"aggregation={aggregation}", "algo.weighting=records")
    first = replace(exp, engine=Faulty(InProcess(), (drop(exchange=0, sender="silo1"),)))
    with pytest.warns(RuntimeWarning, match="repeating the set-up: no message from silo1"):
        prepared = prepare(first)
    with prepared:
        assert {(row["round"], row["query"]) for row in prepared.facts.setup} == {(0, "setup")}
        assert prepared.standing.ready
        assert not prepared.run_round(prepared.queries(1), prepared.state).aborted


def test_a_set_up_that_fails_twice_ends_all_parties(monkeypatch):
    closed = []
    monkeypatch.setattr(InProcessSession, "close", lambda session: closed.append(session))
    exp = experiment(*WORDS, "aggregation=masked")
    with (
        pytest.raises(AggregationAbortedError, match="no message from silo1"),
        pytest.warns(RuntimeWarning, match="repeating the set-up: .*silo1"),
    ):
        prepare(replace(exp, engine=Faulty(InProcess(), (drop(sender="silo1"),))))
    assert len(closed) == 1


def test_test_records_are_at_home_where_all_their_owner_trains_on_is():
    def homes(silo, user, owner):
        n = len(user)
        allocation = Allocation(
            n_users=4,
            n_silos=2,
            user=np.array(user),
            silo=np.array(silo),
            trains=np.ones(n, dtype=bool),
        )
        owners = None if owner is None else np.array(owner)
        found = home_silos(
            Records(np.zeros((2, 1)), np.zeros(2), silo=np.array([1, 0]), user=owners), allocation
        )
        return None if found is None else found.tolist()

    assert homes([0, 1, 1], [0, 2, 2], [2, 0]) == [1, 0]
    assert homes([0, 1, 1], [0, 2, 2], [1, 2]) == [
        -1,
        1,
    ]  # whoever does not train is at home nowhere
    assert homes([0, 1, 0], [0, 2, 2], [2, 0]) is None
    assert homes([0, 1, 1], [0, 2, 2], None) == [1, 0]
