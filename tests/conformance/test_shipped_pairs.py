"""Shipped components, combined with each other and with a user's own networks: each pair trains,
or is refused in one line before data are read."""

import random
import shutil

import pytest
from shipped_pairs import all_noises, all_pairs, config_of, refusal

SAMPLED = 60
"""Pairs of the matrix in every test run, the same each time; nine in ten are refused or small."""


def failures(pairs, folder):
    """The pairs that neither train nor are refused early, and how many train."""
    failed, trained = [], 0
    for pair in pairs:
        try:
            trained += refusal(config_of(pair), folder / "run") is None
        except Exception as error:
            failed.append(f"{pair}: {error!r}"[:400])
        shutil.rmtree(folder / "run", ignore_errors=True)
    return failed, trained


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("place", range(2))
def test_a_sample_of_all_pairs(place, tmp_path):
    pairs = [pair for pair in all_pairs() if pair.model != "resnet18"]
    failed, trained = failures(random.Random(34).sample(pairs, SAMPLED)[place::2], tmp_path)
    assert not failed, "\n".join(failed)
    assert trained >= 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize(("pairs", "least"), [(all_pairs, 8_000), (all_noises, 100)])
def test_all_pairs_and_mechanisms(pairs, least, tmp_path):
    """Forty minutes on one core."""
    failed, trained = failures(pairs(), tmp_path)
    print(trained, "trained")
    assert not failed, "\n".join(failed)
    assert trained >= least
