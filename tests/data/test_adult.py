import math
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from small_data import write_adult

from fedpriv.data.adult import CATEGORIES, FILES, Adult, read_answers
from fedpriv.data.random_allocators import Equal
from fedpriv.errors import DataError
from fedpriv.util.streams import Streams


@pytest.mark.parametrize("which", ["small", "real"])
@pytest.mark.parametrize("name", ["adult.data", "adult.test"])
def test_rows_are_those_that_pandas_reads(which, name, request):
    """Independent oracle: pandas' own parser; a one-hot block decodes to the answer in the file."""
    import pandas as pd

    path = Path(request.getfixturevalue(f"{which}_root")) / "adult" / name
    if not path.is_file():
        pytest.skip("needs adult")
    skipped = 1 if name == "adult.test" else 0
    frame = pd.read_csv(path, header=None, skiprows=skipped, skipinitialspace=True, na_filter=False)
    numbers, answers, y = read_answers(path)
    np.testing.assert_array_equal(numbers, frame.select_dtypes("number"))
    assert (y == frame[14].str.startswith(">50K")).all()
    words = frame.drop(columns=14).select_dtypes(exclude="number")
    start = 0
    for column, known in zip(words, CATEGORIES.values(), strict=True):
        block = answers[:, start : start + len(known.split())]
        start += block.shape[1]
        np.testing.assert_array_equal(block.sum(axis=1), 1)
        np.testing.assert_array_equal(np.array(known.split())[block.argmax(axis=1)], words[column])
    assert start == answers.shape[1] == 102


def test_what_does_not_fill_sixteen_devices_is_left_out(small_root):
    corpus = Adult(small_root).load(Streams(0))
    assert len(corpus.test) == 16 * (730 // 16 // 10)
    assert len(corpus.train) + len(corpus.test) == 730 // 16 * 16


def test_real_devices(real_root):
    """Hu, Guo, Gong: 16 devices of 3,052 records, split 80/10/10; 108 inputs; a quarter earns more
    than 50K."""
    if not (Path(real_root) / FILES[0].places[1]).is_file():
        pytest.skip("needs adult")
    data = Adult(real_root)
    corpus = data.load(Streams(0))
    allocation = Equal(16, 16).allocate(corpus.train, data, Streams(0))
    # 2,441 train on average: each record's own coin decides whether it is held out.
    assert np.bincount(allocation.silo).tolist() == [2747] * 16
    sizes = np.bincount(allocation.silo[allocation.trains])
    assert abs(sizes - 2441.0).max() < 4 * math.sqrt(2747 * 0.1112 * 0.8888)
    assert len(corpus.test) == 16 * 305
    assert corpus.train.x.shape[1] == 108
    assert corpus.train.y.mean() == pytest.approx(0.239, abs=0.005)


@pytest.mark.parametrize(
    ("line", "cell", "value", "message"),
    [
        (3, 0, "old", "line 3, column age: old is not a finite number"),
        (2, 4, "", "line 2, column education-num: a missing value"),
        (6, 0, "39.5", "line 6, column age: 39.5; allowed: whole numbers"),
        (5, 1, "Pirate", "line 5, column workclass: Pirate; allowed: ?, Federal-gov"),
        (4, 14, "50K", "line 4, column income: 50K; allowed: <=50K, >50K"),
        (
            7,
            13,
            "Peru, 1",
            "not a readable table: Expected 15 fields in line 7, saw 16",
        ),
    ],
)
def test_a_bad_cell_is_one_line(tmp_path, line, cell, value, message):
    write_adult(tmp_path)
    path = tmp_path / "adult.test"
    rows = path.read_text().splitlines()
    cells = rows[line - 1].split(", ")
    cells[cell] = value
    rows[line - 1] = ", ".join(cells)
    path.write_text("\n".join(rows))
    refused(lambda: Adult(str(tmp_path)).load(Streams(0)), f"{path}: {message}")


def test_too_few_records(tmp_path):
    write_adult(tmp_path, {"adult.data": 100, "adult.test": 59})
    with pytest.raises(DataError, match="159 records, too few for 16 devices"):
        Adult(str(tmp_path)).load(Streams(0))
    write_adult(tmp_path, {"adult.data": 0, "adult.test": 59})
    with pytest.raises(DataError, match=r"adult\.data: no records"):
        Adult(str(tmp_path)).load(Streams(0))
