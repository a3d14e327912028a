"""Public kinds of tables, as pandas, R, Excel, REDCap and registries write them.

No value comes from a person. Each kind is a function that returns some hundred rows; its decorator
says the file, and the words that a newcomer types. `KINDS` writes them by name.
"""

from __future__ import annotations

import csv
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

ROW = "data.one_row_per_user=true"
DEALT = ("allocator=by_user", "allocator.n_silos=4")
"""A table without hospitals."""
USERS = ("data.user=patient", "data.silo=hospital")
TIMED = ("data.time=time", *USERS)
TIES = [5, 10, 10, 20, 30, 30, 60, 90, 120, 365]

Make = Callable[[], pd.DataFrame]
KINDS: dict[str, Callable[[Path], tuple[str, ...]]] = {}


def by_pandas(frame: pd.DataFrame, path: Path, **form) -> None:
    frame.to_csv(path, index=False, **form)


def by_r(frame: pd.DataFrame, path: Path, *, rows: bool = False, **form: str) -> None:
    """As R's write.csv: texts in quotes, NA without, truth values as TRUE and FALSE."""
    out = frame.copy()
    for name in out.select_dtypes(bool):
        out[name] = out[name].map({True: "\0TRUE", False: "\0FALSE"})
    out.index = pd.RangeIndex(1, len(out) + 1).astype(str)
    out.to_csv(path, index=rows, quoting=csv.QUOTE_NONNUMERIC, na_rep="NA", **form)
    text = path.read_text().replace('"NA"', "NA")
    path.write_text(text.replace('"\0TRUE"', "TRUE").replace('"\0FALSE"', "FALSE"))


def kind(
    file: str = "visits.csv",
    label: str = "died",
    *words: str,
    write: Callable[..., None] = by_pandas,
    **form,
) -> Callable[[Make], Make]:
    """A kind of table, under the name of the decorated function.

    words: more words of a newcomer; none: patients and hospitals are there.
    write: writes the rows, with `form`.
    """

    def register(make: Make, name: str = "") -> Make:
        def written(folder: Path) -> tuple[str, ...]:
            write(make(), folder / file, **form)
            return ("data=table", f"data.path={file}", f"data.label={label}", *(words or USERS))

        KINDS[name or make.__name__] = written
        return make

    return register


def people(n: int = 200, positives: float = 0.3, seed: int = 0) -> pd.DataFrame:
    """Visits of n / 2 patients in four hospitals, with an outcome that age and smoking decide."""
    rng = np.random.default_rng(seed)
    patient = rng.integers(1, n // 2 + 1, n)
    age = rng.integers(18, 95, n)
    smoker = rng.random(n) < 0.3
    risk = 0.05 * (age - 60) + smoker + rng.normal(0, 1, n)
    return pd.DataFrame(
        {
            "patient": [f"P{one:04d}" for one in patient],
            "hospital": np.array(["Ash", "Birch", "Cedar", "Dune"])[patient % 4],
            "age": age,
            "sex": rng.choice(["f", "m"], n),
            "bmi": rng.normal(27, 4, n).round(1),
            "smoker": np.where(smoker, "yes", "no"),
            "died": (risk > np.quantile(risk, 1 - positives)).astype(int),
        }
    )


def visits(n: int = 200, /, **columns) -> pd.DataFrame:
    """`people` with these columns, new or instead of others; a function makes one from all rows."""
    return people(n).assign(**columns)


def texts(**of) -> Callable[[pd.DataFrame], pd.Series]:
    """The outcome in these texts, `yes` and `no`."""
    return lambda frame: frame["died"].map({1: of["yes"], 0: of["no"]})


def truths(name: str, yes: object = 1) -> Callable[[pd.DataFrame], pd.Series]:
    """A column as truth values."""
    return lambda frame: frame[name] == yes


def days(n: int, start: str = "2019-01-01", step: int = 3, seed: int = 0) -> pd.Series:
    """n dates within three years or so."""
    offsets = np.random.default_rng(seed).integers(0, 365 * step, n)
    return pd.Series(pd.Timestamp(start) + pd.to_timedelta(offsets, unit="D"))


def holes(column: pd.Series, share: float = 0.1, seed: int = 1) -> pd.Series:
    """A column with missing values."""
    return column.mask(np.random.default_rng(seed).random(len(column)) < share)


def gaps(frame: pd.DataFrame) -> pd.Series:
    """`bmi` with missing values."""
    return holes(frame["bmi"])


def with_commas(frame: pd.DataFrame) -> pd.Series:
    """`bmi` with decimal commas."""
    return frame["bmi"].map("{:.1f}".format).str.replace(".", ",")


# Famous tables.


@kind("train.csv", "Survived", "data.user=PassengerId", *DEALT)
def titanic() -> pd.DataFrame:
    """Kaggle: quoted names with commas, a cabin for one in five, ages with gaps."""
    n, rng, base = 200, np.random.default_rng(1), people(200, 0.38)
    return pd.DataFrame(
        {
            "PassengerId": range(1, n + 1),
            "Survived": base["died"],
            "Pclass": rng.integers(1, 4, n),
            "Name": [f"Doe{i}, Mr. John {i} (Ann {i})" for i in range(n)],
            "Sex": base["sex"].map({"f": "female", "m": "male"}),
            "Age": holes(base["age"].astype(float), 0.2),
            "SibSp": rng.integers(0, 4, n),
            "Ticket": [f"A/5 {21171 + 7 * i}" if i % 3 else f"{113803 + i}" for i in range(n)],
            "Fare": rng.gamma(2, 16, n).round(4),
            "Cabin": holes(pd.Series([f"C{i}" for i in range(n)]), 0.78),
            "Embarked": holes(pd.Series(rng.choice(["S", "C", "Q"], n)), 0.01),
        }
    )


def _iris() -> pd.DataFrame:
    rng, species = np.random.default_rng(2), np.repeat(["setosa", "versicolor", "virginica"], 50)
    centre = np.repeat([1.4, 4.2, 5.5], 50)
    return pd.DataFrame(
        {
            "Sepal.Length": (4 + 0.4 * centre + rng.normal(0, 0.3, 150)).round(1),
            "Petal.Length": (centre + rng.normal(0, 0.4, 150)).round(1),
            "Species": species,
        }
    )


@kind("adult.csv", "income", *USERS, write=lambda lines, path: path.write_text(lines))
def adult() -> str:
    """UCI: a space after each comma, ? for unknown, labels >50K and <=50K."""
    rng = np.random.default_rng(3)
    frame = people(220, 0.24).assign(
        workclass=rng.choice(["Private", "State-gov", "?"], 220, p=[0.8, 0.1, 0.1]),
        race=rng.choice(["White", "Black", "Amer-Indian-Eskimo"], 220, p=[0.8, 0.15, 0.05]),
        income=lambda frame: np.where(frame["died"], ">50K", "<=50K"),
    )
    frame = frame.drop(columns="died")
    lines = [", ".join(map(str, row)) for row in [frame.columns, *frame.to_numpy()]]
    return "\n".join([*lines, "", ""])


@kind("data.csv", "diagnosis", "data.user=id", *DEALT)
def breast_cancer_with_an_unnamed_end() -> pd.DataFrame:
    """Kaggle: the header and each row end with a comma: a last column without a name."""
    base, rng = people(180, 0.37), np.random.default_rng(6)
    return pd.DataFrame(
        {
            "id": rng.choice(np.arange(8670, 911_320_502, 97), 180, replace=False),
            "diagnosis": np.where(base["died"], "M", "B"),
            "radius_mean": (12 + 5 * base["died"] + rng.normal(0, 2, 180)).round(2),
            "concave points_mean": rng.gamma(2, 0.02, 180).round(5),
            "": "",
        }
    )


@kind("stroke.csv", "stroke", "data.user=id", *DEALT, na_rep="N/A")
def stroke() -> pd.DataFrame:
    """Kaggle: 5 % positives, N/A, one gender with a single row."""
    frame = people(240, 0.06)
    frame["gender"] = frame.pop("sex").map({"f": "Female", "m": "Male"})
    frame.loc[17, "gender"] = "Other"
    frame["bmi"] = holes(frame["bmi"], 0.05)
    frame["ever_married"] = np.where(frame["age"] > 30, "Yes", "No")
    frame.insert(0, "id", np.random.default_rng(7).permutation(np.arange(67, 67 + 30 * 240, 30)))
    return frame.drop(columns=["patient", "hospital"]).rename(columns={"died": "stroke"})


# Survival.


def _survival(seed: int, event: str = "status", of=lambda died: died) -> pd.DataFrame:
    """Times, and the event as `of` writes it."""
    frame = people(180).assign(time=np.random.default_rng(seed).choice(TIES, 180))
    return frame.drop(columns="died").assign(**{event: of(frame["died"])})


@kind("lung.csv", "status", *TIMED, write=by_r)
def lung_of_r() -> pd.DataFrame:
    """R's survival::lung: status 1 is censored, 2 is dead."""
    ecog = holes(pd.Series(np.random.default_rng(21).choice([0.0, 1.0, 2.0], 180)))
    return _survival(21, of=lambda died: died + 1).assign(**{"ph.ecog": ecog})


# Ids.


@kind()
def whole_number_ids() -> pd.DataFrame:
    """Patients 1 to 120, hospitals 11 and 101."""
    patient = np.arange(240) % 120 + 1
    return visits(240, patient=patient, hospital=np.where(patient % 2, 11, 101))


@kind()
def uuids() -> pd.DataFrame:
    names = [str(uuid.UUID(int=(7**90 * (i + 3)) % 2**128)) for i in range(120)]
    names[:2] = ["5a0fc2d1-0000-4000-8000-00000000a012", "5a0fc2d1-0000-4000-8000-0000000a0012"]
    return visits(240, patient=2 * names)


# Dates.


@kind("admissions.csv")
def mimic_admissions() -> pd.DataFrame:
    """Times to the second in the years 2100 to 2200, a death time for few."""
    frame, n, rng = people(220, 0.1), 220, np.random.default_rng
    start = days(n, "2150-05-06 22:23:00") + pd.to_timedelta(np.arange(n) * 61, unit="s")
    frame.insert(1, "hadm_id", rng(31).permutation(np.arange(n) * 13 + 100_000))
    return frame.assign(
        admittime=start,
        dischtime=start + pd.to_timedelta(np.arange(n) % 9 * 3700, unit="s"),
        deathtime=(start + pd.Timedelta(days=9)).where(frame["died"] == 1),
        ethnicity=rng(31).choice(["WHITE", "BLACK/AFRICAN", "OTHER"], n),
    )


@kind("day.csv", "cnt", "data.user=station", *DEALT)
def bike_sharing() -> pd.DataFrame:
    """UCI: a counter of rows, dates, a count to predict."""
    rng, n = np.random.default_rng(32), 240
    return pd.DataFrame(
        {
            "instant": range(1, n + 1),
            "dteday": pd.date_range("2011-01-01", periods=n).strftime("%Y-%m-%d"),
            "station": [f"S{i % 40}" for i in range(n)],
            "temp": rng.random(n).round(6),
            "cnt": rng.integers(22, 8714, n),
        }
    )


# Excel.


@kind("Mappe1.csv", "verstorben", sep=";", encoding="utf-8-sig", lineterminator="\r\n")
def excel_in_germany() -> pd.DataFrame:
    """CSV UTF-8: a mark at the start, semicolons, decimal commas, dd.mm.yyyy, ja and nein."""
    frame = visits(
        Größe=lambda frame: (150 + frame["bmi"]).map("{:.1f}".format).str.replace(".", ","),
        bmi=with_commas,
        aufgenommen=days(200).dt.strftime("%d.%m.%Y"),
        verstorben=texts(yes="ja", no="nein"),
    )
    return frame.drop(columns="died")


@kind("visites.csv", "décès", sep=";")
def excel_in_france() -> pd.DataFrame:
    """Thousands by a space that does not break, decimal commas, oui and non."""
    cost = np.random.default_rng(33).gamma(3, 900, 200)
    frame = visits(
        coût=[f"{one:,.2f}".replace(",", "\u202f").replace(".", ",") for one in cost],
        bmi=with_commas,
        décès=texts(yes="oui", no="non"),
    )
    return frame.drop(columns="died")


def _with_an_empty_row(frame: pd.DataFrame, path: Path) -> None:
    by_pandas(frame, path)
    with open(path, "a") as file:
        file.write("," * (len(frame.columns) - 1) + "\n")


@kind("Book1.csv", write=_with_an_empty_row)
def excel_in_america() -> pd.DataFrame:
    """ "1,234" for thousands, $ and %, and a trailing row and column without a cell."""
    rng = np.random.default_rng(34)
    return visits(
        charges=[f"${one:,.2f} " for one in rng.gamma(3, 900, 200)],
        cells=[f"{one:,}" for one in rng.integers(400, 12_000, 200)],
        saturation=[f"{one:.1f}%" for one in rng.uniform(85, 100, 200)],
        **{"": ""},
    )


def _separator_first(frame: pd.DataFrame, path: Path) -> None:
    path.write_text("sep=;\n" + frame.to_csv(sep=";", index=False))


# REDCap and questionnaires.

REDCAP = ("data.user=record_id", "data.silo=redcap_data_access_group")


@kind("raw.csv", "died", *REDCAP, quoting=csv.QUOTE_NONNUMERIC)
def redcap_raw() -> pd.DataFrame:
    """Checkboxes as race___1, an event's name, access groups, 2 for a complete form."""
    frame, rng = people(200, 0.2), np.random.default_rng(35)
    frame = frame.rename(columns={"patient": "record_id", "hospital": "redcap_data_access_group"})
    frame.insert(1, "redcap_event_name", "baseline_arm_1")
    return frame.assign(
        visit_date=days(200).dt.strftime("%Y-%m-%d"),
        **{f"race___{box}": rng.integers(0, 2, 200) for box in (1, 2, 99)},
        comments=holes(pd.Series([f"seen by dr. {i}" for i in range(200)]), 0.6),
        baseline_complete=2,
    )


@kind("form.csv")
def google_form() -> pd.DataFrame:
    """A time stamp with the month first, answers in curly quotes, free text over several lines."""
    frame, rng = people(200), np.random.default_rng(37)
    frame.insert(0, "Timestamp", days(200).dt.strftime("%m/%d/%Y %H:%M:%S"))
    frame["How do you feel?"] = rng.choice(["I’m “fine”", "so – so", "not well"], 200)
    return frame.assign(**{"Anything else?": [f"line one, {i}\nline two" for i in range(200)]})


# Truth values, numbers, gaps.


@kind()
def booleans_of_pandas() -> pd.DataFrame:
    smoker = truths("smoker", "yes")
    return visits(died=truths("died"), smoker=lambda frame: holes(smoker(frame).astype(object)))


@kind("assay.csv")
def scientific_numbers_of_r() -> pd.DataFrame:
    copies = [f"{10.0 ** (i % 9):.3g}" for i in range(200)]
    return visits(copies=copies, **{"p.value": [f"{10.0 ** -(i % 7):g}" for i in range(200)]})


@kind()
def gaps_in_many_spellings() -> pd.DataFrame:
    frame = people(200).astype(object)
    for row, mark in enumerate(["NA", "NaN", "", "null", "#N/A", "n/a", "None", ".", "<NA>"]):
        frame.loc[row * 7, ["bmi", "age"]] = mark
        frame.loc[row * 7 + 1, "sex"] = mark
    return frame


@kind("houses.csv", "price")
def house_prices() -> pd.DataFrame:
    """Prices with thousands separators as the label; names with spaces and brackets."""
    frame = people(200).drop(columns="died")
    prices = [f"{one:,}" for one in 950 + 3100 * frame["age"]]
    return frame.assign(**{"Area (m²)": frame["age"] * 2}, price=prices)


# Other files.


def _zipped(frame: pd.DataFrame, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("visits.csv", frame.to_csv(index=False))


@kind("visits.parquet", write=pd.DataFrame.to_parquet)
def parquet_with_categories_and_times() -> pd.DataFrame:
    types = {"sex": "category", "hospital": "category", "died": bool, "bmi": np.float32}
    return visits(admitted=holes(days(200))).astype(types).set_index(pd.RangeIndex(5, 205))


# Each in one expression.

SHORT = {
    # write.csv(iris): a first column of row names without a name.
    "iris_of_r": (kind("iris.csv", "Species", ROW, *DEALT, write=by_r, rows=True), lambda: _iris()),
    # Written with an index, read and written again: Unnamed: 0.
    "iris_of_pandas": (
        kind("iris.csv", "Species", ROW, *DEALT),
        lambda: _iris().rename_axis("Unnamed: 0").reset_index(),
    ),
    # Times of 0: dead on the day of admission.
    "veteran_with_ties_and_zeros": (
        kind("veteran.csv", "status", *TIMED, write=by_r),
        lambda: _survival(22).assign(time=lambda frame: frame["time"].where(frame.index > 9, 0)),
    ),
    "survival_with_logicals_of_r": (
        kind("gbsg.csv", "status", *TIMED, write=by_r),
        lambda: _survival(23, of=lambda died: died == 1),
    ),
    "survival_with_logicals_of_pandas": (
        kind("whas500.csv", "status", *TIMED),
        lambda: _survival(24, of=lambda died: died == 1),
    ),
    "survival_with_yes_and_no": (
        kind("relapse.csv", "status", *TIMED),
        lambda: _survival(25, of=lambda died: died.map({1: "yes", 0: "no"})),
    ),
    # Alive and Dead; days to the last follow-up.
    "tcga_vital_status": (
        kind("clinical.tsv", "vital_status", *TIMED, sep="\t", na_rep="'--"),
        lambda: _survival(26, "vital_status", lambda died: died.map({1: "Dead", 0: "Alive"})),
    ),
    # Wards and beds: "ward 1 11" is not "ward 11 1".
    "ids_with_spaces": (
        kind(),
        lambda: visits(240, patient=[f"ward {i % 12 + 1} {i // 12 % 11 + 1}" for i in range(240)]),
    ),
    "ids_padded_with_zeros": (
        kind(write=by_r),
        lambda: visits(patient=lambda frame: [f"{int(one[1:]):06d}" for one in frame["patient"]]),
    ),
    # 17.0: there was a missing id when pandas read them.
    "ids_that_pandas_made_floats": (
        kind(),
        lambda: visits(patient=lambda frame: frame["patient"].str[1:].astype(float)),
    ),
    "patients_in_several_hospitals": (
        kind(),
        lambda: visits(
            240, hospital=np.random.default_rng(30).choice(["Ash", "Birch", "Cedar"], 240)
        ),
    ),
    "one_row_a_patient": (
        kind(),
        lambda: people(200, 0.4).assign(patient=[f"P{i}" for i in range(200)]),
    ),
    "rare_outcome": (kind(), lambda: people(400, 0.03)),
    # 87 different dates.
    "iso_dates": (
        kind(),
        lambda: visits(admitted=np.resize(days(87).dt.strftime("%Y-%m-%d"), 200)),
    ),
    "iso_times_with_zone": (
        kind(),
        lambda: visits(admitted=days(200).dt.strftime("%Y-%m-%dT%H:%M:%SZ")),
    ),
    "british_dates": (kind(), lambda: visits(admitted=days(200).dt.strftime("%d/%m/%Y"))),
    "american_dates": (kind(), lambda: visits(admitted=days(200).dt.strftime("%m/%d/%Y"))),
    # 01JAN2020, and a point for a missing number.
    "dates_of_sas": (
        kind(na_rep="."),
        lambda: visits(admitted=days(200).dt.strftime("%d%b%Y").str.upper(), bmi=gaps),
    ),
    # CSV in Windows' own encoding.
    "excel_in_germany_before_utf8": (
        kind("Mappe1.csv", sep=";", encoding="latin-1"),
        lambda: people(200).replace({"hospital": {"Ash": "München", "Birch": "Köln"}}),
    ),
    # 1'234.50, and the separator in a line of its own.
    "excel_in_switzerland": (
        kind("Kosten.csv", write=_separator_first),
        lambda: visits(
            cost=[f"{one:,.2f}".replace(",", "'") for one in 300 + 55.5 * np.arange(200)]
        ),
    ),
    # Values with numbers: "1. yes"; a point for a missing number.
    "stata_labels": (
        kind("wave1.csv", na_rep="."),
        lambda: visits(bmi=gaps, died=texts(yes="1. yes", no="0. no")),
    ),
    "logicals_of_r": (
        kind(write=by_r),
        lambda: visits(died=truths("died"), smoker=truths("smoker", "yes")),
    ),
    "t_and_f": (kind(), lambda: visits(died=texts(yes="T", no="F"))),
    "zero_and_one_as_floats": (kind(), lambda: people(200).astype({"died": float})),
    "minus_999_for_missing": (kind(), lambda: visits(bmi=lambda frame: gaps(frame).fillna(-999))),
    "empty_and_constant_columns": (kind(), lambda: visits(remark="", study="A", version=1)),
    "tab_separated": (kind("visits.tsv", write=by_r, sep="\t"), lambda: people(200)),
    "bars_between_cells": (kind("visits.txt", sep="|"), lambda: people(200)),
    "csv_gz": (kind("visits.csv.gz"), lambda: people(200)),
    "csv_bz2": (kind("visits.csv.bz2"), lambda: people(200)),
    "csv_in_a_zip": (kind("archive.zip", write=_zipped), lambda: people(200)),
    "parquet_with_nulls": (
        kind("visits.parquet", write=pd.DataFrame.to_parquet),
        lambda: visits(
            bmi=gaps,
            age=lambda frame: holes(frame["age"]).astype("Int64"),
            smoker=lambda frame: holes((frame["smoker"] == "yes").astype("boolean")),
            patient=lambda frame: frame["patient"].str[1:].astype(int),
        ),
    ),
}
for _name, (_register, _make) in SHORT.items():
    _register(_make, _name)
