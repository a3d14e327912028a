"""Damaged tables end in one line, and its advice works when it is pasted. Damages that no setting
mends: test_table_damages.py."""

import gzip
import random

import pytest
from kinds import USERS, days, people
from pasting import every_advice_helps, records
from refusals import refused

WORDS = ("data=table", "data.path=visits.csv", "data.label=died", *USERS)


@pytest.fixture
def frame():
    found = people(200)
    found["admitted"] = days(200).dt.strftime("%d/%m/%Y")
    return found


def changed(column, value, rows=1):
    """A damage: some cells of a column with another value."""

    def damage(frame, rng):
        frame = frame.astype(object)
        frame.loc[rng.sample(range(len(frame)), rows), column] = value
        return frame.to_csv(index=False).encode()

    return damage


def european(frame, rng):
    """Only numbers that may have thousands or decimals after their comma."""
    frame = frame.assign(bmi=[f"{1 + i % 9},{101 + i}" for i in range(len(frame))])
    return frame.to_csv(index=False, sep=";").encode()


def mixed_decimals(frame, rng):
    texts = frame["bmi"].map(str).str.replace(".", ",").tolist()
    texts[rng.randrange(200)] = "27.25"
    return frame.assign(bmi=texts).to_csv(index=False, sep=";").encode()


def few_days(frame, rng):
    dates = [f"{1 + i % 12:02d}/{1 + i // 12 % 12:02d}/2020" for i in range(len(frame))]
    return frame.assign(admitted=dates).to_csv(index=False).encode()


ADVISED = {
    "a typing error in a label": changed("died", "O"),
    "a third class that hardly any row has": changed("died", 2),
    "a label in two spellings": lambda t, r: changed("died", "yes ", 60)(
        t.assign(died=t["died"].map({0: "no", 1: "Yes"})), r
    ),
    "no label": changed("died", None),
    "no patient": changed("patient", None, 2),
    "no hospital": changed("hospital", "NA"),
    "nobody in particular": changed("patient", "unknown", 2),
    "one patient in two spellings": lambda t, r: changed(
        "patient", t["patient"][0].replace("P0", "p")
    )(t, r),
    "one hospital in two spellings": changed("hospital", "ASH"),
    "a patient that a spreadsheet rounded": changed("patient", "1.23457E+11"),
    "a text among numbers": changed("bmi", "not done"),
    "a unit among numbers": changed("age", "67 y"),
    "a missing mark of its own": changed("bmi", "-", 20),
    "quotes in a text among numbers": changed("bmi", 'it\'s "high"'),
    "an error of Excel": changed("age", "#DIV/0!"),
    "a percent among numbers": changed("bmi", "27%"),
    "a mixed decimal": changed("bmi", "27,25"),
    "mixed decimals beside commas": mixed_decimals,
    "thousands or decimals": european,
    "a date that is none": changed("admitted", "31/02/2020"),
    "days that may be months": few_days,
    "a huge number": changed("age", "1e300"),
    "Windows' own encoding": lambda t, r: (
        changed("hospital", "Köln", 50)(t, r).decode().encode("cp1252")
    ),
    "Unicode text of Excel": lambda t, r: t.to_csv(index=False, sep="\t").encode("utf-16"),
    "UTF-16 without a mark": lambda t, r: t.to_csv(index=False).encode("utf-16-le"),
}
"""Damages that a setting can mend."""
PACKED = {
    ".csv.gz": lambda raw: gzip.compress(raw)[:-40],
    ".zip": lambda raw: b"PK\x03\x04" + raw[:90],
    ".bz2": lambda raw: raw,
    ".xz": lambda raw: raw[:30],
    ".parquet": lambda raw: raw,
}


@pytest.mark.parametrize("damage", ADVISED)
def test_advice_mends_it(damage, frame, tmp_path):
    words = [*WORDS, f"data.root={tmp_path}"]
    (tmp_path / "visits.csv").write_bytes(ADVISED[damage](frame.copy(), random.Random(0)))
    assert every_advice_helps(words, "visits.csv")


@pytest.mark.parametrize("suffix", PACKED)
def test_a_damaged_archive_ends_in_one_line(suffix, frame, tmp_path):
    (tmp_path / f"visits{suffix}").write_bytes(PACKED[suffix](frame.to_csv().encode()))
    words = ["data=table", f"data.path=visits{suffix}", "data.label=died", *USERS]
    refused(lambda: records(*words, f"data.root={tmp_path}"), f"visits{suffix}")


SETTINGS = {
    "a typing error in a name": (["data.label=dyed"], "data.label=dyed: a column of"),
    "a name in another case": (["data.label=Died"], "data.label=Died: a column of"),
    "a column that is not there, among those left out": (
        ["data.drop=[sex,bni]"],
        "data.drop=bni: a column of",
    ),
    "no silos": (["data.silo=null"], "allocator.n_silos=null: a number"),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_a_wrong_setting_says_the_right_one(what, frame, tmp_path):
    frame.to_csv(tmp_path / "visits.csv", index=False)
    words, start = SETTINGS[what]
    words = [*WORDS, *words, f"data.root={tmp_path}"]
    assert refused(lambda: records(*words), start=start)
    assert every_advice_helps(words)


@pytest.mark.parametrize("way", ["keep", "drop"])
def test_a_typing_error_in_a_label_becomes_no_class_by_itself(way, frame, tmp_path):
    """One O among zeros and ones was a third class, without a word."""
    (tmp_path / "visits.csv").write_bytes(changed("died", "O")(frame, random.Random(0)))
    words = [*WORDS, f"data.root={tmp_path}"]
    refused(lambda: records(*words), "column died: O: a class that hardly any row has")
    corpus = records(*words, f"data.rare={way}")
    rows = len(corpus.train) + len(corpus.test)
    assert (rows, set(corpus.train.y.tolist()) - {0, 1}) in ((199, set()), (200, {2}), (200, set()))
    assert (way == "drop") == (rows == 199)


@pytest.mark.parametrize(("decimal", "number"), [(".", 1101.0), (",", 1.101)])
def test_a_comma_before_three_digits_is_what_the_setting_says(decimal, number, frame, tmp_path):
    from fedpriv.testing import experiment

    (tmp_path / "visits.csv").write_bytes(european(frame, None))
    words = [*WORDS, f"data.root={tmp_path}", f"data.decimal={decimal}"]
    data = experiment(*words).data
    assert data.records(data.path)[0].numbers("bmi")[0] == number
