"""Lines of files: run folders, pickles, archives."""

import gzip
import shutil

import pytest
import yaml
from command import refusal, run, success

from fedpriv.errors import FedprivError
from fedpriv.runs.stored_config import read_config

pytestmark = pytest.mark.slow
TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest") / "run"
    success(*TINY, "rounds=1", f"hydra.run.dir={folder}", cwd=folder.parent)
    return folder


@pytest.fixture
def stored(honest, tmp_path):
    """A fresh copy of a finished run."""
    return shutil.copytree(honest, tmp_path / "theirs")


def rewrite(folder, **values):
    """Change the stored settings; `a__b` stands for the key a.b."""
    file = folder / "config.yaml"
    config = yaml.safe_load(file.read_text())
    for key, value in values.items():
        *above, last = key.split("__")
        node = config
        for name in above:
            node = node[name]
        node[last] = value
    file.write_text(yaml.safe_dump(config))


def resumed(folder):
    return run(f"resume={folder}", "rounds=2", cwd=folder.parent)


@pytest.mark.parametrize(
    "name",
    [
        "fedpriv_evil.X",
        "fedprivx.X",
        "fedpriv.cli.os.system",
        "fedpriv.errors.sys.exit",
        "fedpriv..X",
        ".X",
        "fedpriv.runs.folder.Path",
        "fedpriv.testing.deaths.Death",
        "builtins.dict",
        "FEDPRIV.x.X",
    ],
)
def test_a_class_that_only_looks_like_ours_is_not_imported(name, stored):
    ran = stored.parent / "ran"
    evil = f"open({str(ran)!r}, 'w')\nclass X: pass\n"
    (stored.parent / "fedpriv_evil.py").write_text(evil)
    rewrite(stored, tracker___target_=name)
    assert resumed(stored).returncode == 2
    assert not ran.exists()


@pytest.mark.parametrize(
    "text",
    ["${oc.env:HOME}", "a${oc.env:PATH}", "${hydra:runtime.cwd}", "${oc.decode:1}", "${seed}"],
)
def test_interpolations_are_refused(text, stored, refused):
    rewrite(stored, device=text)
    refused(lambda: read_config(stored), FedprivError)


@pytest.mark.parametrize("hard", [False, True])
def test_nothing_is_written_through_a_link(hard, stored):
    victim, path = stored.parent / "victim", stored / "metrics.csv"
    path.rename(victim)
    before = victim.read_bytes()
    if hard:
        path.hardlink_to(victim)
    else:
        (stored / "other").symlink_to(victim)
        path.symlink_to(stored / "other")
    resumed(stored)
    assert victim.read_bytes() == before


@pytest.mark.parametrize("kind", ["noise", "cut", "twice"])
def test_a_damaged_checkpoint_is_refused_in_one_line(kind, stored, chance):
    path = stored / "checkpoint.safetensors"
    raw = path.read_bytes()
    wrong = {"noise": chance.randbytes(len(raw)), "cut": raw[: len(raw) // 2], "twice": raw + raw}
    path.write_bytes(wrong[kind])
    done = resumed(stored)
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [1,1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1},*a{i - 1}]\n" for i in range(1, 30)),
        "a: !!python/object/apply:os.system [id]\n",
        "<<: {a: 1}\n",
        "seed: 1\nseed: 2\n",
        "? [a]\n: 1\n",
        "\0",
        "a: " + "[" * 5000,
    ],
    ids=["bomb", "tag", "merge", "twice", "key", "zero", "deep"],
)
def test_yaml_beyond_plain_values_is_refused(text, stored, refused):
    (stored / "config.yaml").write_text(text)
    refused(lambda: read_config(stored), FedprivError)


def test_an_archive_of_a_thousand_million_zeros_is_refused_before_it_is_unpacked(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz", "wb", 1) as file:
        for _ in range(200):
            file.write(bytes(5 * 10**6))
    refusal("data", "data=mnist", f"data.root={tmp_path}", cwd=tmp_path)


def test_control_characters_are_printed_as_text(stored):
    rewrite(stored, **{"algo\x1b[31m": "\x9b2J\u202e"})
    done = resumed(stored)
    assert done.returncode == 2
    assert not {"\x1b", "\x9b", "\u202e"} & set(done.stderr)


def test_table_and_epsilon_change_no_byte(stored):
    def content():
        return {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}

    before = content()
    for words in (("table", str(stored)), ("epsilon", f"resume={stored}")):
        assert run(*words, cwd=stored.parent).returncode == 0
    assert before == content()


RAY, MLFLOW = "fedpriv.engines.ray.RayEngine", "fedpriv.trackers.mlflow.MlFlow"


@pytest.mark.parametrize(
    "node",
    [
        {"engine": {"_target_": RAY, "address": "auto"}},
        {"engine": {"_target_": RAY, "journals": "j"}},
        {"engine": {"_target_": RAY, "roster": "r", "keys": "k", "journals": "j"}},
        {"tracker": {"_target_": MLFLOW, "uri": "file:///tmp/x", "experiment": "x"}},
    ],
)
def test_a_folder_names_no_cluster_tracker_or_keys(node, stored):
    rewrite(stored, **node)
    done = resumed(stored)
    assert done.returncode == 2
    assert "--trust-code" in done.stderr
