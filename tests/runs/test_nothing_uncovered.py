"""`private=all`: what starts ends with nothing uncovered, and publishes released and charged
numbers alone; all else is refused in one line."""

import pytest
from fake_runs import read_status
from public_schema import SCHEMA

import fedpriv
from fedpriv.bundles.bundle import read_bundle
from fedpriv.errors import FedprivError
from fedpriv.projects.patients import csv_text
from fedpriv.reports.selection_cost import BEST
from fedpriv.runs.analyse_command import analyse
from fedpriv.runs.evaluate_command import evaluate
from fedpriv.settings.run_options import ALWAYS_UNCOVERED, CHOSEN

NEEDED = ("randomness=system", "evaluation=none", "private=all")
SMALL = (
    "rounds=1",
    "algo.local_epochs=1",
    "accountant=rdp",
    "algo.noise_multiplier=5",
    "quiet=true",
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Words of a table whose columns, bounds and persons are public knowledge."""
    folder = tmp_path_factory.mktemp("patients")
    (folder / "patients.csv").write_text(csv_text())
    (folder / "schema.yaml").write_text(SCHEMA)
    (folder / "scaled.yaml").write_text(SCHEMA.replace("[60, 260]", "null"))
    return (
        *("data=table", f"data.path={folder / 'patients.csv'}", "data.outside=accept"),
        *(f"data.schema={folder / 'schema.yaml'}", "allocator=by_user", "allocator.n_silos=2"),
    )


@pytest.fixture(scope="module")
def trained(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("all") / "run"
    fedpriv.run(*table, *SMALL, *NEEDED, folder=folder)
    return folder


def published(folder):
    """The label of each file that is published: those of the bundle."""
    labels = read_status(folder)["labels"]
    return {path.name: labels[f"bundle/{path.name}"] for path in (folder / "bundle").iterdir()}


def test_nothing_is_left_uncovered_in_what_is_published(trained):
    status = read_status(trained)
    assert (status["not_covered"], status["dp_valid"]) == ([], True)
    assert set(published(trained).values()) == {"released", "charged"}
    bundle = read_bundle(trained / "bundle")
    assert (bundle.valid, bundle.not_covered, bundle.metrics) == (True, [], {})
    assert {label.partition(":")[0] for label in bundle.labels.values()} == {"released", "charged"}
    assert CHOSEN in (trained / "assumptions.csv").read_text()
    assert all(CHOSEN in row["assumptions"] for row in bundle.certificate)


HOSPITALS = """silo:
  column: hospital
  names: [Adlerhof, Birch Hill, Costa Verde, Dune Point, Elmwood]
"""
ROWS = ("data.one_row_per_user=true", "allocator=by_user", "allocator.n_silos=2")
USERS = {
    "of one hospital each": (
        SCHEMA.replace("[hospital, ", "[") + HOSPITALS,
        ("data.user_scope=silo",),
        "in one silo of column hospital: a person with two values or in two silos counts as two",
    ),
    "a row each": (
        SCHEMA.replace("column: patient, number: 900", "number: 1000").replace(
            "[hospital, ", "[patient, hospital, "
        ),
        ROWS,
        "a person with several rows is not protected as a whole",
    ),
}


@pytest.mark.parametrize(("schema", "words", "who"), USERS.values(), ids=USERS)
def test_a_certificate_says_who_counts_as_a_user(schema, words, who, tmp_path):
    (tmp_path / "patients.csv").write_text(csv_text())
    (tmp_path / "schema.yaml").write_text(schema)
    table = ("data=table", "data.path=patients.csv", "data.schema=schema.yaml")
    found = (f"data.root={tmp_path}", "data.outside=accept")
    fedpriv.run(*table, *found, *words, *SMALL, *NEEDED, folder=tmp_path / "run")
    bundle = read_bundle(tmp_path / "run" / "bundle")
    assert (bundle.valid, bundle.not_covered) == (True, [])
    assert all(who in row["assumptions"] for row in bundle.certificate)


def test_an_evaluation_of_it_leaves_nothing_either(trained, tmp_path):
    words = ("target=1", "private=all", f"hydra.run.dir={tmp_path / 'found'}")
    status = read_status(evaluate([str(trained), *words], quiet=True))
    assert (status["not_covered"], status["dp_valid"]) == ([], True)
    assert status["labels"]["statistics.csv"]["value"] == "charged"


def test_an_analysis_leaves_nothing_either(table, tmp_path):
    words = ("statistics=count", "target=1", "private=all", f"hydra.run.dir={tmp_path / 'found'}")
    own = [word for word in table if word.startswith(("data.path", "data.schema", "alloc"))]
    status = read_status(analyse([*own, *words], quiet=True))
    assert (status["not_covered"], status["dp_valid"]) == ([], True)


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        ("data.similar_ids=merge", "names are alike count as one user"),
        ("data.similar_ids=keep", "counts as two users"),
        ("data.incomplete=drop", "rows with missing values are left out"),
    ],
)
def test_an_analysis_that_would_leave_something_is_refused(rule, line, table, tmp_path):
    own = [word for word in table if word.startswith(("data.path", "data.schema", "alloc"))]
    with pytest.raises(FedprivError, match=line):
        analyse([*own, "statistics=count", "target=1", "private=all", rule], quiet=True)


def test_a_private_choice_leaves_nothing_either(table, tmp_path):
    tuned = ("hydra/sweeper=random_number", "hydra.sweeper.mean=1.5", "algo.local_lr=0.1,0.3")
    scored = ("stop.target=1", "stop.every=1", "stop.metric=accuracy")
    fedpriv.sweep(*table, *SMALL, *NEEDED, *tuned, *scored, folder=tmp_path / "sweep")
    bundle = read_bundle(tmp_path / "sweep" / BEST)
    assert (bundle.valid, bundle.not_covered) == (True, [])
    assert {row["unit"] for row in bundle.certificate} == {"user", "test person"}
    assert {label.partition(":")[0] for label in bundle.labels.values()} == {"released", "charged"}


def test_no_test_person_of_a_private_choice_trains_in_another_run(table, tmp_path):
    """Of each the theorem knows one curve: that of the training, or that of the evaluation."""
    tuned = ("hydra/sweeper=random_number", "hydra.sweeper.mean=1.5", "data.test_share=0.1,0.3")
    scored = ("stop.target=1", "stop.every=1", "stop.metric=accuracy")
    with pytest.raises(FedprivError, match="data=Table: the same persons in all settings"):
        fedpriv.sweep(*table, *SMALL, *NEEDED, *tuned, *scored, folder=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_without_it_the_same_run_says_what_is_left(table, tmp_path):
    fedpriv.run(*table, *SMALL, folder=tmp_path / "run")
    assert set(ALWAYS_UNCOVERED) < set(read_status(tmp_path / "run")["not_covered"])
    assert any(label.startswith("diagnostic") for label in published(tmp_path / "run").values())


REFUSED = {
    "seeds": (("randomness=simulation",), "randomness=simulation: system with private=all"),
    "exact metrics": (("evaluation=exact",), "evaluation=exact: none with private=all"),
    "training loss": (("evaluate_training=true",), "evaluate_training=True: False with private"),
    "a tracker": (("tracker=tensorboard",), "tracker=tensorboard: none with private=all"),
    "scales read off": (("data.schema={folder}/scaled.yaml",), "splits, scaling and sub-sampling"),
    "persons on both sides": (("data.split=record",), "data.split=record: a person may have"),
    "persons in two ways": (("data.similar_ids=keep",), "counts as two users"),
    "rows left out": (("data.missing=drop",), "rows with missing values are left out"),
    "rare classes left out": (("data.rare=drop",), "rows of rare classes are left out"),
    "invented users": (("allocator=zipf", "allocator.invent_users=true"), "draws users over those"),
    "a split of all records": (("data=creditcard",), "splits, scaling and sub-sampling"),
    "no certificate": (("algo=fedavg",), "there is no enforced certificate"),
    "no noise": (("algo.noise_multiplier=0",), "there is no enforced certificate"),
    "another word": (("private=some",), "private=some: null or all"),
}


@pytest.mark.parametrize(("words", "line"), REFUSED.values(), ids=REFUSED)
def test_what_would_leave_something_is_refused_in_one_line(words, line, table, tmp_path):
    folder = table[3].partition("=")[2].rpartition("/")[0]
    given = {}
    for word in (*table, *SMALL, *NEEDED, *(word.format(folder=folder) for word in words)):
        given[word.partition("=")[0]] = word
    if "algo" in given:
        del given["algo.noise_multiplier"]
    if given["data"] != "data=table":
        given = {key: word for key, word in given.items() if not key.startswith(("data.", "alloc"))}
    with pytest.raises(FedprivError) as refusal:
        fedpriv.run(*given.values(), folder=tmp_path / "run")
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()
