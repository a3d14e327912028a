"""status.json is read by one typed reader: what is malformed ends in one line, wherever it is
read."""

import json

import pytest
from command import refusal, run
from fake_runs import DIGESTS, fake_run, finished_status, read_status

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import find_runs
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.status import Status

WHOLE = finished_status("AVG")
MALFORMED = {
    "empty": ("", "Expecting value"),
    "cut": ('{"state": ', "Expecting value"),
    "null": ("null", "does not contain a mapping"),
    "a list": ("[]", "does not contain a mapping"),
    "no identity": ({"identity": {}}, "identity.holder is missing"),
    "records alone": ('{"records": 5}', "state is missing"),
    "identity of null": ({"identity": None}, "identity=None: expected RunIdentity"),
    "a digest as a number": ({"identity": WHOLE["identity"] | {"code": 7}}, "identity.code=7"),
    "another state": ({"state": "blessed\x1b[2J"}, "state=blessed"),
    "a number as a state": ({"state": 1}, "state=1: expected str"),
    "a text as a number": ({"records": "5"}, "records=5: expected int"),
    "a truth value as a number": ({"records": True}, "records=True: expected int"),
    "an endless number": ({"delta": float("inf")}, "delta=inf: expected a finite number"),
    "no number": ({"delta": float("nan")}, "delta=nan: expected a finite number"),
    "a huge number": ({"delta": 10**400}, "expected a finite number"),
    "a text as a list": ({"not_covered": "all"}, "not_covered=all: expected tuple"),
    "a list of numbers": ({"not_covered": [1]}, "not_covered=1: expected str"),
    "a list as a mapping": ({"labels": []}, "labels"),
    "deep labels": ({"labels": {"a": {"b": {"c": "d"}}}}, r"labels.a.b"),
    "lost as a text": ({"lost_parties": {"1": "silo1"}}, "lost_parties.1=silo1"),
    "dp_valid as a text": ({"dp_valid": "yes"}, "dp_valid=yes: expected bool | None"),
    **{
        f"no {key}": ({key: ...}, f"{key} is missing")
        for key in ("rounds", "label", "metric", "observer", "delta", "randomness", "dp_valid")
    },
}


def written(folder, content):
    """A folder with this status: a text, or changes of a whole one (... leaves a key out)."""
    if isinstance(content, dict):
        values = {key: one for key, one in (WHOLE | content).items() if one is not ...}
        content = json.dumps(values)
    (folder / "status.json").write_text(content)
    return folder


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_malformed_is_one_line_with_the_key(kind, tmp_path):
    content, says = MALFORMED[kind]
    with pytest.raises(FedprivError, match=r"status\.json: cannot be read \(") as said:
        Status.read(written(tmp_path, content))
    assert says in str(said.value)
    assert "\n" not in str(said.value)


def test_what_runs_write_is_read(tmp_path):
    folder = tmp_path / "run"
    words = ("rounds=1", "allocator.n_users=6", "allocator.n_silos=2", "accountant=rdp")
    assert (
        run(*words, "algo.local_epochs=1", f"hydra.run.dir={folder}", cwd=tmp_path).returncode == 0
    )
    status = Status.read(folder)
    raw = read_status(folder)
    assert {name: getattr(status.identity, name) for name in DIGESTS} == raw["identity"]
    assert (status.state, status.rounds, status.records) == ("done", 1, raw["records"])
    assert status.metric_label("loss") == raw["labels"]["metrics.csv"]["loss"]
    assert set(status.noise) == set(raw["noise"])


def test_a_run_that_failed_early_has_a_reason_alone(tmp_path):
    assert Status.find(tmp_path) is None
    RunFolder(tmp_path).ended("failed", "no\nfile")
    status = Status.read(tmp_path)
    assert (status.state, status.reason, status.label) == ("failed", "no file", "")
    with pytest.raises(FedprivError, match="is missing"):
        Status.read(written(tmp_path, '{"state": "done"}'))


@pytest.mark.parametrize("content", [{"identity": {}}, '{"records": 5}', "null", {"state": 7}])
def test_every_reader_refuses_it(content, tmp_path):
    """Tables, figures, reports, forecasts, resumed runs and sweeps."""
    folder = tmp_path / "sweep" / "0"
    fake_run(folder, "AVG", [0.1, 0.2], (1.0, None))
    written(folder, content)
    with pytest.raises(FedprivError, match="cannot be read"):
        find_runs([folder])
    for words in (("table", str(folder)), ("figure", str(folder)), ("report", str(folder))):
        assert "status.json: cannot be read" in refusal(*words, cwd=tmp_path)


TINY = ("rounds=1", "allocator.n_users=6", "allocator.n_silos=2", "algo.local_epochs=1")
MEANINGS = {
    "records": "records (data)",
    "allocation": "owners or silos of records (allocator)",
    "effective": "noise, batch sizes or encodings",
    "code": "source code (fedpriv or a component)",
}


def test_a_sweep_and_a_resumed_run_refuse_it_and_a_sweep_mixes_nothing(tmp_path):
    """Nor goes a sweep on where a finished job had other records, owners of records, another plan
    or other code."""
    words = ("-m", *TINY, "accountant=rdp", "hydra.sweep.dir=sweep", "seed=0")
    assert run(*words, cwd=tmp_path).returncode == 0
    folder = tmp_path / "sweep" / "0"
    whole = read_status(folder)

    def refused(*again, **change):
        (folder / "status.json").write_text(json.dumps(whole | change))
        done = run(*again, cwd=tmp_path)
        assert done.returncode == 2
        return done.stderr

    for change in ({"identity": {}}, {"identity": None}, {"left_out": "silo1"}):
        for again in (words, ("resume=sweep/0", "rounds=2"), ("epsilon", "resume=sweep/0")):
            assert "status.json: cannot be read" in refused(*again, **change)
    for name, meaning in MEANINGS.items():
        told = refused(*words, identity=whole["identity"] | {name: "f" * 64})
        assert f"sweep/0: began with other {meaning}; put the former ones back, or" in told
    (folder / "status.json").write_text(json.dumps(whole))
    assert run(*words, cwd=tmp_path).returncode == 0
