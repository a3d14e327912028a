"""The contract that every mechanism keeps."""

import doctest

import fedpriv.mechanisms.base


def test_the_example_of_a_mechanism_runs():
    failed, attempted = doctest.testmod(fedpriv.mechanisms.base)
    assert attempted
    assert not failed
