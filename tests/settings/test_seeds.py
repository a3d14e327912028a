import pytest

from fedpriv.errors import ConfigError
from fedpriv.settings.words import seeds, with_listed_seeds


@pytest.mark.parametrize(
    ("text", "found"),
    [("0..4", [0, 1, 2, 3, 4]), ("3..3", [3]), ("7", [7]), ("0, 5..6,2", [0, 5, 6, 2])],
)
def test_ranges_of_seeds(text, found):
    assert seeds("seed", text) == found


@pytest.mark.parametrize("text", ["4..0", "0..", "..3", "a..b", "0...4", "-1..2", "0..10000", ""])
def test_other_text_is_refused(text):
    with pytest.raises(ConfigError, match=r"seeds such as 0,1,2 or 0\.\.4"):
        seeds("seed", text)


def test_a_seed_is_named_once():
    with pytest.raises(ConfigError, match="each seed once"):
        seeds("seed", "0..3,2")


def test_only_seeds_are_listed():
    words = ["-m", "seed=0..2", "hydra.sweep.dir=../a..b", "algo.clip=0..4", "seed=1,2"]
    listed = ["-m", "seed=0,1,2", "hydra.sweep.dir=../a..b", "algo.clip=0..4", "seed=1,2"]
    assert with_listed_seeds(words) == listed
