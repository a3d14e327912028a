from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from paper_runs import paper_run

from fedpriv.papers import experiments
from fedpriv.papers.lowy import error_tradeoff, method_choice
from fedpriv.papers.lowy.method_choice import MINIBATCH, SPIDER
from fedpriv.reports.finished_runs import find_runs
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir

SWEEPS = error_tradeoff.method_sweeps({"quick": 2, "paper": 9}, {"quick": "1,2", "paper": "1"})
ONE = ["algo.epsilon=1", "preset.local_lr=0.1", "preset.silo_clip=1", "seed=0"]


def title(root):
    return f"records of {root}"


def fake_run(path, name, error, *, loss, seed=0, epsilon=1.0, calibration="certified", **algo):
    keys = {"_target_": f"fedpriv.algorithms.{name}", "clip": 5, "calibration": calibration}
    keys |= {"epsilon": epsilon, "global_lr": 0.1} | algo
    config = {"seed": seed, "data": {"root": "here"}, "algo": keys}
    paper_run(path, name, [0.5, 1 - error], loss=loss, epsilons=(epsilon, epsilon), config=config)


def results(root, errors, calibration="certified"):
    """Runs of two seeds with an error and a loss of that size, by method and epsilon."""
    for (name, epsilon), error in errors.items():
        for seed in (0, 1):
            keys = {"seed": seed, "epsilon": epsilon, "calibration": calibration}
            place = root / f"{name}{epsilon}{calibration}{seed}"
            fake_run(place, name, error, loss=error, **keys)


def test_the_settings_with_the_least_training_loss_are_chosen(tmp_path):
    variants = {"a": {"variant": "proximal", "phase": 2}, "b": {"variant": "alternate", "phase": 5}}
    for seed in (0, 1):
        error = 0.3 + 0.1 * seed
        fake_run(tmp_path / f"a{seed}", "Spider", error, loss=0.5, seed=seed, **variants["a"])
        fake_run(tmp_path / f"b{seed}", "Spider", 0.1, loss=0.6, seed=seed, **variants["b"])
        fake_run(tmp_path / f"c{seed}", "MinibatchSgd", 0.2, loss=0.1, seed=seed)
    choices = method_choice.choose(find_runs([tmp_path]))
    assert choices["method"].tolist() == [MINIBATCH, SPIDER]
    spider = choices.iloc[1]
    found = spider[["error", "deviation", "splits", "loss", "mapping", "heterogeneity"]]
    assert found.tolist() == pytest.approx([0.35, 0.05 * 2**0.5, 2, 0.5, 1.0, 1.5])
    assert spider["settings"] == "global_lr=0.1 clip=5 variant=proximal phase=2"


def test_settings_that_a_split_diverged_with_are_not_chosen(tmp_path):
    fake_run(tmp_path / "a", "MinibatchSgd", 0.1, loss=0.1, global_lr=1.0)
    for seed in (0, 1):
        fake_run(tmp_path / f"b{seed}", "MinibatchSgd", 0.2, loss=0.2, seed=seed)
        keys = {"loss": float("nan"), "seed": seed, "global_lr": 0.5}
        fake_run(tmp_path / f"c{seed}", "MinibatchSgd", 0.3, **keys)
    choices = method_choice.choose(find_runs([tmp_path]))
    assert choices["error"].tolist() == pytest.approx([0.2])


def test_tables_and_picture(tmp_path):
    errors = {
        (name, e): 0.5 / e + 0.01 for name in ("Spider", "MinibatchSgd", "LocalSgd") for e in (1, 2)
    }
    for calibration in ("paper", "certified"):
        results(tmp_path, errors, calibration)
    results(tmp_path, {("MinibatchSgd", 1): 0.05}, "given")
    figure = error_tradeoff.draw(tmp_path, title=title)
    assert len(pd.read_csv(tmp_path / "choices.csv")) == 2 * 3 * 2 + 1
    assert figure.get_suptitle() == "records of here, 100 training records"
    assert "chosen by the training loss, which no epsilon covers" in figure.get_supxlabel()
    paper, certified, companion = figure.axes
    assert paper.get_xlabel() == "epsilon of the server, claimed"
    assert certified.get_xlabel() == "epsilon of the server, certified"
    assert len(certified.containers) == 3
    np.testing.assert_allclose(companion.lines[-1].get_ydata(), [1, 2])
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_every_method_has_a_sweep_of_its_own_and_none_runs_twice(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        experiments.subprocess,
        "run",
        lambda words, check: asked.append(words[3:]) or SimpleNamespace(returncode=0),
    )
    monkeypatch.setattr(error_tradeoff, "draw", lambda folder, title: None)
    (tmp_path / "spider").mkdir()
    error_tradeoff.figure(tmp_path, "quick", name="lowy/fig4", sweeps=SWEEPS, title=title)
    assert len(asked) == 5
    common = {"experiment=lowy/fig4", "hydra/launcher=side_by_side", "profile=quick_grid"}
    assert all(common <= set(words) for words in asked)
    assert not any("algo.phase=1,2" in words for words in asked)
    assert sum("algo.calibration=given" in words for words in asked) == 2
    assert sum("algo.local_steps=2" in words for words in asked) == 2


def test_a_sweep_s_own_words_stand_in_place_of_the_profile_s(tmp_path, monkeypatch):
    """The same key twice would make every run twice."""
    asked = []
    monkeypatch.setattr(experiments, "run_command", lambda *words: asked.append(words))
    monkeypatch.setattr(error_tradeoff, "draw", lambda folder, title: None)
    error_tradeoff.figure(tmp_path, "quick", name="lowy/fig6", sweeps=SWEEPS, title=title)
    epsilons = [[word for word in words if word.startswith("algo.epsilon=")] for words in asked]
    assert epsilons == [["algo.epsilon=0.75,18"]] * 4 + [["algo.epsilon=10"]] * 2


@pytest.mark.parametrize("sweep", SWEEPS["quick"])
def test_every_sweep_is_made_of_ordinary_jobs(sweep):
    words = [*SWEEPS["quick"][sweep], *(word for word in ONE if "epsilon" not in word)]
    jobs = compose_jobs(
        CommandLine.parse(["experiment=lowy/fig8", "profile=quick_grid", *words]), conf_dir()
    )
    kinds = {build(without_hydra(job)).algo.label for job in jobs}
    assert len(jobs) == {"spider": 12}.get(sweep, 1 if sweep.endswith("not_private") else 6)
    assert len(kinds) == 1
