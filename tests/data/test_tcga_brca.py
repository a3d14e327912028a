import csv
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from small_data import write_tcga

from fedpriv.data.tcga_brca import TcgaBrca
from fedpriv.errors import DataError
from fedpriv.util.streams import Streams


@pytest.mark.parametrize("which", ["small", "real"])
def test_every_patient_is_where_the_official_split_says(which, request):
    """Independent reading with the csv module, patient by patient."""
    root = Path(request.getfixturevalue(f"{which}_root")) / "tcga_brca"
    corpus = TcgaBrca(str(root)).load(Streams(0))
    with (root / "train_test_split.csv").open() as file:
        place = {row["pid"]: row["fold2"] for row in csv.DictReader(file)}
    train, test = [], []
    with (root / "brca.csv").open() as file:
        for pid, *values in list(csv.reader(file))[1:]:
            row = np.array([float(value) for value in values], np.float32)
            fold, _, region = place.get(pid, "none").partition("_")
            if fold == "train":
                train.append([*row, float(region)])
            elif fold == "test":
                test.append(row)
    ours = np.column_stack([corpus.train.x, corpus.train.y, corpus.train.silo])
    np.testing.assert_array_equal(ours, np.array(train, np.float32))
    np.testing.assert_array_equal(np.column_stack([corpus.test.x, corpus.test.y]), np.array(test))


def test_real_sizes(real_root):
    """Training sizes of FLamby and of the Uldp-FL experiments: 248, 156, 164, 129, 129, 40."""
    corpus = TcgaBrca(real_root).load(Streams(0))
    assert np.bincount(corpus.train.silo).tolist() == [248, 156, 164, 129, 129, 40]
    assert len(corpus.test) == 222


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "brca.csv",
            ",E,T",
            ",E,time",
            "brca.csv: line 1: wrong columns: not pid, 39 covariates, E, T",
        ),
        ("brca.csv", ",E,T", ",T,E", "brca.csv: line 1: wrong columns"),
        ("brca.csv", "covariate 3,", "", "brca.csv: not a readable table"),
        (
            "train_test_split.csv",
            "train_2",
            "train_6",
            "column fold2: train_6; allowed: train_0 to test_5",
        ),
        ("train_test_split.csv", "train_2", "", "column fold2"),
        (
            "train_test_split.csv",
            "TCGA-0003",
            "TCGA-0004",
            "column pid: TCGA-0004; allowed: each patient once",
        ),
        (
            "train_test_split.csv",
            "TCGA-0003",
            "TCGA-xxxx",
            "brca.csv: patient TCGA-xxxx of train_test_split.csv",
        ),
        (
            "train_test_split.csv",
            "fold2",
            "region",
            "wrong columns: missing fold2; unexpected region",
        ),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, file, old, new, message):
    write_tcga(tmp_path)
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1))
    refused(lambda: TcgaBrca(str(tmp_path)).load(Streams(0)), message)


def with_value(root, column, value):
    """The data with another value in line 10 of brca.csv."""
    write_tcga(root)
    rows = [line.split(",") for line in (root / "brca.csv").read_text().splitlines()]
    rows[9][column] = value
    (root / "brca.csv").write_text("\n".join(",".join(row) for row in rows))
    return TcgaBrca(str(root))


@pytest.mark.parametrize(
    ("column", "value", "message"), [(-2, "2", "0 or 1"), (-1, "-5", "zero or more days")]
)
def test_impossible_labels(tmp_path, column, value, message):
    with pytest.raises(DataError, match=f"line 10, column [ET]: .*; allowed: {message}"):
        with_value(tmp_path, column, value).load(Streams(0))


def test_a_patient_may_be_seen_for_less_than_a_day(tmp_path):
    corpus = with_value(tmp_path, -1, "0").load(Streams(0))
    assert 0.0 in [*corpus.train.y[:, 1], *corpus.test.y[:, 1]]
