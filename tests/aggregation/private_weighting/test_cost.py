import pytest

from fedpriv.aggregation.private_weighting.cost import Timings, predict
from fedpriv.crypto.paillier.keys import generate_key
from fedpriv.encoding.slot_layout import SlotLayout

TIMINGS = Timings(multiplication=8e-6, squaring=5e-6, full_multiplication=8e-6, half_power=4e-3)


def cost(
    users=100, dimension=4000, n_max=100, bits=3072, precision=24, workers=1, rounds=10, silos=3
):
    layout = SlotLayout(bits, n_max, precision, users=users, silos=silos, bound=1.0, noise=80.0)
    return predict(layout, users, dimension, timings=TIMINGS, workers=workers, rounds=rounds)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"users": 50}, {"users": 100}),
        ({"dimension": 100}, {"dimension": 1000}),
        ({"n_max": 20}, {"n_max": 100}),
        ({"precision": 16}, {"precision": 30}),
        ({"workers": 4}, {"workers": 1}),
    ],
)
def test_a_larger_round_costs_a_silo_more(less, more):
    assert cost(**less).silo < cost(**more).silo


def test_the_server_pays_for_users_columns_and_silos():
    assert cost().server < min(
        cost(users=200).server, cost(dimension=8000).server, cost(silos=30).server
    )


def test_bytes_are_those_of_the_ciphertexts():
    key = generate_key(512)
    layout = SlotLayout(512, 20, 20, users=7, silos=2, bound=1.0, noise=1.0)
    found = predict(layout, 7, 10 * layout.slots + 1, timings=TIMINGS)
    assert found.upload == len(key.public.to_bytes([key.encrypt(1)] * 11))
    assert found.download == len(key.public.to_bytes([key.encrypt(1)] * 7))
    assert cost(dimension=4000).upload == 223 * 768  # 18 slots
    assert "0.171 MB" in str(cost(dimension=4000))


def test_timings_are_positive_and_grow_with_the_key():
    short, long = Timings.measure(256), Timings.measure(2048)
    assert 0 < short.multiplication < long.multiplication
    assert 0 < short.squaring < long.squaring
    assert 0 < short.half_power < long.half_power
