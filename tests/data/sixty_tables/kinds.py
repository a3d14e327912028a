"""Sixty public kinds of tables, as pandas, R, Excel, REDCap and registries write them.

No value comes from a person. Each kind is a function that writes a file of some hundred rows below
a folder and returns the words that a newcomer types. `KINDS` has them by name.
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
TIES = [5, 10, 10, 20, 30, 30, 60, 90, 120, 365]

KINDS: dict[str, Callable[[Path], tuple[str, ...]]] = {}
Made = tuple[str, ...]


def kind(make: Callable[[Path], Made]) -> Callable[[Path], Made]:
    KINDS[make.__name__] = make
    return make


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


def days(n: int, start: str = "2019-01-01", step: int = 3, seed: int = 0) -> pd.Series:
    """n dates within three years or so."""
    offsets = np.random.default_rng(seed).integers(0, 365 * step, n)
    return pd.Series(pd.Timestamp(start) + pd.to_timedelta(offsets, unit="D"))


def holes(column: pd.Series, share: float = 0.1, seed: int = 1) -> pd.Series:
    """A column with missing values."""
    return column.mask(np.random.default_rng(seed).random(len(column)) < share)


def by_r(frame: pd.DataFrame, path: Path, *, rows: bool = False, **form: str) -> None:
    """As R's write.csv: texts in quotes, NA without, truth values as TRUE and FALSE."""
    out = frame.copy()
    for name in out.select_dtypes(bool):
        out[name] = out[name].map({True: "\0TRUE", False: "\0FALSE"})
    out.index = pd.RangeIndex(1, len(out) + 1).astype(str)
    out.to_csv(path, index=rows, quoting=csv.QUOTE_NONNUMERIC, na_rep="NA", **form)
    text = path.read_text().replace('"NA"', "NA")
    path.write_text(text.replace('"\0TRUE"', "TRUE").replace('"\0FALSE"', "FALSE"))


def said(path: Path, label: str, *words: str) -> Made:
    return ("data=table", f"data.path={path.name}", f"data.label={label}", *words)


# Famous tables.


@kind
def titanic(folder: Path) -> Made:
    """Kaggle: quoted names with commas, a cabin for one in five, ages with gaps."""
    n, rng, base = 200, np.random.default_rng(1), people(200, 0.38)
    frame = pd.DataFrame(
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
    frame.to_csv(folder / "train.csv", index=False)
    return said(folder / "train.csv", "Survived", "data.user=PassengerId", *DEALT)


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


@kind
def iris_of_r(folder: Path) -> Made:
    """write.csv(iris): a first column of row names without a name."""
    by_r(_iris(), folder / "iris.csv", rows=True)
    return said(folder / "iris.csv", "Species", ROW, *DEALT)


@kind
def iris_of_pandas(folder: Path) -> Made:
    """Written with an index, read and written again: Unnamed: 0."""
    _iris().rename_axis("Unnamed: 0").to_csv(folder / "iris.csv")
    return said(folder / "iris.csv", "Species", ROW, *DEALT)


@kind
def adult(folder: Path) -> Made:
    """UCI: a space after each comma, ? for unknown, labels >50K and <=50K."""
    frame, rng = people(220, 0.24), np.random.default_rng(3)
    frame["workclass"] = rng.choice(["Private", "State-gov", "?"], 220, p=[0.8, 0.1, 0.1])
    frame["race"] = rng.choice(["White", "Black", "Amer-Indian-Eskimo"], 220, p=[0.8, 0.15, 0.05])
    frame["income"] = np.where(frame.pop("died"), ">50K", "<=50K")
    lines = [", ".join(map(str, row)) for row in frame.to_numpy()]
    head = ", ".join(frame.columns)
    (folder / "adult.csv").write_text("\n".join([head, *lines, "", ""]))
    return said(folder / "adult.csv", "income", *USERS)


@kind
def wine_quality(folder: Path) -> Made:
    """UCI: semicolons, names with spaces in quotes; a quality of 5 to 8."""
    rng, n = np.random.default_rng(4), 240
    alcohol = rng.normal(10.5, 1.2, n)
    quality = np.clip(np.round(6 + 0.4 * (alcohol - 10.5) + rng.normal(0, 0.6, n)), 5, 7)
    frame = pd.DataFrame(
        {
            "fixed acidity": rng.normal(7, 0.8, n).round(1),
            "residual sugar": rng.gamma(2, 3, n).round(2),
            "alcohol": alcohol.round(1),
            "quality": quality.astype(int),
        }
    )
    frame.to_csv(
        folder / "winequality-white.csv", sep=";", index=False, quoting=csv.QUOTE_NONNUMERIC
    )
    return said(folder / "winequality-white.csv", "quality", ROW, *DEALT)


@kind
def breast_cancer_with_an_unnamed_end(folder: Path) -> Made:
    """Kaggle: the header and each row end with a comma: a last column without a name."""
    base, rng = people(180, 0.37), np.random.default_rng(6)
    frame = pd.DataFrame(
        {
            "id": rng.choice(np.arange(8670, 911_320_502, 97), 180, replace=False),
            "diagnosis": np.where(base["died"], "M", "B"),
            "radius_mean": (12 + 5 * base["died"] + rng.normal(0, 2, 180)).round(2),
            "concave points_mean": rng.gamma(2, 0.02, 180).round(5),
            "": "",
        }
    )
    frame.to_csv(folder / "data.csv", index=False, quoting=csv.QUOTE_MINIMAL)
    return said(folder / "data.csv", "diagnosis", "data.user=id", *DEALT)


@kind
def stroke(folder: Path) -> Made:
    """Kaggle: 5 % positives, N/A, one gender with a single row."""
    frame = people(240, 0.06)
    frame["gender"] = frame.pop("sex").map({"f": "Female", "m": "Male"})
    frame.loc[17, "gender"] = "Other"
    frame["bmi"] = holes(frame["bmi"], 0.05)
    frame["ever_married"] = np.where(frame["age"] > 30, "Yes", "No")
    frame.insert(0, "id", np.random.default_rng(7).permutation(np.arange(67, 67 + 30 * 240, 30)))
    frame = frame.drop(columns=["patient", "hospital"]).rename(columns={"died": "stroke"})
    frame.to_csv(folder / "stroke.csv", index=False, na_rep="N/A")
    return said(folder / "stroke.csv", "stroke", "data.user=id", *DEALT)


@kind
def telco_churn(folder: Path) -> Made:
    """IBM: ids such as 7590-VHVEG, a blank for a missing number, 0/1 beside Yes/No."""
    base, rng = people(200, 0.27), np.random.default_rng(8)
    letters = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    ids = [f"{rng.integers(1000, 9999)}-{''.join(rng.choice(letters, 5))}" for _ in range(200)]
    total = pd.Series(rng.gamma(2, 900, 200).round(2)).astype(str)
    total[::40] = " "
    frame = pd.DataFrame(
        {
            "customerID": ids,
            "SeniorCitizen": (base["age"] > 65).astype(int),
            "Contract": rng.choice(["Month-to-month", "One year", "Two year"], 200),
            "MonthlyCharges": rng.normal(65, 20, 200).round(2),
            "TotalCharges": total,
            "Churn": np.where(base["died"], "Yes", "No"),
        }
    )
    frame.to_csv(folder / "churn.csv", index=False)
    return said(folder / "churn.csv", "Churn", "data.user=customerID", *DEALT)


@kind
def diabetes_130_hospitals(folder: Path) -> Made:
    """UCI: two columns of ids, ? for unknown, ages as [70-80), three classes, weight mostly ?."""
    base, rng, n = people(220), np.random.default_rng(11), 220
    low = base["age"] // 10 * 10
    frame = pd.DataFrame(
        {
            "encounter_id": rng.choice(np.arange(12522, 400_000_000, 631), n, replace=False),
            "patient_nbr": [int(one[1:]) * 10_007 + 135 for one in base["patient"]],
            "race": rng.choice(["Caucasian", "AfricanAmerican", "?"], n, p=[0.7, 0.25, 0.05]),
            "age": [f"[{one}-{one + 10})" for one in low],
            "weight": rng.choice(["?", "[75-100)"], n, p=[0.95, 0.05]),
            "diag_1": [
                f"{250 + one / 100:.2f}" if one % 2 else "V58" for one in rng.integers(0, 99, n)
            ],
            "readmitted": rng.choice(["NO", ">30", "<30"], n, p=[0.5, 0.35, 0.15]),
        }
    )
    frame.to_csv(folder / "diabetic_data.csv", index=False)
    return said(folder / "diabetic_data.csv", "readmitted", "data.user=patient_nbr", *DEALT)


# Survival.


def _survival(seed: int, event: str = "status") -> pd.DataFrame:
    frame, rng = people(180), np.random.default_rng(seed)
    frame["time"] = rng.choice(TIES, 180)
    frame[event] = frame.pop("died")
    return frame


@kind
def heart_failure(folder: Path) -> Made:
    frame = _survival(20, "DEATH_EVENT")
    frame["platelets"] = np.random.default_rng(20).choice([263358.03, 265000.0, 1e5], 180)
    frame.to_csv(folder / "heart_failure.csv", index=False)
    return said(folder / "heart_failure.csv", "DEATH_EVENT", "data.time=time", *USERS)


@kind
def lung_of_r(folder: Path) -> Made:
    """R's survival::lung: status 1 is censored, 2 is dead."""
    frame = _survival(21)
    frame["status"] += 1
    frame["ph.ecog"] = holes(pd.Series(np.random.default_rng(21).choice([0.0, 1.0, 2.0], 180)))
    by_r(frame, folder / "lung.csv")
    return said(folder / "lung.csv", "status", "data.time=time", *USERS)


@kind
def veteran_with_ties_and_zeros(folder: Path) -> Made:
    """Times of 0: dead on the day of admission."""
    frame = _survival(22)
    frame.loc[:9, "time"] = 0
    by_r(frame, folder / "veteran.csv")
    return said(folder / "veteran.csv", "status", "data.time=time", *USERS)


@kind
def survival_with_logicals_of_r(folder: Path) -> Made:
    frame = _survival(23)
    frame["status"] = frame["status"].astype(bool)
    by_r(frame, folder / "gbsg.csv")
    return said(folder / "gbsg.csv", "status", "data.time=time", *USERS)


@kind
def survival_with_logicals_of_pandas(folder: Path) -> Made:
    frame = _survival(24)
    frame["status"] = frame["status"].astype(bool)
    frame.to_csv(folder / "whas500.csv", index=False)
    return said(folder / "whas500.csv", "status", "data.time=time", *USERS)


@kind
def survival_with_yes_and_no(folder: Path) -> Made:
    frame = _survival(25)
    frame["status"] = frame["status"].map({1: "yes", 0: "no"})
    frame.to_csv(folder / "relapse.csv", index=False)
    return said(folder / "relapse.csv", "status", "data.time=time", *USERS)


@kind
def tcga_vital_status(folder: Path) -> Made:
    """Alive and Dead; days to the last follow-up."""
    frame = _survival(26, "vital_status")
    frame["vital_status"] = frame["vital_status"].map({1: "Dead", 0: "Alive"})
    frame.to_csv(folder / "clinical.tsv", sep="\t", index=False, na_rep="'--")
    return said(folder / "clinical.tsv", "vital_status", "data.time=time", *USERS)


# Ids.


@kind
def whole_number_ids(folder: Path) -> Made:
    """Patients 1 to 120, hospitals 11 and 101."""
    frame = people(240)
    frame["patient"] = np.arange(240) % 120 + 1
    frame["hospital"] = np.where(frame["patient"] % 2, 11, 101)
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def uuids(folder: Path) -> Made:
    frame = people(240)
    names = [str(uuid.UUID(int=(7**90 * (i + 3)) % 2**128)) for i in range(120)]
    names[:2] = ["5a0fc2d1-0000-4000-8000-00000000a012", "5a0fc2d1-0000-4000-8000-0000000a0012"]
    frame["patient"] = [names[i % 120] for i in range(240)]
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def ids_with_spaces(folder: Path) -> Made:
    """Wards and beds: "ward 1 11" is not "ward 11 1"."""
    frame = people(240)
    frame["patient"] = [f"ward {i % 12 + 1} {i // 12 % 11 + 1}" for i in range(240)]
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def ids_padded_with_zeros(folder: Path) -> Made:
    frame = people(200)
    frame["patient"] = [f"{int(one[1:]):06d}" for one in frame["patient"]]
    by_r(frame, folder / "visits.csv")
    return said(folder / "visits.csv", "died", *USERS)


@kind
def ids_that_pandas_made_floats(folder: Path) -> Made:
    """17.0: there was a missing id when pandas read them."""
    frame = people(200)
    frame["patient"] = [float(one[1:]) for one in frame["patient"]]
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def nhs_numbers(folder: Path) -> Made:
    frame = people(200)
    frame["patient"] = [
        f"943 {476 + int(one[1:])} {5919 - int(one[1:])}" for one in frame["patient"]
    ]
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def nhanes_sequence_numbers(folder: Path) -> Made:
    """NHANES by R's foreign: all numbers are doubles."""
    frame = people(200, 0.15)
    frame.insert(0, "SEQN", np.arange(83732.0, 83932.0))
    frame["LBXGLU"] = holes(frame["bmi"] * 4, 0.3)
    by_r(frame.drop(columns=["patient", "hospital"]), folder / "nhanes.csv")
    return said(folder / "nhanes.csv", "died", "data.user=SEQN", *DEALT)


@kind
def patients_in_several_hospitals(folder: Path) -> Made:
    frame = people(240)
    frame["hospital"] = np.random.default_rng(30).choice(["Ash", "Birch", "Cedar"], 240)
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def one_row_a_patient(folder: Path) -> Made:
    frame = people(200, 0.4)
    frame["patient"] = [f"P{i}" for i in range(200)]
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def rare_outcome(folder: Path) -> Made:
    people(400, 0.03).to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


# Dates.


@kind
def mimic_admissions(folder: Path) -> Made:
    """Times to the second in the years 2100 to 2200, a death time for few."""
    frame, n = people(220, 0.1), 220
    start = days(n, "2150-05-06 22:23:00") + pd.to_timedelta(np.arange(n) * 61, unit="s")
    frame.insert(1, "hadm_id", np.random.default_rng(31).permutation(np.arange(n) * 13 + 100_000))
    frame["admittime"] = start
    frame["dischtime"] = start + pd.to_timedelta(np.arange(n) % 9 * 3700, unit="s")
    frame["deathtime"] = (start + pd.Timedelta(days=9)).where(frame["died"] == 1)
    frame["ethnicity"] = np.random.default_rng(31).choice(["WHITE", "BLACK/AFRICAN", "OTHER"], n)
    frame.to_csv(folder / "admissions.csv", index=False)
    return said(folder / "admissions.csv", "died", *USERS)


def _dated(folder: Path, form: str, name: str = "visits.csv") -> Made:
    frame = people(200)
    frame["admitted"] = days(200).dt.strftime(form)
    frame.to_csv(folder / name, index=False)
    return said(folder / name, "died", *USERS)


@kind
def iso_dates(folder: Path) -> Made:
    """87 different dates."""
    frame = people(200)
    frame["admitted"] = [days(87).dt.strftime("%Y-%m-%d").iloc[i % 87] for i in range(200)]
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def iso_times_with_zone(folder: Path) -> Made:
    return _dated(folder, "%Y-%m-%dT%H:%M:%SZ")


@kind
def british_dates(folder: Path) -> Made:
    return _dated(folder, "%d/%m/%Y")


@kind
def american_dates(folder: Path) -> Made:
    return _dated(folder, "%m/%d/%Y")


@kind
def dates_of_sas(folder: Path) -> Made:
    """01JAN2020, and a point for a missing number."""
    frame = people(200)
    frame["admitted"] = days(200).dt.strftime("%d%b%Y").str.upper()
    frame["bmi"] = holes(frame["bmi"])
    frame.to_csv(folder / "visits.csv", index=False, na_rep=".")
    return said(folder / "visits.csv", "died", *USERS)


@kind
def bike_sharing(folder: Path) -> Made:
    """UCI: a counter of rows, dates, a count to predict."""
    rng, n = np.random.default_rng(32), 240
    frame = pd.DataFrame(
        {
            "instant": range(1, n + 1),
            "dteday": pd.date_range("2011-01-01", periods=n).strftime("%Y-%m-%d"),
            "station": [f"S{i % 40}" for i in range(n)],
            "temp": rng.random(n).round(6),
            "cnt": rng.integers(22, 8714, n),
        }
    )
    frame.to_csv(folder / "day.csv", index=False)
    return said(folder / "day.csv", "cnt", "data.user=station", *DEALT)


# Excel.


@kind
def excel_in_germany(folder: Path) -> Made:
    """CSV UTF-8: a mark at the start, semicolons, decimal commas, dd.mm.yyyy, ja and nein."""
    frame = people(200)
    frame["Größe"] = (150 + frame["bmi"]).map("{:.1f}".format).str.replace(".", ",")
    frame["bmi"] = frame["bmi"].map("{:.1f}".format).str.replace(".", ",")
    frame["aufgenommen"] = days(200).dt.strftime("%d.%m.%Y")
    frame["verstorben"] = frame.pop("died").map({1: "ja", 0: "nein"})
    frame.to_csv(
        folder / "Mappe1.csv", sep=";", index=False, encoding="utf-8-sig", lineterminator="\r\n"
    )
    return said(folder / "Mappe1.csv", "verstorben", *USERS)


@kind
def excel_in_germany_before_utf8(folder: Path) -> Made:
    """CSV in Windows' own encoding."""
    frame = people(200)
    frame["hospital"] = frame["hospital"].replace({"Ash": "München", "Birch": "Köln"})
    frame.to_csv(folder / "Mappe1.csv", sep=";", index=False, encoding="latin-1")
    return said(folder / "Mappe1.csv", "died", *USERS)


@kind
def excel_in_france(folder: Path) -> Made:
    """Thousands by a space that does not break, decimal commas, oui and non."""
    frame = people(200)
    cost = np.random.default_rng(33).gamma(3, 900, 200)
    frame["coût"] = [f"{one:,.2f}".replace(",", "\u202f").replace(".", ",") for one in cost]
    frame["bmi"] = frame["bmi"].map("{:.1f}".format).str.replace(".", ",")
    frame["décès"] = frame.pop("died").map({1: "oui", 0: "non"})
    frame.to_csv(folder / "visites.csv", sep=";", index=False)
    return said(folder / "visites.csv", "décès", *USERS)


@kind
def excel_in_america(folder: Path) -> Made:
    """ "1,234" for thousands, $ and %, and a trailing row and column without a cell."""
    frame, rng = people(200), np.random.default_rng(34)
    frame["charges"] = [f"${one:,.2f} " for one in rng.gamma(3, 900, 200)]
    frame["cells"] = [f"{one:,}" for one in rng.integers(400, 12_000, 200)]
    frame["saturation"] = [f"{one:.1f}%" for one in rng.uniform(85, 100, 200)]
    frame[""] = ""
    frame.to_csv(folder / "Book1.csv", index=False)
    with open(folder / "Book1.csv", "a") as file:
        file.write("," * (len(frame.columns) - 1) + "\n")
    return said(folder / "Book1.csv", "died", *USERS)


@kind
def excel_in_switzerland(folder: Path) -> Made:
    """1'234.50, and the separator in a line of its own."""
    frame = people(200)
    frame["cost"] = [f"{one:,.2f}".replace(",", "'") for one in 300 + 55.5 * np.arange(200)]
    frame.to_csv(folder / "body.csv", sep=";", index=False)
    (folder / "Kosten.csv").write_text("sep=;\n" + (folder / "body.csv").read_text())
    return said(folder / "Kosten.csv", "died", *USERS)


# REDCap and questionnaires.


@kind
def redcap_raw(folder: Path) -> Made:
    """Checkboxes as race___1, an event's name, access groups, 2 for a complete form."""
    frame, rng = people(200, 0.2), np.random.default_rng(35)
    frame = frame.rename(columns={"patient": "record_id", "hospital": "redcap_data_access_group"})
    frame.insert(1, "redcap_event_name", "baseline_arm_1")
    frame["visit_date"] = days(200).dt.strftime("%Y-%m-%d")
    for box in (1, 2, 99):
        frame[f"race___{box}"] = rng.integers(0, 2, 200)
    frame["comments"] = holes(pd.Series([f"seen by dr. {i}" for i in range(200)]), 0.6)
    frame["baseline_complete"] = 2
    frame.to_csv(folder / "raw.csv", index=False, quoting=csv.QUOTE_NONNUMERIC)
    group = "data.silo=redcap_data_access_group"
    return said(folder / "raw.csv", "died", "data.user=record_id", group)


@kind
def redcap_labels(folder: Path) -> Made:
    """Whole questions as names, Checked and Unchecked."""
    frame, rng = people(200, 0.2), np.random.default_rng(36)
    frame = frame.rename(columns={"age": "Age at admission, in years:"})
    for race in ("White", "Black or African American"):
        name = f"Which race(s)? Check all. (choice={race})"
        frame[name] = rng.choice(["Checked", "Unchecked"], 200)
    frame["Complete?"] = "Complete"
    frame["died"] = frame["died"].map({1: "Yes", 0: "No"})
    frame.to_csv(folder / "labels.csv", index=False, encoding="utf-8-sig")
    return said(folder / "labels.csv", "died", *USERS)


@kind
def google_form(folder: Path) -> Made:
    """A time stamp with the month first, answers in curly quotes, free text over several lines."""
    frame, rng = people(200), np.random.default_rng(37)
    frame.insert(0, "Timestamp", days(200).dt.strftime("%m/%d/%Y %H:%M:%S"))
    frame["How do you feel?"] = rng.choice(["I’m “fine”", "so – so", "not well"], 200)
    frame["Anything else?"] = [f"line one, {i}\nline two" for i in range(200)]
    frame.to_csv(folder / "form.csv", index=False)
    return said(folder / "form.csv", "died", *USERS)


@kind
def stata_labels(folder: Path) -> Made:
    """Values with numbers: "1. yes"; a point for a missing number."""
    frame = people(200)
    frame["bmi"] = holes(frame["bmi"])
    frame["died"] = frame["died"].map({1: "1. yes", 0: "0. no"})
    frame.to_csv(folder / "wave1.csv", index=False, na_rep=".")
    return said(folder / "wave1.csv", "died", *USERS)


# Truth values, numbers, gaps.


@kind
def logicals_of_r(folder: Path) -> Made:
    frame = people(200)
    frame["died"] = frame["died"].astype(bool)
    frame["smoker"] = frame["smoker"] == "yes"
    by_r(frame, folder / "visits.csv")
    return said(folder / "visits.csv", "died", *USERS)


@kind
def booleans_of_pandas(folder: Path) -> Made:
    frame = people(200)
    frame["died"] = frame["died"].astype(bool)
    frame["smoker"] = holes((frame["smoker"] == "yes").astype(object))
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def t_and_f(folder: Path) -> Made:
    frame = people(200)
    frame["died"] = frame["died"].map({1: "T", 0: "F"})
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def zero_and_one_as_floats(folder: Path) -> Made:
    frame = people(200)
    frame["died"] = frame["died"].astype(float)
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def scientific_numbers_of_r(folder: Path) -> Made:
    frame = people(200)
    frame["copies"] = [f"{10.0 ** (i % 9):.3g}" for i in range(200)]
    frame["p.value"] = [f"{10.0 ** -(i % 7):g}" for i in range(200)]
    frame.to_csv(folder / "assay.csv", index=False)
    return said(folder / "assay.csv", "died", *USERS)


@kind
def gaps_in_many_spellings(folder: Path) -> Made:
    frame = people(200).astype(object)
    for row, mark in enumerate(["NA", "NaN", "", "null", "#N/A", "n/a", "None", ".", "<NA>"]):
        frame.loc[row * 7, ["bmi", "age"]] = mark
        frame.loc[row * 7 + 1, "sex"] = mark
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def minus_999_for_missing(folder: Path) -> Made:
    frame = people(200)
    frame["bmi"] = holes(frame["bmi"]).fillna(-999)
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def empty_and_constant_columns(folder: Path) -> Made:
    frame = people(200)
    frame["remark"], frame["study"], frame["version"] = "", "A", 1
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def fifty_columns(folder: Path) -> Made:
    wide = np.random.default_rng(38).normal(0, 1, (200, 50)).round(3)
    frame = pd.concat([people(200), pd.DataFrame(wide).add_prefix("V")], axis=1)
    frame.to_csv(folder / "visits.csv", index=False)
    return said(folder / "visits.csv", "died", *USERS)


@kind
def insurance_charges(folder: Path) -> Made:
    """Kaggle: regression."""
    frame = people(200)
    frame["charges"] = (250 * frame["age"] + 9000 * (frame["smoker"] == "yes")).map("{:.4f}".format)
    frame.drop(columns="died").to_csv(folder / "insurance.csv", index=False)
    return said(folder / "insurance.csv", "charges", *USERS)


@kind
def house_prices(folder: Path) -> Made:
    """Prices with thousands separators as the label; names with spaces and brackets."""
    frame = people(200)
    frame["Area (m²)"] = frame["age"] * 2
    frame["price [EUR]"] = [f"{one:,}" for one in 950 + 3100 * frame["age"]]
    frame.drop(columns="died").rename(columns={"price [EUR]": "price"}).to_csv(
        folder / "houses.csv", index=False
    )
    return said(folder / "houses.csv", "price", *USERS)


# Other files.


@kind
def tab_separated(folder: Path) -> Made:
    by_r(people(200), folder / "visits.tsv", sep="\t")
    return said(folder / "visits.tsv", "died", *USERS)


@kind
def bars_between_cells(folder: Path) -> Made:
    people(200).to_csv(folder / "visits.txt", sep="|", index=False)
    return said(folder / "visits.txt", "died", *USERS)


@kind
def csv_gz(folder: Path) -> Made:
    people(200).to_csv(folder / "visits.csv.gz", index=False)
    return said(folder / "visits.csv.gz", "died", *USERS)


@kind
def csv_bz2(folder: Path) -> Made:
    people(200).to_csv(folder / "visits.csv.bz2", index=False)
    return said(folder / "visits.csv.bz2", "died", *USERS)


@kind
def csv_in_a_zip(folder: Path) -> Made:
    with zipfile.ZipFile(folder / "archive.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("visits.csv", people(200).to_csv(index=False))
    return said(folder / "archive.zip", "died", *USERS)


@kind
def parquet_with_nulls(folder: Path) -> Made:
    frame = people(200)
    frame["bmi"] = holes(frame["bmi"])
    frame["age"] = holes(frame["age"]).astype("Int64")
    frame["smoker"] = holes((frame["smoker"] == "yes").astype("boolean"))
    frame["patient"] = frame["patient"].str[1:].astype(int)
    frame.to_parquet(folder / "visits.parquet")
    return said(folder / "visits.parquet", "died", *USERS)


@kind
def parquet_with_categories_and_times(folder: Path) -> Made:
    frame = people(200)
    frame["sex"], frame["hospital"] = (
        frame["sex"].astype("category"),
        frame["hospital"].astype("category"),
    )
    frame["admitted"] = holes(days(200))
    frame["died"] = frame["died"].astype(bool)
    frame["bmi"] = frame["bmi"].astype(np.float32)
    frame.set_index(pd.RangeIndex(5, 205)).to_parquet(folder / "visits.parquet")
    return said(folder / "visits.parquet", "died", *USERS)
