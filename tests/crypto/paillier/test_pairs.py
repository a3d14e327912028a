import math

from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.crypto.paillier.pairs import (
    doublings,
    join,
    power,
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
