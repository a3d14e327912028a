"""Sweeps with a random number of runs: what is drawn, that it stays, and what the choice of the
best costs."""

import io
import json
import shutil
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import yaml
from command import refusal, run, success

import fedpriv
from fedpriv.data.embedded import Artificial
from fedpriv.errors import ConfigError
from fedpriv.reports.selection_cost import BEST
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.sweeps.random_number import RandomNumber, SweepDraw
from fedpriv.testing.experiments import experiment

WORDS = ("rounds=2", "preset.local_epochs=1", "preset.n_users=8")
GRID = ("preset.local_lr=0.01,0.1", "algo.noise_multiplier=3,5")
SWEEP = ("-m", "hydra/sweeper=random_number", "hydra.sweeper.mean=4", *WORDS, *GRID)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep, and what the command has said."""
    folder = tmp_path_factory.mktemp("trials")
    done = success(*SWEEP, f"hydra.sweep.dir={folder / 'sweep'}", cwd=folder)
    return folder / "sweep", done.stdout


def words(folder, number):
    return set(yaml.safe_load((folder / str(number) / ".hydra/overrides.yaml").read_text()))


def test_runs_are_those_that_were_drawn(swept):
    folder, _ = swept
    draw = SweepDraw.read(folder)
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {
        *(str(n) for n in range(len(draw.chosen))),
        BEST,
    }
    for number, own in enumerate(draw.words()):
        assert words(folder, number) == set(own)
        assert f"seed={number}" in own


def test_the_table_says_what_the_best_costs(swept):
    folder, said = swept
    finals = [
        pd.read_csv(folder / str(n) / "metrics.csv").accuracy.iloc[-1]
        for n in range(len(SweepDraw.read(folder).chosen))
    ]
    cost = SweepDraw.read(folder).cost
    note = " ".join(said.split()).partition("best of a random number of runs")[2]
    assert f"sweep/{int(np.argmax(finals))} with accuracy {max(finals):.4f}" in note.replace(
        " /", "/"
    )
    assert f"covered: epsilon {cost.certified:.4g} (one run: {cost.one:.4g}), unit user" in note
    assert "not covered" not in note


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("chosen", [9]),
        ("chosen", [-1]),
        ("chosen", "0"),
        ("rounds", [2]),
        ("configs", [None]),
        ("asked", {}),
        ("asked", {"mean": 4, "shape": 1, "metric": None, "seed": 0, "settings": [[]]}),
        ("cost", {"certified": "1"}),
    ],
)
def test_a_draw_of_a_stranger_ends_in_one_line(key, value, swept, tmp_path):
    folder = shutil.copytree(swept[0], tmp_path / "sweep")
    draw = json.loads((folder / "trials.json").read_text())
    (folder / "trials.json").write_text(json.dumps(draw | {key: value}))
    assert "trials.json is damaged" in refusal("table", str(folder), cwd=tmp_path)


def test_the_cost_is_that_of_the_costliest_setting(swept):
    cost = SweepDraw.read(swept[0]).cost
    one = [
        row.certified
        for row in EpsilonForecast.of(experiment(*WORDS, "algo.noise_multiplier=3")).rows_at([2])
        if (row.observer, row.method) == ("released model", "rdp")
    ]
    assert cost.one == pytest.approx(one[0])
    assert cost.certified > cost.one


def test_settings_of_which_neither_curve_is_the_larger_one_pay_for_both():
    """Sampled and whole: which one costs more depends on the order."""
    sampled = experiment(*WORDS, "algo.user_rate=0.1", "algo.noise_multiplier=1", "rounds=4")
    whole = experiment(*WORDS, "algo.noise_multiplier=3")
    sweeper = RandomNumber(4.0, 1.0)
    both, each = sweeper.cost([sampled, whole]), [sweeper.cost([exp]) for exp in (sampled, whole)]
    assert both.certified > max(one.certified for one in each)


def test_the_certificate_of_a_user_is_not_passed_over_for_that_of_a_record():
    exp = experiment("algo=cdp_fedavg", "algo.records_per_user=2", "rounds=2")
    with pytest.raises(ConfigError, match="no groups of records"):
        RandomNumber(4.0, 1.0).cost([exp])


def test_another_sweep_is_refused_there(swept):
    done = run(*SWEEP, "hydra.sweeper.shape=0", f"hydra.sweep.dir={swept[0]}", cwd=swept[0])
    assert done.returncode == 2
    assert "holds another sweep's draw" in done.stderr


def status(**facts):
    return "status.json", lambda text: json.dumps(json.loads(text) | facts)


def doubled_rate(text):
    config = yaml.safe_load(text)
    config["algo"]["local_lr"] *= 2
    return yaml.safe_dump(config)


def spent(text):
    table = pd.read_csv(io.StringIO(text))
    table["certified"] *= 10
    return table.to_csv(index=False)


REPEATED = {"randomness": "system", "dp_valid": True, "repeated_rounds": {"1": 1}}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (status(state="interrupted"), "not covered"),
        (status(rounds=3), "not covered: 0 has other rounds than planned"),
        (status(**REPEATED), "repeated rounds after an interruption"),
        (("config.yaml", doubled_rate), "not covered: 0 has other settings than drawn: algo"),
        (("epsilon.csv", spent), "not covered: these runs spent more than the draw planned: 0"),
    ],
    ids=["missing", "longer", "repeated", "other settings", "spent more"],
)
def test_what_was_not_planned_is_not_covered(swept, tmp_path, edit, says):
    folder = shutil.copytree(swept[0], tmp_path / "sweep")
    name, change = edit
    path = folder / "0" / name
    path.write_text(change(path.read_text()))
    [selection] = fedpriv.load(folder).report().selections
    assert says in selection.cost


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("hydra.sweeper.mean=1",), "hydra.sweeper.mean=1"),
        (("hydra.sweeper.shape=-1",), "hydra.sweeper.shape=-1"),
        (("seed=1,2",), "seed"),
        (("randomness=system,simulation",), "randomness=simulation: the same for all settings"),
        (("hydra/launcher=joblib",), "hydra/launcher=joblib"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(tmp_path, more, says):
    if "joblib" in more[0]:
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    done = run(*SWEEP, *more, f"hydra.sweep.dir={tmp_path / 'sweep'}", cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("sweep/[0-9]*"))


def test_with_real_randomness_every_draw_is_another(tmp_path):
    exps = [
        experiment(*WORDS, "randomness=system", f"preset.local_lr={rate}") for rate in (0.1, 0.2)
    ]
    sweeper = RandomNumber(50.0, 1.0)
    draws = [
        tuple(sweeper.draw(tmp_path / str(n), [["a"], ["b"]], exps, [{}] * 2).chosen)
        for n in range(4)
    ]
    assert len(set(draws)) > 1
    counts = Counter(place for draw in draws for place in draw)
    assert set(counts) == {0, 1}


def test_runs_with_real_noise_have_one_law_and_tell_no_number(tmp_path):
    """The theorem is of equal runs. A seed of its own would give each another split and start, by
    which a released model tells how many runs there were at least."""
    exps = [experiment(*WORDS, "randomness=system", "seed=7")]
    draw = RandomNumber(50.0, 1.0).draw(tmp_path, [["a"]], exps, [{}])
    assert {word for words in draw.words() for word in words} == {"a", "seed=7"}


@dataclass(frozen=True)
class Scaled(Artificial):
    """Somebody's data, scaled by their own mean."""

    read_without_noise = ("scaled by the exact mean",)


def test_a_choice_is_not_certified_on_records_that_were_read_without_noise():
    exp = replace(experiment(*WORDS), data=Scaled(size=200))
    with pytest.raises(ConfigError, match="read off without noise: scaled by the exact mean"):
        RandomNumber(4, 1.0).cost([exp])
