"""LEAF's layout: which users and records of it are read, and what is refused in one line."""

import json

import numpy as np
import pytest
from refusals import refused
from small_data import write_femnist, write_leaf

from fedpriv.data.femnist import Femnist
from fedpriv.data.shakespeare import CHARACTERS, Shakespeare
from fedpriv.errors import DataError
from fedpriv.util.streams import Streams


@pytest.fixture
def root(tmp_path):
    write_femnist(tmp_path / "femnist" / "data", writers=3)
    return tmp_path


def test_digits_alone_by_writer(root):
    corpus = Femnist(str(root)).load(Streams(0))
    assert np.bincount(corpus.train.user).tolist() == [20] * 3
    assert np.bincount(corpus.test.user).tolist() == [10] * 3
    raw = json.loads((root / "femnist/data/train/all_data_niid.json").read_text())["user_data"][
        "f01"
    ]
    digits = [(x, y) for x, y in zip(raw["x"], raw["y"]) if y < 10]
    own = corpus.train.user == 1
    np.testing.assert_allclose(
        corpus.train.x[own].reshape(20, -1), [x for x, _ in digits], rtol=1e-6
    )
    assert corpus.train.y[own].tolist() == [y for _, y in digits]


def test_writers_with_fewer_than_ten_digits_are_left_out_training_and_test_counted_together(root):
    folder = root / "femnist" / "data"
    for part, n in (("train", 9), ("test", 1)):
        write_leaf(folder, part, {"nine and one": ([[0.5] * 784] * n, [3] * n)}, name="more.json")
    assert len(np.unique(Femnist(str(root)).load(Streams(0)).train.user)) == 4
    write_leaf(folder, "test", {"nine and one": ([[0.5] * 784], [40])}, name="more.json")
    assert len(np.unique(Femnist(str(root)).load(Streams(0)).train.user)) == 3


def test_characters_of_leaf_are_used_as_they_are(tmp_path):
    folder = tmp_path / "shakespeare" / "data"
    lines = ["".join(CHARACTERS[(start + i) % 87] for i in range(80)) for start in (0, 1, 2)]
    write_leaf(folder, "train", {"A_ROLE": (lines[:2], ["a", "}"]), "B_ROLE": (lines[:1], ["\n"])})
    write_leaf(folder, "test", {"A_ROLE": (lines[2:], ["z"])})
    corpus = Shakespeare(str(tmp_path)).load(Streams(0))
    assert "".join(CHARACTERS[number] for number in corpus.train.x[1]) == lines[1]
    assert [CHARACTERS[number] for number in corpus.train.y] == ["a", "}", "\n"]
    assert corpus.train.user.tolist() == [0, 0, 1]
    assert corpus.test.user.tolist() == [0]


def damaged(folder, part, change):
    path = next((folder / part).glob("*.json"))
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: content.pop("user_data"), "not a LEAF file: 'user_data'"),
        (
            lambda content: content["user_data"]["f00"]["y"].pop(),
            "users and num_samples do not describe user_data",
        ),
        (
            lambda content: content["user_data"]["f00"]["x"][0].pop(),
            "user f00: expected 28x28 images",
        ),
        (
            lambda content: content["user_data"]["f00"]["y"].__setitem__(0, "3"),
            "user f00: expected",
        ),
    ],
)
def test_damaged_files_are_refused_in_one_line(root, change, why):
    damaged(root / "femnist" / "data", "train", change)
    refused(lambda: Femnist(str(root)).load(Streams(0)), why, root)


@pytest.mark.parametrize("pixel", [None, 10, -0.1, True, float("nan"), "0.5"])
def test_a_pixel_outside_its_range_is_one_line(root, pixel):
    def change(content):
        content["user_data"]["f01"]["x"][2][5] = pixel

    damaged(root / "femnist" / "data", "train", change)
    refused(lambda: Femnist(str(root)).load(Streams(0)), "user f01: expected pixels from 0 to 1")


def test_users_without_test_records_train(root):
    """LEAF leaves users out of the test files that have too few records."""

    def leave_out(content):
        place = content["users"].index("f01")
        for key in ("users", "num_samples"):
            del content[key][place]
        del content["user_data"]["f01"]

    damaged(root / "femnist" / "data", "test", leave_out)
    corpus = Femnist(str(root)).load(Streams(0))
    assert set(corpus.train.user) == {0, 1, 2}
    assert set(corpus.test.user) == {0, 2}


def test_other_damage_is_refused_too(root, tmp_path):
    folder = root / "femnist" / "data"
    write_leaf(folder, "train", {"f00": ([], [])}, name="twice.json")
    refused(lambda: Femnist(str(root)).load(Streams(0)), "user f00: is in an earlier file too")
    (folder / "train" / "twice.json").write_text("{")
    refused(lambda: Femnist(str(root)).load(Streams(0)), "twice.json: not a LEAF file")
    texts = root / "shakespeare" / "data"
    for text, message in (
        ("x" * 79, "user A: expected texts of 80 characters"),
        ("é" * 80, "character 'é' is not one of the 87"),
    ):
        for part in ("train", "test"):
            write_leaf(texts, part, {"A": ([text], ["y"])})
        refused(lambda: Shakespeare(str(root)).load(Streams(0)), message)


def test_without_files_it_says_where_they_come_from(tmp_path):
    with pytest.raises(DataError, match="create the files with LEAF's preprocessing"):
        Femnist(str(tmp_path)).load(Streams(0))
