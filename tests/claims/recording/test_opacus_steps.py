"""The recorder on real Opacus: what it counts, and that it changes nothing."""

import math

import dp_accounting as dp
import pytest
import torch
from claim_examples import EVERYBODY, changed
from opacus import PrivacyEngine
from opacus.optimizers.ddp_perlayeroptimizer import DistributedPerLayerOptimizer
from opacus.utils.batch_memory_manager import BatchMemoryManager

import fedpriv
from fedpriv.claims.reading import parse, read
from fedpriv.claims.recording.recording import BudgetSpentError
from fedpriv.claims.verdicts import judge
from fedpriv.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore")


LAYERS = {"max_grad_norm": [3.0, 4.0], "clipping": "per_layer"}


def private(**settings):
    """A model, an optimizer, a loader of Opacus, and the loader that it was made from."""
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 1)
    data = torch.utils.data.TensorDataset(torch.randn(40, 5), torch.randn(40, 1))
    plain = torch.utils.data.DataLoader(data, batch_size=8)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=plain,
        **{"noise_multiplier": 1.5, "max_grad_norm": 1.2} | settings,
    )
    return *made, plain


def train(epochs=2, batches_a_step=1, **settings):
    """Weights after a short private training."""
    model, optimizer, loader, _ = private(**settings)
    for _ in range(epochs):
        for number, (x, y) in enumerate(loader, start=1):
            (model(x) - y).square().mean().backward()
            if number % batches_a_step == 0:
                optimizer.step()
                optimizer.zero_grad()
    weight, _ = model.parameters()
    return weight.detach().clone()


def recorded(**settings):
    with fedpriv.record() as recording:
        train(**settings)
    return recording.as_data()


UNKNOWN = {"rule": "unknown"}
RECORDED = [
    ({}, {"times": 10, "clip": 1.2, "scope": "unknown"}, {"deviation": pytest.approx(1.8)}, 0.2),
    (LAYERS, {"clip": pytest.approx(5.0)}, {"deviation": pytest.approx(7.5)}, 0.2),
    ({"poisson_sampling": False}, {"sampling": UNKNOWN}, {}, None),
    (
        {"batches_a_step": 2, "poisson_sampling": False},
        {"sampling": UNKNOWN, "clip": "unknown"},
        {},
        None,
    ),
]


@pytest.mark.parametrize(("settings", "expected", "noise", "rate"), RECORDED)
def test_steps_bounds_noise_and_rates_are_counted(settings, expected, noise, rate):
    """Bounds per layer count by their norm; other samples are not called Poisson."""
    [release] = recorded(**settings)["releases"]
    assert release | expected == release
    assert release["noise"] | noise | {"generator": "unknown"} == release["noise"]
    assert release["sampling"].get("rate") == rate


def test_recording_changes_no_bit():
    plain = train()
    with fedpriv.record():
        observed = train()
    assert torch.equal(plain, observed)
    assert torch.equal(plain, train())


def test_a_recorded_claim_is_the_one_written_by_hand(tmp_path):
    """After the questions that no hook can answer."""
    with fedpriv.record() as recording:
        train()
    recording.write(tmp_path / "claim.yaml")
    draft = read(tmp_path / "claim.yaml")
    assert {finding.certified.epsilon for finding in judge(draft)} == {math.inf}
    answered = changed(
        recording.as_data(),
        claims__0={
            "epsilon": 9.0,
            "delta": 1e-5,
            "unit": "record",
            "adjacency": "add/remove",
            "observer": "server",
        },
        complete=True,
        choices="none",
        population={"record": {"contributors": 1, "scopes": 1}},
        releases__0__scope="all",
        releases__0__seen=dict.fromkeys(EVERYBODY, "sum"),
        releases__0__noise__generator="independent",
        releases__0__sampling__hidden_from=EVERYBODY,
    )
    [found] = [finding for finding in judge(parse(answered)) if finding.verdict]
    accountant = dp.pld.PLDAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(1.5)), 10)
    assert found.certified.epsilon == pytest.approx(accountant.get_epsilon(1e-5), abs=1e-3)


def test_steps_after_the_recording_are_not_counted_and_one_at_a_time():
    with fedpriv.record() as recording:
        nested = fedpriv.record()
        with pytest.raises(ConfigError, match="one recording"):
            nested.__enter__()
    train()
    assert not recording.steps


def spent(steps):
    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(1.5)), steps)
    return accountant.get_epsilon(1e-5)


def test_a_new_engine_does_not_forget_what_is_spent():
    """As in a client that makes one for each message."""
    said = pytest.raises(BudgetSpentError, match="epsilon 4 at delta 1e-05 is spent after")
    with said, fedpriv.record(budget=4.0, delta=1e-5) as recording:
        for _ in range(100):
            train(epochs=1)
    times = [release["times"] for release in recording.as_data()["releases"]]
    assert times[:2] == [5, 5]
    steps = sum(times)
    assert spent(steps) <= 4.01
    assert spent(steps + 1) > 4.0


@pytest.mark.parametrize("settings", [{"poisson_sampling": False}, {"noise_multiplier": 0.0}])
def test_what_is_not_proved_spends_any_budget_at_once(settings):
    said = pytest.raises(BudgetSpentError, match="after 0 steps")
    with said, fedpriv.record(budget=1e3, delta=1e-5):
        train(**settings)


@pytest.mark.parametrize("wrong", [{"budget": 0.0, "delta": 1e-5}, {"budget": 1.0}])
def test_a_wrong_budget_is_refused(wrong):
    with pytest.raises(ConfigError), fedpriv.record(**wrong):
        pass


def step(model, optimizer, x, y):
    (model(x) - y).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def in_twos(loader, optimizer):
    """Each sample in parts of at most two records."""
    return BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer)


@pytest.mark.parametrize(("shrink", "clip"), [(1.0, 1.2), (0.5, "unknown")])
def test_parts_of_one_sample_are_one_step(shrink, clip):
    """If the bound changes between them, nothing is proved."""
    with fedpriv.record() as recording:
        model, optimizer, loader, _ = private()
        with in_twos(loader, optimizer) as parts:
            for x, y in parts:
                step(model, optimizer, x, y)
                optimizer.max_grad_norm *= shrink
    release = recording.as_data()["releases"][0]
    assert release["clip"] == clip
    assert shrink < 1 or (release["times"], release["sampling"]["rate"]) == (5, 0.2)


def test_samples_joined_by_skipped_steps_are_not_one_poisson_sample():
    """Opacus itself then counts one batch."""
    with fedpriv.record() as recording:
        model, optimizer, loader, _ = private()
        for number, (x, y) in enumerate(loader, start=1):
            optimizer.signal_skip_step(number < 5)
            step(model, optimizer, x, y)
    [release] = recording.as_data()["releases"]
    assert (release["times"], release["clip"]) == (1, "unknown")
    assert release["sampling"] == {"rule": "unknown"}


def test_batches_that_the_loader_did_not_draw_for_the_step_are_not_poisson():
    with fedpriv.record() as recording:
        model, optimizer, loader, plain = private()
        for x, y in plain:
            step(model, optimizer, x, y)
    [other] = recording.as_data()["releases"]
    assert other["sampling"] == {"rule": "unknown"}
    with fedpriv.record() as recording:
        model, optimizer, loader, _ = private()
        for x, y in list(loader) * 2:
            step(model, optimizer, x, y)
    drawn, again = recording.as_data()["releases"]
    assert (drawn["times"], drawn["sampling"]["rate"]) == (5, 0.2)
    assert (again["times"], again["sampling"]) == (5, {"rule": "unknown"})


def test_an_optimizer_of_before_spends_any_budget():
    """As one that a fixture makes, or a client keeps from message to message."""
    with fedpriv.record():
        before = private()
    for model, optimizer, loader, _ in (before, private()):
        x, y = next(iter(loader))
        said = pytest.raises(BudgetSpentError, match="after 0 steps")
        with said, fedpriv.record(budget=1e3, delta=1e-5):
            step(model, optimizer, x, y)


@pytest.mark.parametrize("settings", [LAYERS, {"grad_sample_mode": "ghost"}])
def test_noise_scaled_by_another_bound_than_the_clip_is_not_proved(settings):
    """Both clip to a bound that is not the optimizer's own, which scales the noise."""
    with fedpriv.record() as recording:
        made = private(criterion=torch.nn.MSELoss(), **settings)
        model, optimizer, loader = made[0], made[1], made[-2]
        loss = made[2] if len(made) == 5 else torch.nn.MSELoss()
        for number, (x, y) in enumerate(loader):
            optimizer.max_grad_norm *= 0.001 if number == 2 else 1.0
            loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    proved, shrunk = recording.as_data()["releases"]
    assert (proved["times"], shrunk["times"]) == (2, 3)
    assert proved["clip"] != "unknown"
    assert shrunk["clip"] == "unknown"


def test_noise_of_a_backward_pass_is_counted(monkeypatch):
    """Opacus's distributed optimizer with a bound for each layer adds it there."""
    for name in ("get_rank", "get_world_size"):
        monkeypatch.setattr(torch.distributed, name, lambda: 0)
    model = torch.nn.Linear(2, 1)
    with fedpriv.record(budget=1e3, delta=1e-5):
        optimizer = DistributedPerLayerOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=[1.0, 1.0],
            expected_batch_size=1,
        )
        for parameter in optimizer.params:
            parameter.grad_sample = torch.zeros(1, *parameter.shape)
        with pytest.raises(BudgetSpentError):
            optimizer.step()
