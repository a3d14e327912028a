"""Local updates of authors who share, reuse or overwrite what they are given: each silo still
computes its own contribution, in whatever order the engine asks for it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request, Target
from fedpriv.rounds.contributors import Users
from fedpriv.rounds.query import Broadcast
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.training.description import Recipe, Training

SCRATCH: dict[int, np.ndarray] = {}


def far(silo, down):
    return down["params"] + 0.05 * silo.index


def in_a_scratch(silo, down):
    """One array for all silos."""
    own = SCRATCH.setdefault(len(down["params"]), np.empty_like(down["params"]))
    own[:] = far(silo, down)
    return own


def starting(start):
    return lambda silo, query, down: silo.train(
        query, Training(query.asked.recipe, start(silo, down))
    )


def writing(silo, query, down):
    down["params"] += 0.01
    return silo.train_users(query, down["params"])


UPDATES = {own.__name__: starting(own) for own in (far, in_a_scratch)}
UPDATES["writing"] = writing


@dataclass(frozen=True)
class Careless(Algorithm):
    """A method whose local update is one of `UPDATES`."""

    clip: float = 1.0
    noise_multiplier: float = 0.1
    update: str = "far"

    label = "careless"
    contributors = Users()

    def targets(self, federation):
        return (Target("user", ADD_REMOVE),)

    def requests(self, round, plan):
        return (Request(SumNoise(), recipe=Recipe(2, 3, 0.2)),)

    def local_update(self, silo, query, down):
        return UPDATES[self.update](silo, query, down)

    def global_update(self, state, query, total, plan):
        return state.with_params(state.params + total.vector)


def moved(update, *words):
    """The parameters after a round of five silos of one user each, and the round's statistics."""
    SCRATCH.clear()
    words = "data=artificial", "data.size=50", "allocator=equal", "preset.n_silos=5", *words
    exp = experiment(*words, algo=Careless(update=update))
    with prepare(exp) as run:
        result = run.run_round(run.queries(1), run.state)
    assert result.aborted is None
    return result.state.params, result.stats


@pytest.fixture
def apart(monkeypatch):
    """Has each silo compute its own contribution from now on."""
    return lambda: monkeypatch.setattr("fedpriv.runtime.silo.one_row", lambda *a, **k: None)


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_a_start_that_is_overwritten_for_the_next_silo_is_kept(aggregation, apart):
    word = f"aggregation={aggregation}"
    expected, _ = moved("far", word)
    np.testing.assert_array_equal(moved("in_a_scratch", word)[0], expected)
    apart()
    np.testing.assert_array_equal(moved("in_a_scratch", word)[0], expected)


def test_a_silo_cannot_write_into_the_model_of_all_others():
    with pytest.raises(ValueError, match="read-only"):
        moved("writing")


def test_what_a_broadcast_holds_is_read_only():
    sampled, params = np.ones(2, dtype=bool), np.zeros(3)
    sent = Broadcast({"params": params}, sampled)
    for array in (sent.vectors["params"], sent.sampled):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    params[0] = 1.0  # its owner still may


@pytest.mark.parametrize(
    "users",
    [np.array([False]), np.array([True, False]), [-1], [0, 0], np.array([0.7]), np.array([[0]])],
)
def test_users_are_positions(users):
    """A mask would name the users 0 and 1, and compiled code would read before its arrays."""
    with pytest.raises(ValueError, match=r"Training\.users"):
        Training(Recipe(1, None, 0.1), np.zeros(2), users)


def test_no_users_are_users():
    assert Training(Recipe(1, None, 0.1), np.zeros(2), []).users.dtype == np.int64


def test_a_description_keeps_what_may_change():
    start, correction = np.zeros(2), np.zeros(2)
    training = Training(Recipe(1, None, 0.1), start, correction=correction)
    start[:] = correction[:] = 1.0
    assert not training.start.any()
    assert not training.correction.any()
    assert replace(training, pooled=True).start is training.start
