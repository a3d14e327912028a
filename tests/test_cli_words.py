"""How the words of a command line are taken, without running anything."""

import pytest

from fedpriv import cli
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.help import conf_dir


@pytest.mark.parametrize(
    ("words", "command", "rest"),
    [
        (["algo=fedavg"], "run", ["algo=fedavg"]),
        (["run", "rounds=1"], "run", ["rounds=1"]),
        (["train", "rounds=1"], "run", ["rounds=1"]),
        (["~tracker"], "run", ["~tracker"]),
        (["-m", "seed=0,1"], "run", ["-m", "seed=0,1"]),
        ([], "run", []),
        (["epsilon", "rounds=2"], "epsilon", ["rounds=2"]),
        (["--help"], "show_help", ["--help"]),
        (["epsilon", "-h"], "show_help", ["-h"]),
        (["table", "--help"], "main", ["--help"]),
        (["--cfg", "job"], "start_hydra", ["--cfg", "job"]),
        (["--version", "rounds=1"], "_show_version", []),
    ],
)
def test_the_first_word_may_name_a_command(words, command, rest):
    function, own = cli._chosen(words)
    assert (function.__name__, own) == (command, rest)


def test_an_unknown_command_is_refused_with_the_nearest():
    with pytest.raises(FedprivError, match=r"tabel: unknown command; did you mean table\? allowed"):
        cli._chosen(["tabel", "outputs"])


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
        (["rounds"], r"rounds: expected key=value"),
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
