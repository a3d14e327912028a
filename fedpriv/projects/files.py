"""The files of a small project, as texts."""

from __future__ import annotations

from importlib.resources import files

from fedpriv.data.table.schema import CLASSIFICATION, Category, Label, Number, Schema, write_schema
from fedpriv.projects.patients import HOSPITALS, N_PATIENTS, csv_text

SCHEMA = Schema(
    features=(
        Number("age", (18, 100)),
        Category("sex", ("f", "m")),
        Number("pressure", (60, 240)),
        Number("glucose", (2, 25)),
        Category("smoker", ("no", "yes")),
    ),
    label=Label("died", CLASSIFICATION, classes=("0", "1")),
    n_users=N_PATIENTS,
    user="patient",
    silo="hospital",
    silos=HOSPITALS,
    unused=("stay",),
    public=True,
)
"""What is public about the made-up patients."""

SETTINGS = """\
# @package _global_
# Settings of this project's data: fedpriv --config-dir conf data=patients
# `fedpriv --cfg job --config-dir conf data=patients` prints all keys with their values.
defaults:
  - table
  - _self_

rounds: 30

data:
  path: patients.csv            # the table; paths start in the folder where you call fedpriv
  schema: patients.schema.yaml  # what is public about it: columns, categories, ranges, users, silos
  missing: fill                 # missing features are filled; `refuse` and `drop` are the others
"""

METHOD = """\
_target_: own_method.OwnMethod
clip: ${preset.clip}
noise_multiplier: 5.0
local_epochs: ${preset.local_epochs}
batch_size: ${preset.batch_size}
local_lr: ${preset.local_lr}
global_lr: ${preset.global_lr}
decay: 0.98
"""

CHECK = '''\
"""Measure whether the noise that is really added is what the certificate of the method says."""

from fedpriv.testing import check_algorithm
from own_method import OwnMethod

if __name__ == "__main__":
    method = OwnMethod(
        clip=1.0, noise_multiplier=5.0, local_epochs=2, batch_size=16, local_lr=0.1, global_lr=1.0
    )
    print(check_algorithm(method))
'''

MODEL = """\
_target_: own_model.OwnModel
width: 8  # units of the hidden layer
"""

README = """\
# A private federated model of patients

`patients.csv` has visits of {patients} made-up patients in {hospitals} hospitals. Nobody in it
is real. Call the commands in this folder.

| command | what it does |
| --- | --- |
{commands}

| file | what it is |
| --- | --- |
{files}

To use your own table, replace `patients.csv`. Then read it once and write its schema:

    fedpriv data data=table data.path=patients.csv data.label=died data.user=patient \\
        data.silo=hospital data.missing=fill --out new.schema.yaml

Check every line of the schema: what it says is published. Give each number a range that does not
come from the records, write `public: true`, and name the file in `conf/data/patients.yaml`.

A seeded run is a simulation: its noise can be repeated by everybody who knows the seed. Before you
give a model away, train it with `randomness=system`.
"""

RUN = "fedpriv --config-dir conf data=patients"
"""The command that trains a project."""


def project_files(*, method: bool, model: bool) -> dict[str, str]:
    """Text of each file of a project by its path.

    method, model: whether there is an own method, or an own model.
    """
    found = {
        "patients.csv": csv_text(),
        "patients.schema.yaml": write_schema(SCHEMA),
        "conf/data/patients.yaml": SETTINGS,
    }
    about = {
        "patients.csv": "the table, a visit in each row",
        "patients.schema.yaml": "what is public about the table",
        "conf/data/patients.yaml": "the settings",
    }
    commands = {
        RUN: "trains, and prints metrics and epsilons",
        f"{RUN} randomness=system": "the same with noise that nobody can repeat",
        f"fedpriv epsilon{RUN.removeprefix('fedpriv')}": "the epsilons alone; reads no record",
        f"fedpriv data{RUN.removeprefix('fedpriv')}": "what is made of each column, and what is "
        "private about it",
    }
    if method:
        found |= {
            "own_method.py": _source("own_method.py"),
            "conf/algo/own_method.yaml": METHOD,
            "check_method.py": CHECK,
        }
        about["own_method.py"] = "a method of your own, with `conf/algo/own_method.yaml`"
        about["check_method.py"] = "measures whether the method keeps its certificate"
        commands[f"{RUN} algo=own_method"] = "trains by your method"
        commands["python check_method.py"] = "checks your method"
    if model:
        found |= {"own_model.py": _source("own_model.py"), "conf/model/own_model.yaml": MODEL}
        about["own_model.py"] = "a model of your own, with `conf/model/own_model.yaml`"
        commands[f"{RUN} model=own_model"] = "trains your model"
    found["README.md"] = README.format(
        patients=N_PATIENTS,
        hospitals=len(HOSPITALS),
        commands="\n".join(f"| `{command}` | {what} |" for command, what in commands.items()),
        files="\n".join(f"| `{name}` | {what} |" for name, what in about.items()),
    )
    return found


def _source(name: str) -> str:
    return files("fedpriv.projects").joinpath(name).read_text()
