"""How the words of a command line are taken, without running anything."""

import pytest

from fedpriv import cli
from fedpriv.comparisons.request import Request
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.words import conf_dir


@pytest.mark.parametrize(
    ("words", "command", "rest"),
    [
        (["algo=fedavg"], "run", ["algo=fedavg"]),
        (["run", "rounds=1"], "run", ["rounds=1"]),
        (["train", "rounds=1"], "run", ["rounds=1"]),
        (["~tracker"], "run", ["~tracker"]),
        (["-m", "seed=0,1"], "run", ["-m", "seed=0,1"]),
        ([], "run", []),
        (["epsilon", "rounds=2"], "main", ["rounds=2"]),
        (["--help"], "show_help", ["--help"]),
        (["epsilon", "-h"], "show_help", ["-h"]),
        (["table", "--help"], "main", ["--help"]),
        (["--cfg", "job"], "start_hydra", ["--cfg", "job"]),
        (["--version", "rounds=1"], "show_version", []),
    ],
)
def test_the_first_word_may_name_a_command(words, command, rest):
    function, own = cli.chosen(words)
    assert (function.__name__, own) == (command, rest)


def test_an_unknown_command_is_refused_with_the_nearest():
    with pytest.raises(FedprivError, match=r"tabel: unknown command; did you mean table\? allowed"):
        cli.chosen(["tabel", "outputs"])


def composed(*words):
    jobs = compose_jobs(CommandLine.parse(list(words)), conf_dir())
    return [list(job.hydra.overrides.task) for job in jobs]


def test_a_sweep_has_every_combination_in_order():
    assert composed("-m", "seed=0,1", "rounds=2,3", "quiet=true") == [
        ["quiet=true", f"seed={seed}", f"rounds={rounds}"] for seed in (0, 1) for rounds in (2, 3)
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["seed=0,1"], r"seed=0,1: several values need -m"),
        (["quickly"], r"quickly: expected key=value"),
        (["=3"], r"=3: expected key=value"),
        (["algo=3"], r"algo=3: one name of this config group"),
        (["data={a: 1}"], r"one name of this config group"),
        (["algo=nothing"], r"algo=nothing: not found"),
        (["hydra={}"], r"set Hydra's keys as hydra"),
        (["--config-name", "x"], r"--config-name is not supported"),
        (["algo.clp=1"], r"algo\.clp=\.\.\.: unknown key; did you mean clip"),
    ],
)
def test_wrong_words_are_refused_in_one_line(words, says):
    with pytest.raises((ConfigError, FedprivError), match=says) as error:
        composed(*words)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rounds", "5"], "rounds: settings have an equals sign; write rounds=5"),
        (["algo=uldp_avg", "rounds", "5"], "write rounds=5"),
        (["epsilon", "rounds", "5"], "write rounds=5"),
        (["rounds"], "write rounds=VALUE"),
        (["algo.clip", "1"], "write algo.clip=1"),
        (["rounds:5"], "write rounds=5"),
        (["--rounds=5"], "--rounds=5: settings have no dashes; write rounds=5"),
        (["--n", "--algo", "uldp_avg"], "write algo=uldp_avg"),
        (["--evaluate-every=2"], "write evaluate_every=2"),
        (["uldp_avg"], "uldp_avg: did you mean algo=uldp_avg?"),
        (["epsilon", "ULDP-SGD"], "ULDP-SGD: did you mean algo=uldp_sgd?"),
        (["visits.csv"], "visits.csv: a name, not a path; your own file: data=table data.path="),
        (["data=/tmp/x.csv"], "data=/tmp/x.csv: a name, not a path; "),
        (["data=visits.parquet"], "data=visits.parquet: a name, not a path; "),
        (["model=./net.py"], "--config-dir folder finds your own folder/model/name.yaml"),
        (["epsilon=2"], "did you mean accountant.target?"),
        (["target=2"], "did you mean accountant.target?"),
        (["data.path=visits.csv"], "data.path=...: a key of your own table: data=table data.path="),
        (["--config-dir", "nowhere"], "--config-dir nowhere: there is no such folder"),
        (["delta=1e-6"], "did you mean accountant.delta?"),
        (["epochs=3"], "did you mean algo.local_epochs?"),
        (["algo=ULDP-AVG"], "did you mean uldp_avg?"),
        (["-m", "seed=0-4"], "seeds such as 0,1,2 or 0..4"),
    ],
)
def test_what_somebody_may_have_meant_is_said(words, says):
    with pytest.raises(FedprivError) as error:
        composed(*cli.chosen(words)[1])
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["algo", "uldp_avg,uldp_sgd"], "algo: settings have an equals sign; write algo=uldp_avg"),
        (["algo=a,b", "--config-dir", "nowhere"], "--config-dir nowhere: there is no such folder"),
    ],
)
def test_compare_says_it_too(words, says):
    with pytest.raises(FedprivError) as error:
        Request.parse(words)
    assert says in str(error.value)


def test_a_runs_folder_is_not_a_command(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(FedprivError, match=r"a run's folder; resume=.* continues it"):
        cli.chosen([str(tmp_path)])


def test_seeds_may_be_a_range_on_either_side_of_the_flag():
    assert composed("rounds=2", "-m", "seed=1..3") == [
        ["rounds=2", f"seed={seed}"] for seed in (1, 2, 3)
    ]
    assert composed("-m", "seed=1..3") == [["seed=1"], ["seed=2"], ["seed=3"]]
