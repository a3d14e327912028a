import numpy as np

from fedpriv.rounds.state import State


def test_a_checkpoint_holds_the_whole_state():
    state = State(np.arange(3.0), {"momentum": np.ones(3), "anchor": np.zeros(2)})
    arrays = state.arrays() | {"silo/silo0/model": np.ones(1)}
    back = State.from_arrays(arrays)
    np.testing.assert_array_equal(back.params, state.params)
    assert {name: value.tolist() for name, value in back.slots.items()} == {
        "momentum": [1, 1, 1],
        "anchor": [0, 0],
    }


def test_a_new_state_keeps_the_other_slots():
    old = State(np.zeros(2), {"momentum": np.ones(2), "anchor": np.ones(1)})
    new = old.with_params(np.ones(2), momentum=np.zeros(2))
    assert new.slots["anchor"] is old.slots["anchor"]
    assert old.slots["momentum"].tolist() == [1, 1]
    assert new.params.tolist() == [1, 1]
