"""No bit of a user's result depends on other users, with seeded and with system randomness."""

import numpy as np
import pytest
import torch
from one_by_one import PROBLEMS, ROUND, cnn, mlp, silo
from torch import nn

from fedpriv.data.silo import SiloData
from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training import select, users
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.optimizers import Adam, Sgd
from fedpriv.training.vectors import flatten
from fedpriv.util.streams import Streams

COUNTS = [5, 1, 9, 16, 17, 3, 3, 40, 8]


class SystemStreams(Streams):
    """Streams of the system that can be repeated."""

    def __init__(self):
        super().__init__(3, system=True)

    def unit_keys(self, *names):
        return Streams(3).unit_keys(*names)


def without(data, place):
    """The silo's records without those of one user."""
    rows = np.delete(np.arange(len(data.x)), data.rows(place))
    counts = np.delete(data.counts, place)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return SiloData(data.x[rows], data.y[rows], np.delete(data.users, place), starts)


def changes(model, data, task, recipe, **how):
    """Each chosen user's change of the parameters, by the user."""
    training = Training(recipe, flatten(model).double().numpy())
    work = users.silo_training(
        training,
        model=model,
        data=data,
        task=task,
        streams=how.get("streams") or SystemStreams(),
        round=ROUND,
        party="silo0",
        execution=Execution(how.get("trainer", "auto")),
    )
    return {
        int(data.users[place]): delta.numpy()
        for block in work.run()
        for place, delta in zip(np.searchsorted(data.users, block.units), block.vectors)
    }


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("recipe", [Recipe(20, 8, 0.1), Recipe(20, None, 0.1)], ids=str)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_others_keep_every_bit(name, recipe, compiler, monkeypatch):
    """One user after another is absent; full batches and many epochs amplify what rounding does."""
    if not compiler:
        monkeypatch.setattr(select, "compiled", lambda problem: Unmapped("no compiler"))
    torch.manual_seed(1)
    build, shape, task = PROBLEMS[name]
    model = build()
    data = silo(COUNTS, shape, task)
    whole = changes(model, data, task, recipe)
    for absent in (7, 1):  # the longest, the shortest
        rest = changes(model, without(data, absent), task, recipe)
        assert rest.keys() == whole.keys() - {int(data.users[absent])}
        assert all(np.array_equal(rest[user], whole[user]) for user in rest)


class OwnWithSoftsign(nn.Module):
    """Outside the table of layers, and small enough for a stack."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.last(nn.functional.softsign(self.first(x)))


NETWORKS = PROBLEMS | {"own": (OwnWithSoftsign, (6,), Classification())}


@pytest.mark.parametrize("trainer", ["auto", "no compiler", "batched", "sequential"])
@pytest.mark.parametrize("recipe", [Recipe(20, 8, 0.1), Recipe(20, None, 0.1)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_seeded_runs_keep_every_bit_too(name, recipe, trainer, monkeypatch):
    if trainer == "no compiler":
        monkeypatch.setattr(select, "compiled", lambda problem: Unmapped("no compiler"))
        trainer = "auto"
    if (name, trainer) == ("own", "batched"):
        pytest.skip("refused")
    torch.manual_seed(1)
    build, shape, task = NETWORKS[name]
    model = build()
    data = silo(COUNTS, shape, task)
    own = {"trainer": trainer, "streams": Streams(3)}
    whole = changes(model, data, task, recipe, **own)
    for absent in (7, 1, 5):
        rest = changes(model, without(data, absent), task, recipe, **own)
        assert all(np.array_equal(rest[user], whole[user]) for user in rest)
        assert len(rest) == len(whole) - 1


@pytest.mark.parametrize("trainer", ["batched", "no compiler"])
@pytest.mark.parametrize("seed", range(8))
def test_users_keep_every_bit_in_any_seat_and_company(seed, trainer, monkeypatch):
    """Enough users for several stacks; a tenth stays, in other seats, at other times, and without
    the user whose records are NaN."""
    if trainer == "no compiler":
        monkeypatch.setattr(select, "compiled", lambda problem: Unmapped("no compiler"))
        monkeypatch.setattr(select, "compile_layers", lambda *args: None)
        trainer = "auto"
    rng = np.random.default_rng(seed)
    build, shape, task = [*NETWORKS.values()][seed % len(NETWORKS)]
    torch.manual_seed(seed)
    model = build(p=0.5) if build is mlp and trainer == "batched" else build()
    if build is OwnWithSoftsign and trainer == "batched":
        model = cnn(p=0.3)
        shape = PROBLEMS["cnn"][1]
    counts = np.minimum(rng.geometric(rng.choice([0.1, 0.4]), 300), 60)
    data = silo(counts, shape, task)
    optimizer = [Sgd(), Sgd(momentum=0.5), Adam()][rng.integers(3)]
    recipe = Recipe(int(rng.integers(1, 4)), [None, 5, 8, 16][rng.integers(4)], 0.1, optimizer)
    own = {"trainer": trainer, "streams": Streams(3)}
    stays = rng.random(len(counts)) < 0.1
    data.x[data.rows(int(np.flatnonzero(~stays)[0]))] = np.nan
    whole = changes(model, data, task, recipe, **own)
    rest = data
    for place in np.flatnonzero(~stays)[::-1]:
        rest = without(rest, place)
    few = changes(model, rest, task, recipe, **own)
    assert few.keys() == {*data.users[stays].tolist()}
    assert all(np.isfinite(few[user]).all() for user in few)
    assert [user for user in few if not np.array_equal(few[user], whole[user])] == []


def test_the_batched_trainer_is_refused():
    build, shape, task = PROBLEMS["mlp"]
    data = silo(COUNTS, shape, task)
    recipe = Recipe(1, None, 0.1)
    with pytest.raises(ConfigError, match="trainer=batched: auto, compiled, device or sequential"):
        changes(build(), data, task, recipe, trainer="batched")
    seeded = changes(build(), data, task, recipe, trainer="batched", streams=Streams(3))
    assert len(seeded) == len(COUNTS)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nothing_of_a_user_stays_in_the_memory_of_the_next(wrong):
    """Where images do not fill whole vectors, the last vector of a smaller batch held numbers of a
    larger one: a user with NaN made the next user's change NaN."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Flatten(), nn.Linear(54, 3))
    data = silo([9, 3, 2, 1], (3, 11, 4), Classification())
    recipe = Recipe(1, 4, 0.05)
    healthy = changes(model, data, Classification(), recipe)
    data.x[data.rows(0)] = wrong
    sick = changes(model, data, Classification(), recipe)
    first, *others = data.users.tolist()
    assert not np.isfinite(sick[first]).all()
    assert all(np.array_equal(sick[user], healthy[user]) for user in others)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_user_has_its_own_number_of_threads(monkeypatch):
    """The largest user of a block once decided for all: two threads part a row of softplus in
    other places, where numbers that fill no vector round differently."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 4099), nn.Softplus(), nn.Linear(4099, 3))
    products = 4099 * 11
    monkeypatch.setattr("fedpriv.training.trainers.base.WORTH_THREADS", 15 * products)
    data = silo([10, 20], (8,), Classification())
    recipe = Recipe(3, None, 0.1)
    both = changes(model, data, Classification(), recipe)
    first, second = data.users.tolist()
    assert np.array_equal(
        changes(model, without(data, 1), Classification(), recipe)[first], both[first]
    )
    assert np.array_equal(
        changes(model, without(data, 0), Classification(), recipe)[second], both[second]
    )
    assert torch.get_num_threads() == 2


class OfHalves(nn.Module):
    """Computes in numbers of 16 bits: 32 users with odd numbers of them do not fill whole vectors,
    and the last users are rounded in another way, though seldom."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.last(nn.functional.gelu(self.first(x).half()).float())


@pytest.mark.parametrize("size", [None, 16])
def test_users_of_short_numbers_keep_every_bit(size):
    recipe = Recipe(20, size, 0.5)
    for seed in range(3):
        torch.manual_seed(seed)
        model = OfHalves()
        data = silo([25 if size else 9] * 33, (6,), Classification(), seed)
        whole = changes(model, data, Classification(), recipe, streams=Streams(3))
        for gone in (range(16), range(17, 33)):
            rest = data
            for place in reversed(gone):
                rest = without(rest, place)
            few = changes(model, rest, Classification(), recipe, streams=Streams(3))
            assert [user for user in few if not np.array_equal(few[user], whole[user])] == []
