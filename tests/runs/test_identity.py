"""A run recognises its data, its plan and its code."""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from command import refusal, run, success
from fake_runs import read_status
from small_data import write_creditcard, write_csv

from fedpriv.data.shared import digest_allocation, load
from fedpriv.runtime import allocate, identity, prepare
from fedpriv.runtime.identity import digest_plan, secret_path
from fedpriv.testing import experiment

WORDS = (
    "algo=uldp_avg",
    "data=creditcard",
    "preset.n_users=8",
    "preset.local_epochs=1",
    "rounds=1",
)


@pytest.fixture
def root(tmp_path):
    write_creditcard(tmp_path / "data" / "creditcard" / "creditcard.csv")
    return tmp_path / "data"


def flip_labels(root):
    path = root / "creditcard" / "creditcard.csv"
    header, *rows = [line.split(",") for line in path.read_text().splitlines()]
    write_csv(path, [header, *([*row[:-1], str(1 - int(row[-1]))] for row in rows)])


def cut_file(root):
    path = root / "creditcard" / "creditcard.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-30]) + "\n")


def trained(folder, root, *words):
    success(*WORDS, f"data.root={root}", f"hydra.run.dir={folder}", *words, cwd=folder.parent)
    return folder


@pytest.mark.parametrize("damage", [flip_labels, cut_file])
def test_a_resumed_run_refuses_other_records(damage, root, tmp_path):
    folder = trained(tmp_path / "run", root)
    before = {file: file.read_bytes() for file in folder.glob("*.*") if file.is_file()}
    damage(root)
    told = refusal(f"resume={folder}", "rounds=2", cwd=tmp_path)
    [line] = told.strip().splitlines()
    assert "began with other records (data)" in line
    assert {file: file.read_bytes() for file in folder.glob("*.*") if file.is_file()} == before


def test_a_resumed_run_continues_on_the_same_records_elsewhere(root, tmp_path):
    folder = trained(tmp_path / "run", root)
    config = folder / "config.yaml"
    root.rename(tmp_path / "moved")
    config.write_text(config.read_text().replace(str(root), str(tmp_path / "moved")))
    done = run(f"resume={folder}", "rounds=2", cwd=tmp_path)
    assert "differs in data" in done.stderr  # the path is a setting, whatever it holds
    root.symlink_to(tmp_path / "moved")
    config.write_text(config.read_text().replace(str(tmp_path / "moved"), str(root)))
    assert run(f"resume={folder}", "rounds=2", cwd=tmp_path).returncode == 0


def test_a_run_that_goes_on_with_other_code_says_so(root, tmp_path, monkeypatch):
    folder = trained(tmp_path / "run", root)
    monkeypatch.setattr(identity, "source_digest", lambda name: "edited")
    run(f"resume={folder}", "rounds=2", cwd=tmp_path)
    assert "other source code" in read_status(folder)["warnings"][0]


@pytest.mark.parametrize(
    ("word", "changed"),
    [
        ("allocator=uniform", {"allocation"}),
        ("algo.noise_multiplier=2", {"effective"}),
        ("seed=1", {"records", "allocation"}),
        ("optimizer=adam", set()),  # in the settings, which a resumed run compares too
    ],
)
def test_each_digest_follows_what_it_is_of(word, changed):
    words = ("data=breast_cancer", "preset.n_users=8", "algo=uldp_avg")
    with prepare(experiment(*words)) as one, prepare(experiment(*words, word)) as other:
        before, after = asdict(one.facts.identity), asdict(other.facts.identity)
    assert {name for name in before if before[name] != after[name]} == changed


def plain_digests(words):
    """The digests of a run's data, owners of records and plan without a key."""
    exp = experiment(*words)
    loaded = load(exp.data, exp.streams)
    allocation = allocate(exp)[1]
    with prepare(exp) as run:
        plan = digest_plan(exp, run.plan)
    files = [hashlib.sha256(path.read_bytes()) for path in Path(exp.data.root).rglob("*.csv")]
    found = {loaded.records, loaded.source, digest_allocation(allocation), plan}
    return found | {file.hexdigest() for file in files}


def test_a_run_publishes_no_digest_that_confirms_a_guess(root, tmp_path):
    """A person who guesses the file but lacks the secret can make the digests of the guess."""
    folder = trained(tmp_path / "run", root, "randomness=system")
    assert run("report", str(folder), "--out", "page.html", cwd=tmp_path).returncode == 0
    words = (*WORDS, f"data.root={root}", "randomness=system")
    published = [
        path for path in tmp_path.rglob("*") if path.is_file() and root not in path.parents
    ]
    assert {"status.json", "checkpoint.safetensors", "page.html", "page.json"} <= {
        path.name for path in published
    }
    texts = {path: path.read_bytes() for path in published}
    for digest in plain_digests(words):
        for raw in (digest.encode(), bytes.fromhex(digest), digest[:12].encode()):
            assert not [path for path, text in texts.items() if raw in text]
    assert read_status(folder)["identity"]["records"].encode() in texts[tmp_path / "page.json"]


def test_another_holder_cannot_tell_and_the_former_secret_can(root, tmp_path, monkeypatch):
    folder = trained(tmp_path / "run", root)
    secret = secret_path()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    other = trained(tmp_path / "other", root)
    mine, theirs = (read_status(one)["identity"] for one in (folder, other))
    assert {name for name in mine if mine[name] == theirs[name]} == {"code"}
    assert f"another secret than {secret_path()}; copy the former one there" in refusal(
        f"resume={folder}", "rounds=2", cwd=tmp_path
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "third"))
    secret_path().parent.mkdir(parents=True)
    shutil.copy(secret, secret_path())
    assert run(f"resume={folder}", "rounds=2", cwd=tmp_path).returncode == 0
    assert secret_path().stat().st_mode & 0o077 == 0


def test_a_run_needs_no_place_for_the_secret(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null")
    folder = trained(tmp_path / "run", root)
    done = run(f"resume={folder}", "rounds=2", cwd=tmp_path)
    assert done.returncode == 0, "the same process still has it"


def test_digests_are_the_same_in_another_process():
    words = ("data=breast_cancer", "preset.n_users=8", "algo=spider", "rounds=3")
    code = (
        "from dataclasses import asdict; from fedpriv.testing import experiment\n"
        "from fedpriv.runtime import prepare\n"
        f"with prepare(experiment(*{words!r})) as run: print(asdict(run.facts.identity))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    with prepare(experiment(*words)) as here:
        assert done.stdout.strip() == str(asdict(here.facts.identity))
