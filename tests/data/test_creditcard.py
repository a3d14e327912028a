import numpy as np
import pytest
from refusals import refused
from small_data import CREDITCARD, write_creditcard, write_csv

from fedpriv.data.creditcard import CreditCard, split
from fedpriv.util.streams import Streams


def test_split_sizes_of_the_full_file():
    """Golden 42: 24,584 training rows (418 frauds and 24,166 genuine) and 42,722 test rows
    (Uldp-FL's script)."""
    labels = np.zeros(284_807, dtype=np.int64)
    labels[np.random.default_rng(0).choice(len(labels), 492, replace=False)] = 1
    train, test = split(labels, np.random.default_rng(1))
    assert (len(train), len(test)) == (24_584, 42_722)
    assert labels[train].sum() == 418
    assert labels[test].sum() == 492 - 418
    assert not np.intersect1d(train, test).size


@pytest.mark.parametrize(
    ("genuine", "kept"),
    [(2_773, 2_773 - 416), (28_000, 23_800), (29_000, 24_166), (60_000, 24_166)],
)
def test_a_subset_keeps_the_papers_mix_or_all_it_has(genuine, kept):
    labels = np.repeat([1, 0], [492, genuine])
    train, _ = split(labels, np.random.default_rng(0))
    assert labels[train].sum() == 418
    assert (labels[train] == 0).sum() == kept


def test_the_scaler_also_sees_the_rows_that_are_thinned_out(tmp_path):
    write_creditcard(tmp_path / "creditcard.csv", rows=4000, frauds=10)
    corpus = CreditCard(str(tmp_path)).load(Streams(0))
    frauds = int(corpus.train.y.sum())
    assert len(corpus.train) == frauds + frauds * 24_166 // 418 < 3400
    assert np.abs(corpus.train.x.mean(axis=0)).max() > 1e-4


def test_openml_and_flat_layout(tmp_path):
    """OpenML's CSV form quotes column names with double and classes with single quotes."""
    cells = write_creditcard(tmp_path / "kaggle" / "creditcard" / "creditcard.csv")
    quoted = [[f'"{name}"' for name in CREDITCARD], *([*row[:-1], f"'{row[-1]}'"] for row in cells)]
    write_csv(tmp_path / "openml" / "creditcard.csv", quoted)
    ours, theirs = (
        CreditCard(str(tmp_path / home)).load(Streams(0)) for home in ("kaggle", "openml")
    )
    np.testing.assert_array_equal(ours.train.x, theirs.train.x)
    np.testing.assert_array_equal(ours.test.y, theirs.test.y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: rows[0].__setitem__(30, "Klass"),
            "line 1: wrong columns: missing Class; unexpected Klass",
        ),
        (lambda rows: rows[5].__setitem__(30, "2"), "line 6, column Class: 2; allowed: 0 or 1"),
        (lambda rows: rows[7].__setitem__(3, ""), "line 8, column V3: a missing value"),
        (
            lambda rows: rows[7].__setitem__(3, "abc"),
            "line 8, column V3: abc is not a finite number",
        ),
        (lambda rows: rows[-1].__delitem__(slice(20, None)), "line 601, column V20"),
        (lambda rows: rows.__delitem__(slice(1, None)), "no records"),
        (lambda rows: rows.__setitem__(slice(None), []), "creditcard.csv"),
        (
            lambda rows: [row.__setitem__(30, "0") for row in rows[1:]],
            "two genuine and two fraudulent rows",
        ),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, change, message):
    cells = write_creditcard(tmp_path / "creditcard.csv")
    rows = [list(CREDITCARD), *cells]
    change(rows)
    write_csv(tmp_path / "creditcard.csv", rows)
    path = tmp_path / "creditcard.csv"
    refused(lambda: CreditCard(str(tmp_path)).load(Streams(0)), path, message)
