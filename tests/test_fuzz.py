"""Random command lines: each is a run, or one line that names what was typed, with exit code 2, and
none is silent."""

import json
import random
import re
import time

import pytest
import yaml
from command import run
from plausible_words import SMALL as SMALL_RUN
from plausible_words import lines as plausible_lines

from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import GROUPS
from fedpriv.settings.words import conf_dir

SMALL = (
    "rounds=1",
    "preset.n_users=6",
    "preset.local_epochs=1",
    "preset.silo_epochs=1",
    "preset.n_silos=2",
)
VALUES = (
    *(
        "0",
        "1",
        "-1",
        "2",
        "7",
        "0.5",
        "1.5",
        "-0.0",
        "1e-300",
        "1e300",
        "nan",
        "inf",
        "-inf",
        "1e5",
    ),
    *(
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "true",
        "null",
        "''",
        "none",
        "abc",
        "uniform",
    ),
    *(
        "[]",
        "[1,2]",
        "{}",
        "{a:1}",
        "{}{}",
        "[",
        "'",
        '"',
        "${seed}",
        "${nothing}",
        "1,2",
        "a=b",
        "../x",
        "é",
        " ",
        "*",
    ),
)
SECONDS = 20


def keys():
    """Every key that can be set, and some that cannot."""
    [config] = compose_jobs(CommandLine.parse([]), conf_dir())
    plain, found = without_hydra(config), []
    for key in plain:
        nested = plain[key] if hasattr(plain[key], "keys") else ()
        found += [key, *(f"{key}.{name}" for name in nested)]
    return [
        *found,
        "foo",
        "seed.a.b",
        "lr",
        "",
        "experiment",
        "profile",
        "algo.clip.x",
        "+algo.new",
        "~algo.clip",
        "hydra",
    ]


def names(group):
    return [path.stem for path in (conf_dir() / group).glob("*.yaml")]


def lines(seed, number):
    """Command lines, the same for a seed."""
    choice, known = random.Random(seed), keys()
    for _ in range(number):
        words = []
        for _ in range(choice.randint(1, 3)):
            group = choice.choice([*GROUPS])
            chosen = f"{group}={choice.choice(names(group))}"
            words.append(
                chosen
                if choice.random() < 0.25
                else f"{choice.choice(known)}={choice.choice(VALUES)}"
            )
        elsewhere = ("ray", "root", "wandb", "mlflow")  # other programs, the network
        if not any(name in word for word in words for name in elsewhere):
            yield words


def ends_well(words, folder):
    start = time.process_time()  # others may be at work on this machine
    done = run(*SMALL, *words, "hydra.run.dir=out", "data.root=nowhere", cwd=folder)
    seconds = time.process_time() - start
    assert done.returncode in (0, 2), (words, done.stderr)
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if not line.startswith("round ")]
        assert len(said) == 1, (words, done.stderr)
        assert said[0].startswith("fedpriv: ")
        named = [word.partition("=")[0].lstrip("+~") for word in words]
        parts = {part for name in named for part in [name, name.partition(".")[0]] if part}
        where = (*parts, *GROUPS, "key=value", "accountant", "nowhere", "data.root", "rounds")
        assert any(part in said[0] for part in where), (words, done.stderr)
    return seconds


@pytest.mark.parametrize("number", [90, pytest.param(2000, marks=pytest.mark.slow)])
def test_any_words_end_in_one_line_or_a_run(number, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    wrong = []
    for place, words in enumerate(lines(number, number)):
        folder = tmp_path / str(place)
        folder.mkdir()
        try:
            seconds = ends_well(words, folder)
            if seconds > SECONDS:
                wrong.append((words, f"{seconds:.0f} s"))
        except Exception as error:
            wrong.append((words, repr(error)[:600]))
    assert not wrong, "\n".join(map(str, wrong))


def refused(line, stderr):
    """Check a refusal: one line, which begins with a key that was typed or that exists."""
    said = [text for text in stderr.strip().splitlines() if not text.startswith("round ")]
    assert len(said) == 1, stderr
    named = re.match(r"fedpriv: (\S+?)(=|: )", said[0])
    assert named, stderr
    key = named[1]
    known = {*keys(), *(word.partition("=")[0] for word in SMALL_RUN)}
    parts = {part for typed in line.keys for part in (typed, typed.partition(".")[0])}
    assert key in known | parts or key.partition(".")[0] in GROUPS, stderr


def accepted(line, folder):
    """Check a run that was not refused: it is whole, and its configuration has what was typed."""
    run_folder = folder / "out"
    status = json.loads((run_folder / "status.json").read_text())
    assert status["state"] == "done", status
    assert not status["aborted_rounds"], status
    config = yaml.safe_load((run_folder / "config.yaml").read_text())
    for word in line.words:
        key, _, value = word.partition("=")
        if key not in GROUPS:
            found = config
            for part in key.split("."):
                found = found[part]
            assert str(found).lower() == str(yaml.safe_load(value)).lower() or float(
                found
            ) == float(value), (key, found)
    if not status["reason"]:  # a budget may end a run before its first round
        rows = (run_folder / "epsilon.csv").read_text().splitlines()
        assert rows[-1].split(",")[0] == str(config["rounds"]), rows[-1]


def plausible_failures(seed, number, folder, root):
    """The lines that end badly, and how many work."""
    failed, works = [], 0
    for place, line in enumerate(plausible_lines(seed, number)):
        here = folder / str(place)
        here.mkdir()
        try:
            words = [*SMALL_RUN, *line.words, f"data.root={root}", "hydra.run.dir=out"]
            done = run(line.command, *words, cwd=here)
            assert done.returncode in (0, 2), done
            if done.returncode:
                refused(line, done.stderr)
                continue
            works += 1
            assert line.wrong is None, "accepted"
            if line.command == "run":
                accepted(line, here)
        except Exception as error:
            failed.append(f"{line}: {error!r}"[:900])
    return failed, works


@pytest.mark.parametrize("number", [16, pytest.param(1500, marks=pytest.mark.slow)])
def test_plausible_words_work_or_are_refused_with_a_key(number, tmp_path, small_root):
    failed, works = plausible_failures(number, number, tmp_path, small_root)
    assert not failed, "\n".join(failed)
    assert works >= number / 2
