"""A checkpoint goes on under what it was made with, or not at all."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from command import refusal, run
from safetensors.numpy import save

import fedpriv
from fedpriv.errors import FedprivError
from fedpriv.runs.checkpoint import FREE, Checkpoint, Origin

CONFIG = "algo: {clip: 0.1, noise: 5.0}\nseed: 0\nrounds: 6\ndevice: cpu\n"
ORIGIN = Origin.of(CONFIG)
ARRAYS = {
    "params": np.random.default_rng(0).normal(size=50),
    "slot/steps": np.array(3, dtype=np.int64),
}


def with_version(name, text):
    return replace(ORIGIN, versions={**ORIGIN.versions, name: text})


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(Checkpoint(7, ARRAYS, 9, ORIGIN, {}, {}).packed())
    return path


def test_it_comes_back_bit_for_bit(path):
    read = Checkpoint.read(path)
    assert (read.round, read.attempts, read.origin) == (7, 9, ORIGIN)
    for name, array in ARRAYS.items():
        assert read.arrays[name].dtype == array.dtype
        assert read.arrays[name].shape == array.shape
        assert read.arrays[name].tobytes() == array.tobytes()
    assert path.read_bytes() == read.packed()


def test_any_changed_byte_is_noticed(path):
    whole = path.read_bytes()
    for place in np.random.default_rng(1).integers(0, len(whole), 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FedprivError, match=re.escape(str(path))):
            Checkpoint.read(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(FedprivError, match="is damaged"):
        Checkpoint.read(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"params": ARRAYS["params"].reshape(5, 10), "slot/steps": ARRAYS["slot/steps"]},
        {"params": ARRAYS["params"].view(np.int64), "slot/steps": ARRAYS["slot/steps"]},
        {"params": ARRAYS["params"], "slot/jumps": ARRAYS["slot/steps"]},
        ARRAYS | {"params": ARRAYS["params"] + 1},
    ],
    ids=["shape", "type", "name", "numbers"],
)
def test_other_arrays_under_the_same_labels_are_noticed(path, arrays):
    text = json.loads(path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")])[
        "__metadata__"
    ]
    for metadata in (text, {"round": "7"}):
        path.write_bytes(save(arrays, metadata=metadata))
        with pytest.raises(FedprivError, match="wrong checksum"):
            Checkpoint.read(path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (CONFIG.replace("5.0", "5.1"), "algo"),
        (CONFIG.replace("seed: 0", "seed: 1") + "more: 1\n", "more, seed"),
        ("seed: 0\nrounds: 6\n", "algo"),
    ],
)
def test_another_configuration_is_named(path, text, named):
    with pytest.raises(FedprivError, match=f"{re.escape(str(path))} .* differs in {named}$"):
        Checkpoint.read(path).check(path, Origin.of(text))


def test_what_costs_nothing_may_change(path):
    """Nor does the order of keys count."""
    turned = CONFIG.replace("{clip: 0.1, noise: 5.0}", "{noise: 5.0, clip: 0.1}")
    assert turned != CONFIG
    other = Origin.of(
        turned.replace("6", "60").replace("cpu", "auto") + "engine: {a: 1}\nhydra: 1\n"
    )
    assert other == ORIGIN
    assert {"rounds", "device"} <= set(FREE)
    Checkpoint.read(path).check(path, other)


def test_another_fedpriv_is_refused_and_another_torch_is_told(path, monkeypatch):
    read, patch = Checkpoint.read(path), fedpriv.__version__.rpartition(".")[0] + ".99"
    read.check(path, with_version("fedpriv", patch))
    for other in ("7.0.0", "0.99.0"):
        monkeypatch.setattr(fedpriv, "__version__", other)
        with pytest.raises(
            FedprivError,
            match=f"written with fedpriv {ORIGIN.versions['fedpriv']}; this is fedpriv {other}",
        ):
            read.check(path, Origin.of(CONFIG))
    now = with_version("torch", "99.0")
    read.check(path, now)
    assert ORIGIN.changes(now) == [f"resumes with torch 99.0 after {ORIGIN.versions['torch']}"]
    assert ORIGIN.changes(ORIGIN) == []


def test_a_run_does_not_go_on_under_an_edited_configuration(tmp_path):
    """Six rounds at sigma 0.5, which certify 34; with 50 in their place the run would look like
    0.2."""
    words = [
        "rounds=6",
        "algo.noise_multiplier=0.5",
        "algo.local_epochs=1",
        "allocator.n_users=8",
        "accountant=rdp",
    ]
    assert run(*words, "hydra.run.dir=run", cwd=tmp_path).returncode == 0
    config, table = tmp_path / "run" / "config.yaml", (tmp_path / "run" / "epsilon.csv").read_text()
    stored = config.read_text()
    config.write_text(stored.replace("noise_multiplier: 0.5", "noise_multiplier: 50.0"))
    assert config.read_text() != stored
    line = refusal("resume=run", "rounds=12", cwd=tmp_path)
    assert "run/checkpoint.safetensors" in line
    assert "differs in algo, mechanism" in line
    assert (tmp_path / "run" / "epsilon.csv").read_text() == table
    config.write_text(stored)
    assert run("resume=run", "rounds=7", cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "run" / "status.json").read_text())["warnings"] == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run of one round, whose silos remember something."""
    folder = tmp_path_factory.mktemp("finished")
    words = ("algo=scaffold", "allocator.n_users=8", "accountant=rdp", "rounds=1")
    assert run(*words, "hydra.run.dir=run", cwd=folder).returncode == 0
    return folder / "run"


FORGERIES = {
    "round": {"round": "7"},
    "negative": {"attempts": -1},
    "great": {"round": 10**6},
    "marks": {"tables": {"metrics.csv": (2, 3)}},
    "no marks": {"tables": {}},
    "versions": {"origin": Origin({}, {"fedpriv": 3})},
    "no versions": {"origin": Origin({}, {})},
    "params of another shape": {"params": np.zeros(3)},
    "params of another type": {"params": np.zeros((2, 2), np.int8)},
    "a silo that is not there": {"silo/silo99/control": np.zeros(3)},
    "failures": {"failed": np.zeros(1)},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_checkpoint_is_one_line(forgery, finished, tmp_path):
    """The checksum is no signature: a stranger can write any content with a right one."""
    folder = shutil.copytree(finished, tmp_path / "run")
    path = folder / "checkpoint.safetensors"
    saved = Checkpoint.read(path)
    values = FORGERIES[forgery]
    arrays = {key: value for key, value in values.items() if isinstance(value, np.ndarray)}
    labels = {key: value for key, value in values.items() if key not in arrays}
    path.write_bytes(replace(saved, arrays=saved.arrays | arrays, **labels).packed())
    for words in ([f"resume={folder}", "rounds=2"], ["epsilon", f"resume={folder}"]):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 2 or words[0] == "epsilon"
        assert done.stderr.count("\n") == (done.returncode == 2)
