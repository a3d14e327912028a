"""What local updates are given, and what they ask for: no author changes one for another silo."""

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.rounds.query import Broadcast
from fedpriv.training.description import Recipe, Training


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


def test_a_description_keeps_what_may_change():
    start, correction = np.zeros(2), np.zeros(2)
    training = Training(Recipe(1, None, 0.1), start, correction=correction)
    start[:] = correction[:] = 1.0
    assert not training.start.any()
    assert not training.correction.any()
    assert replace(training, pooled=True).start is training.start
