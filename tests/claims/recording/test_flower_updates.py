"""Flower's clipping and noise, in the layouts of two versions, made here with Flower's signatures.

`test_real_flower.py` does the same on an installed Flower.
"""

import contextlib
import json
import sys
import types

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, rdp

import fedpriv
from fedpriv.claims.recording.flower_mod import STATE, BudgetMod
from fedpriv.claims.recording.flower_updates import FlowerStep
from fedpriv.claims.recording.recording import BudgetSpentError


def compute_clip_model_update(param1, param2, clipping_norm):
    change = [new - old for new, old in zip(param1, param2)]
    norm = np.sqrt(sum((part**2).sum() for part in change))
    for place, (old, part) in enumerate(zip(param2, change)):
        param1[place] = old + part * min(1, clipping_norm / norm)


def compute_adaptive_clip_model_update(param1, param2, clipping_norm):
    compute_clip_model_update(param1, param2, clipping_norm)
    return True


def add_gaussian_noise_inplace(input_arrays, std_dev):
    generator = np.random.default_rng(3)
    for array in input_arrays:
        array += generator.normal(0, std_dev, array.shape)


def aggregate_arrayrecords(records, weighting_metric_name):
    weights = [record.metric_records["metrics"][weighting_metric_name] for record in records]
    return [np.average([record.arrays[0] for record in records], axis=0, weights=weights)]


def aggregate(results):
    return [
        np.average([arrays[0] for arrays, _ in results], axis=0, weights=[n for _, n in results])
    ]


class Reply(types.SimpleNamespace):
    """A reply of a client with one array."""

    def __init__(self, count, value=3.0):
        arrays = [np.full(4, value)]
        super().__init__(arrays=arrays, metric_records={"metrics": {"num-examples": count}})


MODULES = (
    *("flwr", "flwr.app", "flwr.clientapp", "flwr.clientapp.mod", "flwr.clientapp.mod.localdp_mod"),
    *("flwr.common", "flwr.common.differential_privacy", "flwr.server", "flwr.server.strategy"),
    *("flwr.server.strategy.fedavg", "flwr.serverapp", "flwr.serverapp.strategy"),
    *("flwr.serverapp.strategy.fedavg", "flwr.serverapp.strategy.dp_fixed_clipping"),
)


@pytest.fixture
def flower(monkeypatch):
    """Puts functions into a module of Flower, and returns it."""
    for name in MODULES:
        module = types.ModuleType(name)
        module.__path__ = []
        module.__spec__ = types.SimpleNamespace(name=name, loader=None)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["flwr.app"].ConfigRecord = dict

    def add(name, *functions):
        vars(sys.modules[name]).update({function.__name__: function for function in functions})
        return sys.modules[name]

    return add


@pytest.fixture
def strategy(flower):
    """Two modules of a strategy: one averages, the other clips and noises."""
    average = flower("flwr.serverapp.strategy.fedavg", aggregate_arrayrecords)
    noised = flower(
        "flwr.serverapp.strategy.dp_fixed_clipping",
        compute_clip_model_update,
        compute_adaptive_clip_model_update,
        add_gaussian_noise_inplace,
    )

    def a_round(counts, adapt=False, skip_average=False):
        replies = [Reply(count) for count in counts]
        clip = "compute_adaptive_clip_model_update" if adapt else "compute_clip_model_update"
        for reply in replies:
            getattr(noised, clip)(param1=reply.arrays, param2=[np.zeros(4)], clipping_norm=2.0)
        result = replies[0].arrays
        if not skip_average:
            result = average.aggregate_arrayrecords(replies, "num-examples")
        noised.add_gaussian_noise_inplace(result, 0.5)
        return result[0]

    return a_round


def test_a_round_of_a_strategy(strategy):
    with fedpriv.record() as recording:
        strategy([10, 10, 20])
        strategy([10, 10, 20])
    assert dict(recording.steps) == {FlowerStep(True, 2.0, 1, 0.5, 0.5): 2}
    [release] = recording.as_data()["releases"]
    assert (release["times"], release["clip"], release["weight"]) == (2, 2.0, 0.5)
    assert (release["noise"]["added_by"], release["scope"]) == ("server", "all")
    assert release["weights"] == release["sampling"]["rule"] == "unknown"
    assert [claim["unit"] for claim in recording.as_data()["claims"]] == ["client"]


def test_recording_changes_no_number(strategy):
    plain = strategy([1, 2])
    with fedpriv.record() as recording:
        assert np.array_equal(plain, strategy([1, 2]))
    strategy([1, 2])
    assert recording.steps.total() == 1


def test_an_unseen_average_or_a_bound_that_follows_the_data_is_unknown(strategy):
    with fedpriv.record() as recording:
        strategy([1, 1], adapt=True)
        strategy([1, 1], skip_average=True)
    adaptive, unaveraged = recording.as_data()["releases"]
    assert adaptive["clip"] == "unknown"
    assert unaveraged["weight"] == unaveraged["tensors"] == "unknown"
    for step in recording.steps:
        assert type(step.event()).__name__ == "NonPrivateDpEvent"


def test_a_budget_counts_replaced_clients(strategy):
    """Noise 0.5 on a mean in which one of two clients moves by 2 x 2 x 1/2."""
    said = pytest.raises(BudgetSpentError)
    with said, fedpriv.record(budget=40.0, delta=1e-5) as recording:
        for _ in range(100):
            strategy([1, 1])
    accountant = rdp.RdpAccountant()
    rounds = recording.steps.total()
    accountant.compose(GaussianDpEvent(0.25), rounds)
    assert rounds > 0
    assert accountant.get_epsilon(1e-5) <= 40.1
    assert accountant.compose(GaussianDpEvent(0.25)).get_epsilon(1e-5) > 40.0


def test_strategies_of_before_messages(flower):
    average = flower("flwr.server.strategy.fedavg", aggregate)
    noised = flower(
        "flwr.common.differential_privacy", compute_clip_model_update, add_gaussian_noise_inplace
    )
    with fedpriv.record() as recording:
        updates = [[np.ones(4)], [np.ones(4)]]
        for update in updates:
            noised.compute_clip_model_update(update, [np.zeros(4)], 1.5)
        mean = average.aggregate([(updates[0], 30), (updates[1], 10)])
        noised.add_gaussian_noise_inplace(mean, 0.2)
    assert list(recording.steps) == [FlowerStep(True, 1.5, 1, 0.75, 0.2)]


@pytest.fixture
def local(flower):
    """The mod that clips and noises one client's update, as `LocalDpMod`."""
    module = flower(
        "flwr.clientapp.mod.localdp_mod", compute_clip_model_update, add_gaussian_noise_inplace
    )

    def mod(message, context):
        module.compute_clip_model_update(message.arrays, [np.zeros(4)], 1.0)
        module.add_gaussian_noise_inplace(message.arrays, 4.0)
        return message

    return mod


def message(kind="train", error=False):
    arrays = [np.ones(4)]
    metadata = types.SimpleNamespace(message_type=kind)
    return types.SimpleNamespace(arrays=arrays, metadata=metadata, has_error=lambda: error)


def test_a_mod_stops_a_client_over_its_messages(local):
    """What a message spends is kept in the context, and the mod is made anew for each."""
    context = types.SimpleNamespace(state={})
    BudgetMod(3.0, 1e-5)(message(), context, local)
    for _ in range(20):
        with contextlib.suppress(BudgetSpentError):
            BudgetMod(3.0, 1e-5)(message(), context, local)
    [(_, _, replies)] = json.loads(context.state[STATE]["steps"])
    accountant = rdp.RdpAccountant()
    accountant.compose(GaussianDpEvent(2.0), replies)  # 4 beside twice the bound 1
    assert accountant.get_epsilon(1e-5) <= 3.01
    assert accountant.compose(GaussianDpEvent(2.0)).get_epsilon(1e-5) > 3.0
    with pytest.raises(BudgetSpentError, match=f"epsilon 3 .* after {replies} steps"):
        BudgetMod(3.0, 1e-5)(message(), context, local)
    other = types.SimpleNamespace(state={})
    BudgetMod(3.0, 1e-5)(message(), other, local)
    assert STATE in other.state


def test_a_reply_without_noise_is_refused_but_errors_and_evaluations_pass(local):
    context = types.SimpleNamespace(state={})
    mod = BudgetMod(3.0, 1e-5)
    with pytest.raises(BudgetSpentError, match="without recorded noise"):
        mod(message(), context, lambda sent, _: sent)
    failed = mod(message(), context, lambda *_: message(error=True))
    assert failed.has_error()
    sent = message("evaluate")
    assert mod(sent, context, lambda given, _: given) is sent


def test_steps_before_an_error_stay_spent(local):
    context = types.SimpleNamespace(state={})

    def dies(sent, given):
        local(sent, given)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        BudgetMod(3.0, 1e-5)(message(), context, dies)
    assert '"deviation": 4.0' in context.state[STATE]["steps"]
