"""What a report says of a folder: warnings, checks, whose data, audits, and what it leaves out."""

import html
import json
import os
import re
import shutil
import subprocess
import sys

import jsonschema
import pandas as pd
import pytest
import yaml
from command import refusal, run, success
from fake_runs import fake_run, read_status

from fedpriv.errors import FedprivError
from fedpriv.reports.assessment.contents import (
    ALARMS,
    CONTRADICTORY,
    INVALID,
    INVENTED,
    SCHEMA_FILE,
    SIMULATION,
    contents,
)
from fedpriv.reports.assessment.page import page
from fedpriv.reports.assessment.plain_words import GLOSSES, guess
from fedpriv.reports.audit_file import write_audit
from fedpriv.settings.run_options import ALWAYS_UNCOVERED

SCHEMA = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
SMALL = ["rounds=2", "preset.local_epochs=1", "quiet=true"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A seeded run, one with noise of the operating system, and a sweep."""
    root = tmp_path_factory.mktemp("folders")
    for name, words in {"seeded": [], "system": ["randomness=system"]}.items():
        success(*SMALL, *words, f"hydra.run.dir={name}", cwd=root)
    words = ["-m", *SMALL, "algo.noise_multiplier=2,5", "seed=0,1", "hydra.sweep.dir=sweep"]
    assert run(*words, "hydra/launcher=side_by_side", cwd=root).returncode == 0
    return root


@pytest.fixture
def seeded(folders, tmp_path):
    """A copy of the seeded run, to be edited."""
    shutil.copytree(folders / "seeded", tmp_path / "run")
    return tmp_path / "run"


def rewrite(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def results(values):
    return {check["what"]: check["result"] for check in values["runs"][0]["checks"]}


@pytest.mark.parametrize("name", ["seeded", "system", "sweep"])
def test_contents_fit_the_published_schema(folders, name):
    SCHEMA.validate(contents(folders / name, purpose="a purpose", controller="a hospital"))


def test_a_report_says_what_its_folder_says(folders):
    [facts] = contents(folders / "seeded")["runs"]
    epsilon = pd.read_csv(folders / "seeded" / "epsilon.csv")
    least = epsilon[epsilon["round"] == 2].groupby("observer")["certified"].min()
    assert {row["observer"]: row["certified"] for row in facts["epsilons"]} == least.to_dict()
    assert set(least.index) == {"released model", "server", "silo", "cheating server"}
    status = json.loads((folders / "seeded" / "status.json").read_text())
    assert status["identity"].items() <= facts["digests"].items()
    assert facts["command"].startswith("fedpriv rounds=2 ")
    assert (facts["state"], facts["rounds"], facts["rounds_done"]) == ("done", 2, 2)
    assert facts["users"] == {"from": "allocator", "n_users": 50, "n_silos": 3}
    assert facts["metrics"]["accuracy"]["label"] == "released"
    assert [point["round"] for point in facts["curve"]] == [1, 2]


def test_the_page_of_a_run_shows_what_a_smaller_epsilon_costs(folders):
    values = contents(folders / "seeded")
    [facts] = values["runs"]
    first = facts["curve"][0]
    values["runs"][0]["curve"] = [first | {"round": number} for number in range(1, 96)]
    shown = page(values).decode()
    assert re.findall(r'<td data-name="round">(\d+)</td>', shown) == [
        str(number) for number in range(5, 96, 10)
    ]
    assert f'<td data-name="certified epsilon">{first["certified"]:.4g}</td>' in shown


def test_the_noise_is_that_which_a_target_has_found(seeded):
    """The settings have the one that it replaces."""
    rewrite(seeded / "status.json", noise={"update": 10.9207})
    assert "<dd>update 10.9207</dd>" in page(contents(seeded)).decode()


def test_each_assumption_stands_once_with_those_whom_it_is_about(folders):
    values = contents(folders / "sweep")
    texts = [one["text"] for one in values["assumptions"]]
    assert len(set(texts)) == len(texts) > 5
    messages = [
        one["observers"]
        for one in values["assumptions"]
        if "every silo's noised message" in one["text"]
    ]
    assert sorted(messages) == [["cheating server"], ["server"]]
    assert set(ALWAYS_UNCOVERED) < set(values["not_covered"])


def test_glosses_are_of_assumptions_that_runs_have(folders):
    known = [
        one["text"]
        for name in ("seeded", "system")
        for one in contents(folders / name)["assumptions"]
    ]
    for begin in GLOSSES:
        assert any(text.startswith(begin) for text in known), begin


def test_a_simulation_says_so_first(folders):
    values = contents(folders / "seeded")
    assert values["alarms"] == [SIMULATION, INVENTED]
    first = re.search(r"<body>(.*?)</p>", page(values).decode(), re.DOTALL)[1]
    assert "SIMULATION" in first
    assert contents(folders / "system")["alarms"] == [INVENTED]
    assert contents(folders / "sweep")["alarms"] == [SIMULATION, INVENTED]


@pytest.mark.parametrize("state", ["interrupted", "failed", "running"])
def test_an_unfinished_run_says_so_first(seeded, state):
    rewrite(seeded / "status.json", state=state, reason="a <b>reason</b>")
    expected = ALARMS["killed" if state == "running" else state]
    assert contents(seeded)["alarms"][0] == expected
    done = run("report", str(seeded), cwd=seeded.parent)
    assert (done.returncode, expected in done.stderr) == (0, True)


def test_a_true_folder_agrees_with_itself(folders):
    for name in ("seeded", "system"):
        assert set(results(contents(folders / name)).values()) == {"agrees"}


def smaller_epsilon(folder):
    path = folder / "epsilon.csv"
    path.write_text(re.sub(r",pld,[\d.]+,", ",pld,0.001,", path.read_text()))


def more_noise(folder):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("noise_multiplier: 5.0", "noise_multiplier: 50.0"))


def as_system(folder):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("randomness: simulation", "randomness: system"))


@pytest.mark.parametrize(
    ("edit", "check"),
    [
        (smaller_epsilon, "accounted anew"),
        (smaller_epsilon, "digests in the checkpoint"),
        (more_noise, "digests in the checkpoint"),
        (as_system, "randomness in status.json"),
        (lambda folder: rewrite(folder / "status.json", dp_valid=True), "dp_valid"),
        (lambda folder: rewrite(folder / "status.json", rounds=3), "rounds in status.json"),
    ],
)
def test_a_folder_that_was_edited_contradicts_itself(seeded, edit, check):
    edit(seeded)
    values = contents(seeded)
    assert values["alarms"][0] == CONTRADICTORY
    found = [result for what, result in results(values).items() if check in what]
    assert found == ["contradicts"]


def test_a_smaller_epsilon_is_found_without_a_checkpoint(seeded):
    (seeded / "checkpoint.safetensors").unlink()
    smaller_epsilon(seeded)
    assert "contradicts" in results(contents(seeded)).values()
    assert "contradicts" not in results(contents(seeded, recompute=False)).values()


def test_all_text_of_a_folder_is_escaped(seeded):
    evil = '<script>alert(1)</script><img src="http://x.example/a">\u202e"\'&'
    rewrite(seeded / "status.json", label=evil, warnings=[evil], commit=evil, reason=evil)
    rewrite(seeded / "status.json", not_covered=[evil], versions={evil: evil}, metric=evil)
    path = seeded / "epsilon.csv"
    quoted = evil.replace('"', '""')
    path.write_text(path.read_text().replace("released model", f'"{quoted}"'))
    (seeded / ".hydra" / "overrides.yaml").write_text(json.dumps([evil]))
    values = contents(seeded, purpose=evil, controller=evil)
    shown = page(values).decode()
    assert "<script" not in shown
    assert "<img" not in shown
    assert "\u202e" not in shown
    assert "\\u202e" in shown
    tags = set(re.findall(r"<([a-z0-9]+)", shown))
    assert not tags & {"script", "img", "iframe", "link", "object", "embed", "form", "base", "a"}


def test_a_page_asks_nobody_and_carries_its_contents(folders):
    values = contents(folders / "sweep")
    shown = page(values).decode()
    assert "Content-Security-Policy" in shown
    assert not re.search(r"""(?:src|href)=|url\(|@import|https?:""", shown)
    inside = re.search(r'<pre id="contents">(.*?)</pre>', shown, re.DOTALL)[1]
    assert json.loads(html.unescape(inside)) == values
    assert (values["kind"], len(values["runs"])) == ("sweep", 4)
    assert [group["n"] for group in values["comparison"]["groups"]] == [2, 2]


def test_a_public_page_leaves_diagnostics_out(folders):
    private = contents(folders / "seeded")
    values = contents(folders / "seeded", public=True)
    SCHEMA.validate(values)
    [before], [after] = private["runs"], values["runs"]
    shown = page(values).decode()
    for name in ("source", "records", "allocation"):
        assert before["digests"][name] not in shown
    assert before["records"] == 455
    assert after["records"] is None
    assert set(after["metrics"]) == {"loss", "accuracy", "balanced_accuracy", "error"}
    assert "contribution_norm" in before["metrics"]
    assert "metrics.csv" not in after["files"]


@pytest.mark.parametrize(("metric", "shown"), [("accuracy", [1, 2]), ("contribution_norm", [])])
def test_a_public_page_shows_no_diagnostic(seeded, metric, shown):
    rewrite(seeded / "status.json", metric=metric)
    for public, rounds in ((False, [1, 2]), (True, shown)):
        [facts] = contents(seeded, public=public, recompute=False)["runs"]
        assert [point["round"] for point in facts["curve"]] == rounds


def test_a_sweep_of_unfinished_runs_has_no_table(tmp_path):
    fake_run(tmp_path / "0", "A", [0.1, 0.2], (1.0, None), state="failed")
    values = contents(tmp_path)
    SCHEMA.validate(values)
    assert "no finished run" in values["comparison"]["why_not"]


def shown_or_refused(folder, **options):
    """The line that refuses a folder; empty for a folder that makes a page."""
    try:
        values = contents(folder, **options)
    except FedprivError as error:
        return str(error).replace("\n", "a second line")
    SCHEMA.validate(values)
    shown = page(values).decode()
    assert all(sign == "\n" or sign.isprintable() for sign in shown)
    return ""


@pytest.mark.parametrize(
    "name",
    [
        *("status.json", "config.yaml", "metrics.csv", "epsilon.csv", "assumptions.csv"),
        *("utility.csv", "bundle/bundle.json"),
    ],
)
@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"{", b'a,b\n"', b"a\n1,2\n"])
def test_a_damaged_file_ends_in_one_line_or_is_shown_as_it_is(seeded, name, content):
    (seeded / name).write_bytes(content)
    refused = shown_or_refused(seeded)
    assert not refused or (name in refused and "a second line" not in refused)


@pytest.mark.parametrize("value", [None, 3, [[1]], {"a": {"b": []}}, 1e400])
def test_values_of_any_kind_make_no_page(seeded, value):
    for key in json.loads((seeded / "status.json").read_text()):
        if key != "state":
            rewrite(seeded / "status.json", **{key: value})
    refused = shown_or_refused(seeded, recompute=False)
    assert "status.json: cannot be read" in refused
    assert "a second line" not in refused


SETTINGS_OF_A_STRANGER = {
    "a number as a key": "1: x",
    "a nested null as a key": "own: {null: x}",
    "a date": "own: 2020-01-01",
    "an endless seed": "seed: .inf",
}


@pytest.mark.parametrize("line", SETTINGS_OF_A_STRANGER.values(), ids=SETTINGS_OF_A_STRANGER)
def test_settings_of_any_kind_end_in_one_line_or_make_a_page(seeded, line):
    """Alone, and in the table of a sweep."""
    settings = (seeded / "config.yaml").read_text()
    assert "seed: 0\n" in settings
    (seeded / "config.yaml").write_text(settings.replace("seed: 0", line))
    for folder in (seeded, seeded.parent):
        refused = shown_or_refused(folder, recompute=False)
        assert not refused or "config.yaml: cannot be read" in refused
        assert "a second line" not in refused


@pytest.mark.parametrize("name", ["ab\u202egnp.exe", os.fsdecode(b"x\xffy")])
def test_invisible_signs_in_the_name_of_a_folder_are_shown(seeded, name):
    other = seeded.parent / name
    seeded.rename(other)
    for folder in (other, seeded.parent):
        assert not shown_or_refused(folder, recompute=False)


def test_digests_of_a_stranger_do_not_stand_for_those_of_the_settings(seeded):
    true = contents(seeded, recompute=False)["runs"][0]["digests"]
    added = {"settings": "0", "settings_of_audits": "0"}
    rewrite(seeded / "status.json", identity=read_status(seeded)["identity"] | added)
    found = contents(seeded, recompute=False)["runs"][0]["digests"]
    assert found == {name: true[name] for name in found}


@pytest.mark.parametrize("key", ["path", "schema"])
def test_no_file_that_the_settings_name_is_shown(seeded, tmp_path, key):
    """The settings may name any file on the machine of who makes the report."""
    (tmp_path / "private.csv").write_text("secret: 1\nsecret2: [a\n")
    settings = yaml.safe_load((seeded / "config.yaml").read_text())
    settings["data"] = {"_target_": "fedpriv.data.table.table.Table"}
    settings["data"] |= {key: str(tmp_path / "private.csv")}
    if key == "path":
        settings["data"] |= {"label": "died", "one_row_per_user": True}
    (seeded / "config.yaml").write_text(yaml.safe_dump(settings))
    [check] = contents(seeded)["runs"][0]["checks"][-1:]
    assert check["result"] == "not checked"
    assert "secret" not in check["why"]


def test_code_of_a_stranger_is_not_run(seeded, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = yaml.safe_load((seeded / "config.yaml").read_text())
    settings["algo"]["_target_"] = "evil.Method"
    (seeded / "config.yaml").write_text(yaml.safe_dump(settings))
    values = contents(seeded)
    assert results(values)[
        "certified epsilons in epsilon.csv, accounted anew from the settings"
    ] == ("not checked")
    assert "evil" not in sys.modules


def test_an_audit_of_other_settings_is_refused(folders, seeded):
    settings = yaml.safe_load((seeded / "config.yaml").read_text())
    row = {"observer": "server", "unit": "user", "certified": 2.0, "audited": 1.0, "estimate": 1.5}
    row |= {"estimate_low": 1.2, "estimate_high": 1.9, "rounds": 2, "refuted": False}
    job = {"rows": [row], "premises": [{"name": "noise", "refuted": False}]}
    audit = seeded / "audit"
    audit.mkdir()
    write_audit(
        audit / "audit.json", 0.95, [{"settings": settings | {"seed": 7, "rounds": 1}, **job}]
    )
    success("report", str(seeded), cwd=seeded.parent)
    values = json.loads((seeded / "report.json").read_text())
    SCHEMA.validate(values)
    assert values["audits"][0]["rows"][0]["estimate_high"] == 1.9
    assert "1.5 (1.2 to 1.9)" in (seeded / "report.html").read_text()
    settings["mechanism"]["noise_multiplier"] = 1.0
    write_audit(audit / "audit.json", 0.95, [{"settings": settings, **job}])
    assert "an audit of this run's settings" in refusal("report", str(seeded), cwd=seeded.parent)


def test_an_audit_of_a_target_covers_its_own_rounds(seeded):
    """Fewer rounds have less noise for the same target."""
    settings = yaml.safe_load((seeded / "config.yaml").read_text())
    settings["accountant"]["target"] = 2
    (seeded / "config.yaml").write_text(yaml.safe_dump(settings))
    (seeded / "audit").mkdir()
    for rounds, code in ((1, 2), (2, 0)):
        job = {"settings": settings | {"rounds": rounds}, "rows": [], "premises": []}
        write_audit(seeded / "audit" / "audit.json", 0.95, [job])
        done = run("report", str(seeded), "--no-recompute", cwd=seeded.parent)
        assert done.returncode == code, done.stderr
        assert ("an audit of this run's settings" in done.stderr) == (code == 2)


def test_a_report_needs_no_torch(folders):
    program = (
        "import sys; from fedpriv.cli import main; "
        "main(['report', 'sweep', '--out', 'x.html']); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folders, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "folder="),
        (["nowhere"], "nowhere: there is no such folder"),
        (["."], "no run at or below it"),
        (["seeded", "--out", "x.pdf"], "--out=x.pdf"),
        (["seeded", "--out", "nowhere/x.html"], "--out=nowhere/x.html"),
        (["seeded", "--audit", "nowhere"], "--audit=nowhere"),
        (["seeded", "--key", "x"], "--key=x"),
        (["--verify", "nowhere"], "nowhere: cannot be read"),
        (["--verify", "x", "--sign", "y"], "--sign=y"),
    ],
)
def test_wrong_words_end_in_one_line(folders, tmp_path, words, named):
    (tmp_path / "seeded").symlink_to(folders / "seeded")
    assert named in refusal("report", *words, cwd=tmp_path)


@pytest.mark.parametrize(
    ("epsilon", "sure"),
    [
        (0.0, "at most 50 %"),
        (1.0, "at most 74 %"),
        (2.5, "at most 93 %"),
        (5.759, "at most 99.7 %"),
        (30.0, "nearly certain (over 99.9 %)"),
        ("inf", "certain"),
    ],
)
def test_how_sure_an_observer_can_become(epsilon, sure):
    """Bayes' rule at even odds: e^epsilon to one."""
    assert guess(epsilon) == sure


def test_every_row_names_its_assumptions_by_number(folders, seeded):
    known = pd.read_csv(seeded / "assumptions.csv").astype(str)
    epsilon = pd.read_csv(seeded / "epsilon.csv")
    named = {number for cell in epsilon["assumptions"] for number in cell.split("; ")}
    assert named == set(known["number"])
    assert known["assumption"].is_unique
    texts = known.set_index("number")["assumption"]
    whole = [one["text"] for one in contents(seeded)["assumptions"]]
    cells = [[texts[number] for number in cell.split("; ")] for cell in epsilon["assumptions"]]
    epsilon.assign(assumptions=[*map("; ".join, cells)]).to_csv(seeded / "epsilon.csv", index=False)
    assert [one["text"] for one in contents(seeded)["assumptions"]] == whole  # as once written
    shutil.copy(folders / "seeded" / "epsilon.csv", seeded / "epsilon.csv")
    (seeded / "assumptions.csv").write_text("round,number,assumption\n1,1,nothing\n")
    assert "assumptions.csv: it lacks the assumption" in shown_or_refused(seeded)


FEATURES = {"age": {"range": [0, 99]}, "hiv_status": {"values": ["no", "yes"]}}
SCHEMA_OF_A_TABLE = {
    "schema": "fedpriv table 1",
    "public": True,
    "user": {"column": None, "number": 9},
    "label": {"column": "died", "problem": "classification", "classes": ["0", "1"]},
    "features": FEATURES,
    "unused": [],
}


def described(folder, **utility):
    """A run's folder with a table's columns, and what its model achieves."""
    table = {"schema": SCHEMA_OF_A_TABLE}
    rewrite(folder / "bundle" / "bundle.json", classes=["0", "1"], table=table)
    head = "part,records,metric,model,trivial,without_privacy"
    rows = [f"all,100,{metric},{values}" for metric, values in utility.items()]
    (folder / "utility.csv").write_text("\n".join([head, *rows, "silo0,3,accuracy,0.1,,"]) + "\n")
    return contents(folder)


def test_a_report_lists_the_features_and_names_what_is_special(seeded):
    values = described(seeded, auc="0.7,0.5,0.8")
    SCHEMA.validate(values)
    [facts] = values["runs"]
    assert (facts["predicts"], facts["classes"]) == ("died", 2)
    assert [(one["name"], one["special"]) for one in facts["features"]] == [
        ("age", ""),
        ("hiv_status", "health"),
    ]
    assert facts["utility"] == [
        {"metric": "auc", "model": 0.7, "trivial": 0.5, "without_privacy": 0.8}
    ]
    shown = page(values).decode()
    assert "1 of 2 features look like special categories" in shown
    for name in facts["components"].values():
        assert f">{name}<" not in shown, "a class stands for what it is"
    assert contents(seeded, public=True)["runs"][0]["utility"] == [
        {"metric": "auc", "model": 0.7, "trivial": None, "without_privacy": None}
    ]
    rewrite(seeded / "status.json", labels={})  # unknown
    assert contents(seeded, public=True)["runs"][0]["utility"] == []


def test_a_metric_that_is_no_finite_number_is_left_open(seeded):
    values = described(seeded, auc="1e999,inf,nan")
    SCHEMA.validate(values)
    [utility] = values["runs"][0]["utility"]
    assert utility == {"metric": "auc", "model": None, "trivial": None, "without_privacy": None}
    assert page(values)


@pytest.mark.parametrize(
    ("metric", "said"),
    [("0.51,0.5,0.8", True), ("0.6,0.5,0.8", False), ("0.9,0.92,", True), ("0.6,,", False)],
)
def test_a_model_that_is_hardly_better_than_none_is_said_so(seeded, metric, said):
    values = described(seeded, accuracy=metric)
    value = float(metric.split(",")[0])
    values["runs"][0]["metrics"]["accuracy"]["value"] = value
    assert ("hardly better than one without information" in page(values).decode()) == said


def test_a_private_run_without_an_alarm_says_that_it_is_valid(folders, tmp_path):
    values = contents(folders / "system")
    private = values | {"alarms": []}
    assert values["runs"][0]["dp_valid"] is True
    valid = b"Valid: the run itself says"
    assert valid in page(private)
    assert valid not in page(values)
    assert valid not in page(contents(folders / "seeded") | {"alarms": []})
    shutil.copytree(folders / "system", tmp_path / "run")
    rewrite(tmp_path / "run" / "status.json", dp_valid=False)
    assert contents(tmp_path / "run")["alarms"][0] == INVALID
