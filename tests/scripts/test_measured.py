"""The page's table of Lowy et al.'s methods are those of the committed results."""

from pathlib import Path

import pytest
from paper_runs import paper_run

from fedpriv.reports.finished_runs import find_runs
from scripts.measured import MINIBATCH, SPIDER, choose, rates, read

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_table_holds():
    assert rates(read()) in (ROOT / "docs" / "rates.md").read_text()


def test_the_table_tells_settings_and_splits():
    measured = read()
    assert 12 in {*measured["silos"]}
    assert (measured["splits"] >= 5).all()
    assert measured["settings"].all()
    for _, here in measured.groupby("silos"):
        assert {SPIDER, MINIBATCH} <= {*here["method"]}
        equal = here[here["calibration"] == "certified"]
        assert {*equal["epsilon"]} == {0.75, 1, 1.5, 3, 6, 12, 18}
        assert equal["certified"].to_numpy() == pytest.approx(equal["epsilon"].to_numpy(), rel=1e-3)


def fake_run(path, name, error, *, loss, seed, **algo):
    keys = {"_target_": f"fedpriv.algorithms.{name}", "clip": 5, "calibration": "certified"}
    keys |= {"epsilon": 1.0, "global_lr": 0.1} | algo
    config = {"seed": seed, "data": {"root": "here"}, "algo": keys}
    paper_run(path, name, [0.5, 1 - error], loss=loss, epsilons=(1.0, 1.0), config=config)


def test_the_settings_with_the_least_training_loss_at_every_split_are_chosen(tmp_path):
    tried = {
        "a": ("Spider", 0.3, 0.5, {"variant": "proximal", "phase": 2}),
        "b": ("Spider", 0.1, 0.6, {"variant": "alternate", "phase": 5}),
        "c": ("MinibatchSgd", 0.2, 0.2, {}),
        "d": ("MinibatchSgd", 0.3, float("nan"), {"global_lr": 0.5}),
    }
    for place, (name, error, loss, keys) in tried.items():
        for seed in (0, 1):
            folder = tmp_path / f"{place}{seed}"
            fake_run(folder, name, error + 0.1 * seed, loss=loss, seed=seed, **keys)
    fake_run(tmp_path / "e", "MinibatchSgd", 0.1, loss=0.1, seed=0, global_lr=1.0)  # 1 diverged
    choices = choose(find_runs([tmp_path]))
    assert choices["method"].tolist() == [SPIDER, MINIBATCH]
    assert choices["error"].tolist() == pytest.approx([0.35, 0.25])
    spider = choices.iloc[0]
    found = spider[["deviation", "splits", "loss", "mapping", "heterogeneity"]]
    assert found.tolist() == pytest.approx([0.05 * 2**0.5, 2, 0.5, 1.0, 1.5])
    assert spider["settings"] == "global_lr=0.1 clip=5 variant=proximal phase=2"
