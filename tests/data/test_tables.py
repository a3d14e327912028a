import numpy as np
import pytest
from refusals import refused

from fedpriv.data.tables import read_csv, refuse
from fedpriv.errors import DataError


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def test_numbers_with_and_without_quotes(written):
    """OpenML quotes column names with double and classes with single quotes."""
    frame = read_csv(written("\"a\",\"Class\"\n1,'0'\n2.5e-3,'1'\n"))
    assert list(frame.columns) == ["a", "Class"]
    np.testing.assert_array_equal(frame.to_numpy(), [[1, 0], [0.0025, 1]])


def test_missing_marks_become_nan_only_where_they_are_allowed(written):
    path = written("1,?\n?,4\n")
    np.testing.assert_array_equal(
        read_csv(path, ["a", "b"], header=False, missing="?").to_numpy(), [[1, np.nan], [np.nan, 4]]
    )
    with pytest.raises(DataError, match=r"table\.csv: line 1, column b: \? is not a finite number"):
        read_csv(path, ["a", "b"], header=False)


def test_text_columns_stay_text(written):
    frame = read_csv(written("pid,a\n007,1\n"), text=("pid",))
    assert frame["pid"].iloc[0] == "007"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,x\n", "line 3, column b: x is not"),
        ("a,b\n1,2\n3,\n", "line 3, column b: a missing value"),
        ("a,b\n1,2\n3\n", "line 3, column b: a missing value"),
        ("a,b\n1,2\n\n3,4\n", "line 3, column a: a missing value"),
        ("a,b\n1,nan\n", "line 2, column b: nan is not a finite number"),
        ("a,b\n1,NaN\nx,2\n", "line 2, column b"),
        ("a,b\n1,2\n1,inf\n", "line 3, column b: inf is not"),
        ("a,b\n1,True\n", "line 2, column b: True is not"),
        ("a,b\n1,2\n1,2,3\n", "line 3"),
        ("a,b\n1,2,3\n1,2\n", "not a readable table"),
        ("a,b\n", "no records"),
        ("", "not a readable table"),
        (b"a,b\n\xff\xfe,\x80\n", "not a readable table"),
        (b"\x00\x00\x08\x03", ""),
    ],
)
def test_a_bad_table_is_one_line_with_its_place(written, text, message):
    refused(lambda: read_csv(written(text)), "table.csv", message)


def test_the_first_bad_line_is_named_not_the_first_bad_column(written):
    with pytest.raises(DataError, match="line 2, column b: y"):
        read_csv(written("a,b\n1,y\nx,2\n"))


def test_a_folder_is_not_a_table(tmp_path):
    with pytest.raises(DataError, match="not a readable table"):
        read_csv(tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [("a,c", "missing b; unexpected c"), ("a", "missing b")],
)
def test_wrong_columns(written, header, message):
    path = written(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    with pytest.raises(DataError, match=f"line 1: wrong columns: {message}"):
        read_csv(path, ["a", "b"])


def test_refuse_names_the_first_wrong_row(written):
    path = written("a\n0\n2\n3\n")
    frame = read_csv(path)
    refuse(path, frame, "a", wrong=frame["a"] < 0, allowed="zero or more")
    with pytest.raises(DataError, match=r"line 3, column a: 2; allowed: 0 or 1"):
        refuse(path, frame, "a", wrong=frame["a"] > 1, allowed="0 or 1")
