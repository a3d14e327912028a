"""How the words of a command line are taken, without running anything."""

import pytest
from refusals import refused

from fedpriv import cli
from fedpriv.comparisons.request import Request
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.words import conf_dir, seeds, with_listed_seeds


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


def composed(*words):
    jobs = compose_jobs(CommandLine.parse(list(words)), conf_dir())
    return [list(job.hydra.overrides.task) for job in jobs]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (
            "-m seed=0,1 rounds=2,3 quiet=true",
            [f"quiet=true seed={seed} rounds={rounds}" for seed in (0, 1) for rounds in (2, 3)],
        ),
        ("rounds=2 -m seed=1..3", [f"rounds=2 seed={seed}" for seed in (1, 2, 3)]),
        ("-m seed=1..3", ["seed=1", "seed=2", "seed=3"]),
    ],
)
def test_a_sweep_has_every_combination_in_order_and_seeds_may_be_a_range(words, jobs):
    assert composed(*words.split()) == [job.split() for job in jobs]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["seed=0,1"], "seed=0,1: several values need -m"),
        (["quickly"], "quickly: expected key=value"),
        (["=3"], "=3: expected key=value"),
        (["algo=3"], "algo=3: one name of this config group"),
        (["data={a: 1}"], "one name of this config group"),
        (["algo=nothing"], "algo=nothing: not found"),
        (["hydra={}"], "set Hydra's keys as hydra"),
        (["--config-name", "x"], "--config-name is not supported"),
        (["algo.clp=1"], "algo.clp=...: unknown key; did you mean clip"),
    ],
)
def test_wrong_words_are_refused_in_one_line(words, says):
    refused(lambda: composed(*words), says)


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
        (["tabel", "outputs"], "tabel: unknown command; did you mean table? allowed"),
        (["delta=1e-6"], "did you mean accountant.delta?"),
        (["epochs=3"], "did you mean algo.local_epochs?"),
        (["algo=ULDP-AVG"], "did you mean uldp_avg?"),
        (["-m", "seed=0-4"], "seeds such as 0,1,2 or 0..4"),
        (["compare", "algo", "uldp_avg,uldp_sgd"], "an equals sign; write algo=uldp_avg"),
        (["compare", "algo=a,b", "--config-dir", "nowhere"], "--config-dir nowhere: there is no"),
    ],
)
def test_what_somebody_may_have_meant_is_said(words, says):
    if words[0] == "compare":
        refused(lambda: Request.parse(words[1:]), says)
    else:
        refused(lambda: composed(*cli.chosen(words)[1]), says)


def test_a_runs_folder_is_not_a_command(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    with pytest.raises(FedprivError, match=r"a run's folder; resume=.* continues it"):
        cli.chosen([str(tmp_path)])


@pytest.mark.parametrize(
    ("text", "found"),
    [("0..4", [0, 1, 2, 3, 4]), ("3..3", [3]), ("7", [7]), ("0, 5..6,2", [0, 5, 6, 2])],
)
def test_ranges_of_seeds(text, found):
    assert seeds("seed", text) == found


ALLOWED = r"seeds such as 0,1,2 or 0\.\.4"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        *((text, ALLOWED) for text in ("4..0", "0..", "..3", "a..b", "0...4", "-1..2", "0..10000")),
        ("", ALLOWED),
        ("0..3,2", "each seed once"),
    ],
)
def test_other_text_is_refused(text, allowed):
    with pytest.raises(ConfigError, match=allowed):
        seeds("seed", text)


def test_only_seeds_are_listed():
    words = ["-m", "seed=0..2", "hydra.sweep.dir=../a..b", "algo.clip=0..4", "seed=1,2"]
    listed = ["-m", "seed=0,1,2", "hydra.sweep.dir=../a..b", "algo.clip=0..4", "seed=1,2"]
    assert with_listed_seeds(words) == listed


@pytest.mark.parametrize("word", ["algo.clip=,", "data.drop=[a b,c]", "data.label=died", "data"])
def test_only_odd_words_of_a_table_are_quoted(word):
    assert with_listed_seeds(["data.decimal=,", word]) == ['data.decimal=","', word]
