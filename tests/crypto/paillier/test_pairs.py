import math

from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.crypto.paillier.pairs import (
    Operations,
    doublings,
    join,
    power,
    power_work,
    split,
    subset_products,
    times,
)

N = mpz(10**40 + 1)
numbers = st.integers(0, int(N) ** 2 - 1).map(mpz)


@given(numbers, numbers)
def test_products_are_those_modulo_the_square(a, b):
    assert join(split(a, N), N) == a
    assert join(times(split(a, N), split(b, N), N), N) == a * b % N**2


@given(numbers, st.integers(0, 2**80), st.integers(0, 9))
def test_powers_are_those_modulo_the_square(a, exponent, count):
    assert join(power(split(a, N), exponent, N), N) == pow(int(a), exponent, int(N) ** 2)
    assert join(doublings(split(a, N), count, N), N) == pow(int(a), 2**count, int(N) ** 2)


def test_subset_products_are_indexed_by_who_takes_part():
    products = [
        join(pair, N) for pair in subset_products([split(mpz(p), N) for p in (2, 3, 5, 7)], N)
    ]
    assert products == [
        math.prod(p for bit, p in enumerate((2, 3, 5, 7)) if k >> bit & 1) for k in range(16)
    ]


def test_work_adds_up_and_a_power_of_windows_costs_what_it_says():
    assert Operations(1, 2) + Operations(3, 4) * 2 == Operations(7, 10)
    assert Operations(10, 5).size == 14.0
    # 63 products and 15 squarings for the table, then 512 windows of six squarings and one product.
    assert power_work(3072) == Operations(63 + 512, 15 + 3072)
