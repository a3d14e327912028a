"""Mistakes end with one line, exit code 2, no traceback, and no folder left behind."""

import shutil
import subprocess
import sys

import pytest
from command import run, run_child
from small_data import write_creditcard, write_mnist

# (words, what the line must name)
BAD_SETTINGS = [
    (
        ["mechanism=correlated"],
        ["mechanism.bands=1", "mechanism=correlated takes algo.cycle", "mechanism.bands=8"],
    ),
    (["algo=uldp_av"], ["algo=uldp_av", "uldp_avg"]),
    (["datta=digits"], ["datta", "data"]),
    (["algo.clipp=1"], ["algo.clipp", "clip"]),
    (["+algo.extra=1"], ["algo.extra", "unknown key"]),
    (["+colour=red"], ["colour", "unknown key"]),
    (["rounds=ten"], ["rounds=ten", "int"]),
    (["rounds=0"], ["rounds=0", "positive"]),
    (["seed=-1"], ["seed=-1"]),
    (["device=gpu"], ["device=gpu", "cuda"]),
    (["randomness=true-random"], ["randomness", "simulation or system"]),
    (["algo.noise_multiplier=-5"], ["algo.noise_multiplier=-5"]),
    (["algo.clip=0"], ["algo.clip=0"]),
    (["algo.clip=abc"], ["algo.clip=abc", "float"]),
    (["algo.user_rate=0"], ["algo.user_rate=0"]),
    (["algo.user_rate=1.5"], ["algo.user_rate=1.5"]),
    (["algo.weighting=size"], ["algo.weighting=size", "uniform, records"]),
    (["algo.local_epochs=0"], ["algo.local_epochs=0"]),
    (["algo.local_lr=nan"], ["algo.local_lr=nan"]),
    (["algo=uldp_group", "preset.global_lr=-3"], ["preset.global_lr=-3"]),  # nobody reads it
    (["algo=fedavg", "algo.clip=1"], ["algo.clip"]),
    (["algo=fedavg", "mechanism=gaussian"], ["algo.clip"]),
    (["accountant.delta=2"], ["accountant.delta=2"]),
    (["accountant.delta=0"], ["accountant.delta=0"]),
    (["optimizer=adagrad"], ["optimizer=adagrad", "adam, rmsprop, sgd"]),
    (["optimizer.lr=1"], ["optimizer.lr", "unknown key", "momentum", "weight_decay"]),
    (["optimizer.momentum=1"], ["optimizer.momentum=1"]),
    (["algo=uldp_group", "optimizer=adam"], ["optimizer=adam", "sgd"]),
    (["algo=scaffold", "optimizer=adam"], ["optimizer=adam", "sgd"]),
    (["algo=scaffold", "mechanism=gaussian"], ["algo.clip"]),
    (["algo=fedopt", "algo.rule=sgd"], ["algo.rule=sgd", "momentum, adagrad, adam, yogi"]),
    (["algo=fedopt", "algo.second_moment=1"], ["algo.second_moment=1"]),
    (["algo=fedprox", "algo.proximal=-1"], ["algo.proximal=-1"]),
    (["allocator.n_users=0"], ["allocator.n_users=0"]),
    (["data=heart_disease", "allocator.n_silos=7"], ["allocator.n_silos=7", "4"]),
    (["allocator=natural"], ["allocator"]),
    (["seed=0,1"], ["seed", "-m"]),
    (["seed=9223372036854775808"], ["seed=9223372036854775808", "up to 9223372036854775807"]),
    (["-m", "seed=0,1", "algo.clip=0.1,-1"], ["algo.clip=-1"]),
    (["--no-such-flag"], ["--no-such-flag"]),
    (["model=7"], ["model=7", "one name"]),
    (["aggregation=null"], ["aggregation=null", "one name"]),
    (["algo=1,2"], ["algo=1", "one name"]),
    (["profile=null"], ["profile=null", "one name"]),
    (["resume=${nothing}"], ["resume", "nothing"]),
    (["mechanism.noise_multiplier=1e-300"], ["mechanism.noise_multiplier=1e-300", "at least"]),
    (["hydra=null"], ["hydra=null", "hydra.<key>"]),
    (["=1.0"], ["=1.0", "key=value"]),
    (["engine=ray", "engine.timeout=1e300"], ["engine.timeout=1e+300"]),
    (
        ["algo.local_epochs=9223372036854775807"],
        ["algo.local_epochs=9223372036854775807", "100000"],
    ),
    (["algo.local_epochs=1000000"], ["algo.local_epochs=1000000", "100000"]),
    (["allocator.n_silos=9223372036854775807"], ["allocator.n_silos"]),
    (["algo=uldp_group", "algo.group_size=2147483648"], ["algo.group_size=2147483648"]),
    (["algo.clip={}{}"], ["algo.clip={}{}"]),
    (["foo=["], ["foo=["]),
    (["seed.a.b=1"], ["seed.a"]),
    (["data=tcgabrca"], ["data=tcgabrca", "tcga_brca"]),
    (["data=/tmp/x.csv"], ["data=/tmp/x.csv: a name, not a path", "data=table data.path=/tmp/x"]),
    (["data=visits.parquet"], ["a name, not a path", "data=table data.path=visits.parquet"]),
    (["epsilons"], ["epsilons", "did you mean epsilon?"]),
    (["lr=0.1"], ["lr", "algo.local_lr"]),
    (["--config-name=other"], ["--config-name"]),
    (["hydra.mode=${algo}"], ["hydra.mode"]),
    (["hydra.run.dir=${nowhere}"], ["hydra.run.dir", "nowhere"]),
    (["algo=minibatch_sgd", "algo.delta=2"], ["algo.delta=2"]),
    (["algo=dp_erm", "algo.delta=0"], ["algo.delta=0"]),
    (["algo=spider", "algo.delta=-1"], ["algo.delta=-1"]),
    (["algo=dp_erm", "optimizer.weight_decay=0.1"], ["optimizer.weight_decay=0.1"]),
    (["algo=dp_erm", "optimizer=adam"], ["optimizer=adam"]),
    (["allocator=equal", "allocator.n_silos=-1"], ["allocator.n_silos=-1"]),
    (["algo=fedavg", "mechanism=gaussian"], ["mechanism.clip=${algo.clip}", "set mechanism.clip"]),
    (["algo._target_=no.such.Class"], ["algo._target_", "no.such.Class"]),
    (["aggregation._target_=../x"], ["aggregation._target_=../x"]),
    (["algo._target_=fedpriv.models.linear.Linear"], ["algo._target_", "Algorithm"]),
    (["resume=nowhere"], ["resume=nowhere"]),
    (["hydra.run.dir=/proc/runs/1"], ["hydra.run.dir=/proc/runs/1"]),
    (["algo=dp_erm", "algo.noise=sound"], ["algo.noise", "unknown key", "noise_multiplier"]),
    (
        ["algo=cdp_fedavg", "algo.calibration=none"],
        ["algo.calibration=none", "given, paper, certified"],
    ),
    (["engine=processes"], ["engine=processes", "inprocess, ray"]),
    (["predict", "--bogus"], ["bundle, file", "see fedpriv predict --help"]),
    (["export", "run", "--threshold", "half"], ["half", "see fedpriv export --help"]),
    (["audit", "--canaries"], ["--canaries", "see fedpriv audit --help"]),
    (["certify", "--bogus"], ["--bogus", "see fedpriv certify --help"]),
    (["ledger", "shew"], ["shew", "see fedpriv ledger --help"]),
    (["ledger", "grant", "a", "b", "much"], ["much", "see fedpriv ledger grant --help"]),
]

# Found only when the model is built or the data are read, after Hydra has made the run's folder.
BAD_WHEN_LOADED = [
    (["model=mnist_cnn"], ["model"]),
    (["allocator.n_silos=1000", "allocator.n_users=1"], ["allocator.n_silos=1000"]),
    (["data=mnist", "data.root=nowhere"], ["nowhere"]),
]


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)


def one_line(words, named, tmp_path, command=run):
    """Check that `words` end as a mistake should."""
    before = sorted(tmp_path.rglob("*"))
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.startswith("fedpriv: ")
    assert all(text in done.stderr for text in named), done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "named"), [*BAD_SETTINGS, *BAD_WHEN_LOADED], ids=lambda value: " ".join(value)
)
def test_one_line_names_what_is_wrong(words, named, tmp_path):
    one_line(words, named, tmp_path)


def test_an_output_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    one_line(["hydra.run.dir=file/run"], ["hydra.run.dir", "file"], tmp_path)


def cell(value):
    """Another value in the column V3 of the fifth row."""

    def change(text):
        lines = [line.split(",") for line in text.splitlines()]
        lines[5][3] = value
        return "\n".join(map(",".join, lines)) + "\n"

    return change


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (cell("nan"), ["creditcard.csv", "V3"]),
        (cell("wide"), ["creditcard.csv", "V3"]),
        (lambda text: text.replace("V7", "V77"), ["creditcard.csv", "V7"]),
        (lambda text: "", ["creditcard.csv"]),
        (lambda text: text[:-40], ["creditcard.csv"]),
    ],
    ids=["nan", "text", "column", "empty", "truncated"],
)
def test_bad_tables(change, named, tmp_path):
    path = tmp_path / "data" / "creditcard.csv"
    write_creditcard(path, 200, 20)
    path.write_text(change(path.read_text()))
    words = ["data=creditcard", "data.root=data", "allocator.n_users=5", "allocator.n_silos=2"]
    one_line(words, named, tmp_path)


def test_truncated_images(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:1000])
    one_line(["data=mnist", f"data.root={tmp_path}"], ["images-idx3-ubyte"], tmp_path)


@pytest.mark.parametrize(
    ("words", "named"), [(["algo.clip=-1"], ["algo.clip=-1"]), BAD_WHEN_LOADED[0]]
)
def test_the_same_way_through_the_shell(words, named, tmp_path):
    one_line(words, named, tmp_path, command=run_child)


@pytest.mark.skipif(shutil.which("srun") is not None, reason="Slurm is here")
def test_a_sweep_on_slurm_where_there_is_none(tmp_path):
    words = ["-m", "hydra/launcher=submitit_slurm", "seed=0,1", "rounds=1"]
    one_line(words, ["hydra/launcher=submitit_slurm", "hydra/launcher=joblib"], tmp_path)


WITHOUT_TORCH = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Without())
from fedpriv.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("words", [["rounds=1"], ["data=table", "data.path=x.csv", "data.label=y"]])
def test_a_package_that_is_not_installed_is_one_line(words, tmp_path):
    command = [sys.executable, "-c", WITHOUT_TORCH, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
