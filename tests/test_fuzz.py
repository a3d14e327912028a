"""Random command lines: each is a run, or one line that names what was typed, with exit code 2, and
none is silent."""

import json
import re

import pytest
import yaml
from command import run
from plausible_words import SMALL as SMALL_RUN
from plausible_words import lines as plausible_lines

from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import GROUPS
from fedpriv.settings.words import conf_dir


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
