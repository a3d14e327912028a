"""Attacks on lines of docs/trust, in other ways than the tests that the lines name.

Draws are new in every run; a failure shows its seed.
"""

import random
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "aggregation"), str(TESTS / "aggregation" / "secagg")]


@pytest.fixture
def chance():
    seed = random.randrange(2**32)
    print(f"random.Random({seed})")
    return random.Random(seed)


@pytest.fixture
def refused():
    """A function that says that some work ends with one of the errors, in one line."""

    def check(work, *errors):
        with pytest.raises(errors) as error:
            work()
        assert "\n" not in str(error.value)

    return check
