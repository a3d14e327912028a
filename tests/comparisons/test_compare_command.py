"""`fedpriv compare`: equal certificates, seeds, tuning, statistics, files, and how it goes on."""

from __future__ import annotations

import json
import re
from itertools import combinations

import numpy as np
import pytest
from command import refusal, run, success
from fake_runs import fake_run
from interrupted import interrupted_in
from scipy.stats import ttest_1samp, ttest_rel

from fedpriv.aggregation.epsilon_target import noise_text
from fedpriv.comparisons.command import compare
from fedpriv.comparisons.picture import draw, mean_interval
from fedpriv.comparisons.request import Method, Request
from fedpriv.comparisons.trials import NO_CHOICE, Choice, Trial, choose
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.reports.finished_runs import read_run

SMALL = ("rounds=1", "preset.local_epochs=1", "preset.silo_epochs=1", "preset.n_users=8")
TWO = ("compare", "algo=uldp_avg,uldp_sgd", "epsilon=2", *SMALL)


def result(folder):
    return json.loads((folder / "comparison.json").read_text())


def test_four_methods_with_five_seeds(tmp_path):
    four = "algo=uldp_avg,uldp_sgd,uldp_naive,uldp_group"
    done = success("compare", four, "epsilon=2", "seed=0..4", *SMALL, "--folder=out", cwd=tmp_path)
    found = result(tmp_path / "out")
    methods = {one["method"]: one for one in found["methods"]}
    assert len(methods) == 4
    for one in methods.values():
        assert 2 - 1e-3 < one["certified"] <= 2
        assert (one["unit"], one["observer"]) == ("user", "released model")
        assert list(one["values"]) == ["0", "1", "2", "3", "4"]
        values = np.array(list(one["values"].values()))
        assert one["mean"] == pytest.approx(values.mean())
        assert one["sd"] == pytest.approx(values.std(ddof=1))
    assert_equals_scipy(found, methods)
    means = [one["mean"] for one in found["methods"]]
    assert means == sorted(means, reverse=True)
    assert found["reference"] == found["methods"][0]["method"]
    shown = (tmp_path / "out" / "comparison.tex").read_text()
    assert rf"{means[0]:.4f} $\pm$" in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "runs",
        *(f"comparison{suffix}" for suffix in (".csv", ".md", ".tex", ".json", ".png")),
    }
    assert re.search(r"20/20  algo=uldp_\w+ seed=4: accuracy", done.stderr)
    assert "algo=uldp_group seed=4: accuracy" in done.stderr


def assert_equals_scipy(found, methods):
    """Every pair is tested as scipy does, and Holm's correction keeps to its definition."""
    assert len(found["tests"]) == len(list(combinations(methods, 2)))
    for test in found["tests"]:
        one, other = (
            np.array(list(methods[test[side]]["values"].values())) for side in ("one", "other")
        )
        assert test["difference"] == pytest.approx((one - other).mean())
        assert test["p"] == pytest.approx(ttest_rel(one, other).pvalue)
    p = sorted(test["p"] for test in found["tests"])
    for test in found["tests"]:
        steps = [min(1, (len(p) - k) * value) for k, value in enumerate(p) if value <= test["p"]]
        assert test["corrected_p"] == pytest.approx(max(steps))


def test_the_same_command_repeats_nothing_and_more_seeds_extend_it(tmp_path):
    assert run(*TWO, "seed=0..1", "--folder=out", cwd=tmp_path).returncode == 0
    first = result(tmp_path / "out")
    models = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("seed=*/model.safetensors")}
    assert len(models) == 4
    assert run(*TWO, "seed=0..2", "--folder", "out", cwd=tmp_path).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in models} == models
    more = result(tmp_path / "out")
    assert more["seeds"] == [0, 1, 2]
    for before, after in zip(
        sorted(first["methods"], key=lambda one: one["name"]),
        sorted(more["methods"], key=lambda one: one["name"]),
    ):
        assert before["values"].items() <= after["values"].items()
    other = run(
        "compare", "algo=uldp_avg,uldp_sgd", "epsilon=3", *SMALL, "--folder=out", cwd=tmp_path
    )
    assert other.returncode == 2
    assert "holds a run with other settings (accountant)" in other.stderr


def test_settings_are_chosen_by_other_seeds(tmp_path):
    success(
        *(*TWO, "seed=0..1", "--folder=out", "--tune", "algo.global_lr=0.001,5,10"),
        *("--tune", "uldp_avg:algo.local_lr=0.01,0.1", "--tuning-seeds=7..8"),
        cwd=tmp_path,
    )
    found = result(tmp_path / "out")
    table = (tmp_path / "out" / "comparison.md").read_text()
    assert found["tuning_seeds"] == [7, 8]
    for method in found["methods"]:
        tried = {}
        for path in (tmp_path / "out" / "tuning" / method["name"]).glob("*/seed=*/metrics.csv"):
            assert path.parent.name in ("seed=7", "seed=8")
            last = dict(zip(*(line.split(",") for line in path.read_text().splitlines()[::2])))
            tried.setdefault(path.parent.parent.name, []).append(float(last["accuracy"]))
        assert len(tried) == method["tried"] == (6 if method["name"] == "uldp_avg" else 3)
        best = max(tried, key=lambda setting: np.mean(tried[setting]))
        assert np.mean(tried[best]) == pytest.approx(method["tuning_mean"])
        chosen = method["setting"].split()
        assert np.mean(tried[",".join(chosen)]) == pytest.approx(method["tuning_mean"])
        shown = " ".join(word.removeprefix("algo.") for word in chosen)
        assert f"| {method['method']} | {shown} |" in table
        for folder in method["folders"]:
            assert folder.startswith(f"runs/{method['name']}/{','.join(chosen)}/seed=")
    notes = "\n".join(found["notes"])
    assert "the epsilon does not cover this choice" in notes
    assert "WARNING: methods had grids of different sizes" in notes


def test_a_method_without_noise_is_a_line_without_privacy(tmp_path):
    """It may be the best; marks compare with the best private method."""
    words = ("compare", "algo=fedavg,uldp_avg", "epsilon=2", "seed=0..1", *SMALL, "--folder=out")
    success(*words, cwd=tmp_path)
    found = result(tmp_path / "out")
    lines = {one["method"]: one for one in found["methods"]}
    assert (
        lines["FedAvg (no privacy)"]["certified"] is lines["FedAvg (no privacy)"]["solved"] is None
    )
    assert lines["ULDP-AVG"]["solved"]["epsilon"] == 2
    assert found["methods"][0]["name"] == "fedavg"
    assert found["reference"] == "ULDP-AVG"
    assert not any(note.startswith("WARNING") for note in found["notes"])


def test_an_interrupt_says_how_to_go_on(tmp_path):
    words = (*TWO[:3], "rounds=2", *SMALL[1:], "seed=0..1", "--folder=out")
    with interrupted_in(2):
        done = run(*words, cwd=tmp_path)
    assert done.returncode == 130
    last = done.stderr.splitlines()[-1]
    assert last.startswith("fedpriv: interrupted; continue with fedpriv compare algo=uldp_avg,")
    assert last.endswith("--folder=out")
    assert run(*words, cwd=tmp_path).returncode == 0
    assert [one["n"] for one in result(tmp_path / "out")["methods"]] == [2, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("algo=uldp_avg",), "uldp_sgd, or several values of another key: algo.local_lr=0.05,0.1"),
        (("algo=fedavg,scaffold",), "epsilon=2.0: a method with noise"),
        (
            ("algo=uldp_avg,uldp_group_max",),
            "uldp_group_max: cannot be calibrated to epsilon=2: no",
        ),
        (("algo=uldp_avg,dp_sgd",), "equal numbers would not mean equal privacy"),
        (
            ("algo=uldp_avg", "accountant.delta=1e-5,1e-2"),
            "at delta = 1e-05 against the released model, of accountant.delta=0.01 for",
        ),
        (
            ("algo=uldp_avg,uldp_sgd", "--tune=accountant.delta=1e-5,1e-2"),
            "of uldp_avg accountant.delta=0.01 for a user",
        ),
        (("algo=uldp_avg,nothing",), "nothing: algo=nothing: not found"),
        (("algo=uldp_avg,uldp_sgd", "data=digits,mnist"), "data=digits,mnist: one data set"),
        (("algo=uldp_avg,uldp_sgd", "seed=3"), "seed=3: at least two seeds"),
        (("algo=uldp_avg,uldp_sgd", "epsilon=1"), "epsilon=1: each key once"),
        (
            ("algo=uldp_avg,uldp_sgd", "accountant.target=1"),
            "accountant.target=1: epsilon= says it",
        ),
        (
            ("algo=uldp_avg,uldp_sgd", "algo.noise_multiplier=3"),
            "has no effect with accountant.tar",
        ),
        (("algo=uldp_avg,uldp_sgd", "hydra.sweep.dir=x"), "--folder names the folder"),
        (("algo=uldp_avg,uldp_sgd", "--folder=/proc/none"), "--folder=/proc/none"),
        (("algo=uldp_avg,uldp_sgd", "--against=x"), "--against=x: one of uldp_avg; uldp_sgd"),
        (("algo=uldp_avg,uldp_sgd", "--tuning-seeds=9"), "has no effect without --tune"),
        (
            ("algo=uldp_avg,uldp_sgd", "--tune=algo.global_lr=1,2", "--tuning-seeds=4..5"),
            "other seeds than those reported (seed=4)",
        ),
        (
            ("algo=uldp_avg,uldp_sgd", "--tune=algo.local_epochs=1,2"),
            "uldp_sgd: algo.local_epochs=...: unknown key",
        ),
        (("algo=uldp_avg,uldp_sgd", "--tune=x:algo.clip=1,2"), "a method of this comparison"),
        (("algo=uldp_avg,uldp_sgd", "--tune=seed=1,2"), "a key of a method"),
    ],
)
def test_what_is_no_comparison_is_refused_in_one_line(words, says, tmp_path):
    assert says in refusal("compare", "epsilon=2", *words, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_keys_with_several_values_make_methods():
    request = Request.parse(
        ["aggregation=plain,masked", "algo=uldp_avg,uldp_sgd", "epsilon=0.5", "rounds=3"]
    )
    assert [method.name for method in request.methods] == [
        f"{algo},aggregation={how}"
        for algo in ("uldp_avg", "uldp_sgd")
        for how in ("plain", "masked")
    ]
    assert (request.epsilon, request.seeds) == (0.5, (0, 1, 2, 3, 4))
    assert request.words == ("rounds=3",)


def test_a_tuned_key_may_change_the_noise(tmp_path):
    words = (*TWO, "seed=0..1", "--folder=out", "--tune=algo.user_rate=0.4,1", "--tuning-seeds=9")
    success(*words, cwd=tmp_path)
    noise = {}
    for method in result(tmp_path / "out")["methods"]:
        assert 2 - 1e-3 < method["certified"] <= 2
        for folder in method["folders"]:
            status = json.loads((tmp_path / "out" / folder / "status.json").read_text())
            assert status["noise"] == method["solved"]["noise"]
            noise[method["setting"]] = status["noise"]["update"]
    for path in (tmp_path / "out" / "tuning").rglob("status.json"):
        setting = path.parent.parent.name
        own = json.loads(path.read_text())["noise"]["update"]
        assert own == noise.setdefault(setting, own)
    assert noise["algo.user_rate=0.4"] < noise["algo.user_rate=1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data=table", "data.path=a.csv,b.csv"], "data.path=a.csv,b.csv: one value"),
        (["data=artificial", "data.size=100,200"], "data.size=100,200: one value"),
        (["--tune", "data.size=100,200"], "--tune=data.size=100,200: methods are compared on"),
    ],
)
def test_methods_are_compared_on_the_same_records(words, message):
    with pytest.raises(ConfigError, match=message):
        Request.parse(["algo=uldp_avg,uldp_sgd", "epsilon=2", *words])


def test_the_picture_and_the_notes_of_methods_that_promise_different_things(tmp_path):
    words = ["algo=uldp_avg", "accountant.delta=1e-5,1e-2", "epsilon=2", "seed=0..1", "--mixed"]
    table = compare(Request.parse([*words, *SMALL, f"--folder={tmp_path}/out"]), quiet=True)
    assert "WARNING: equal epsilons of these methods do not mean equal privacy" in table.notes()
    assert [line.noise for line in table.lines] == [
        noise_text(line.solved.noise) for line in table.lines
    ]
    figure = draw(table, tmp_path / "picture.png")
    axis, right = figure.axes[0], figure.axes[0].child_axes[0]
    values = [[*line.summary.group.finals(table.metric)] for line in table.lines]
    points = [line for line in axis.lines if line.get_marker() == "o"]
    assert [[*line.get_xdata()] for line in points] == values
    assert [{*line.get_ydata()} for line in points] == [{0}, {1}]
    joined = [[*line.get_xdata()] for line in axis.lines if line.get_color() == "0.85"]
    assert joined == [[*pair] for pair in zip(*values)]
    assert axis.yaxis_inverted()  # the best one, at 0, is on top
    assert [text.get_text() for text in axis.get_yticklabels()] == [
        line.label for line in table.lines
    ]
    assert right.get_yticklabels()[0].get_text() == "reference"
    shown = figure.get_supxlabel().replace("\n", " ")
    assert f"2 seeds; marks: paired t-test against {table.reference_label} with Holm's" in shown
    assert "*** p < 0.001; simulation: noise is seeded" in shown


def test_the_interval_of_a_mean_is_students():
    values = np.array([0.7, 0.75, 0.9])
    for n in (2, 3):
        interval = ttest_1samp(values[:n], 0).confidence_interval(0.95)
        assert mean_interval(values[:n]) == pytest.approx((interval.high - interval.low) / 2)
    assert np.isnan(mean_interval(values[:1]))


SETTINGS = tuple((f"algo.global_lr={rate}",) for rate in (1, 2, 3))


def chosen(folder, values, metric):
    """The choice between settings with these accuracies; None: its run diverged."""
    method = Method("uldp_avg", ("algo=uldp_avg",), SETTINGS)
    trials = [Trial(method, setting, 7, tunes=True) for setting in SETTINGS]
    runs = []
    for place, value in enumerate(values):
        if value is not None:
            fake_run(folder / str(place), "ULDP-AVG", [0.1, value], (1.0, None))
        runs.append(None if value is None else read_run(folder / str(place)))
    return choose([method], trials, runs, metric).get("uldp_avg")


@pytest.mark.parametrize(
    ("values", "metric", "best"),
    [
        ((0.5, 0.7, None), None, Choice(SETTINGS[1], 2, 1, 0.7)),
        ((0.5, 0.75, None), "loss", Choice(SETTINGS[1], 2, 1, 0.25)),
        ((None, None, 0.2), None, Choice(SETTINGS[2], 1, 2, 0.2)),
        ((None,) * 3, None, None),
    ],
)
def test_a_setting_of_which_a_run_diverged_is_not_chosen(tmp_path, values, metric, best):
    assert chosen(tmp_path, values, metric) == best


def test_an_unknown_metric_is_refused(tmp_path):
    with pytest.raises(FedprivError, match="--metric=acuracy: one of loss, accuracy"):
        chosen(tmp_path, (0.5, 0.7, 0.6), "acuracy")


FAR = "algo.global_lr=1e60"


@pytest.mark.parametrize(
    ("words", "diverged"),
    [
        (
            ("algo=uldp_avg", "algo.global_lr=1,1e60", "--against=algo.global_lr=1e+60"),
            {"algo.global_lr=1e+60": "diverged with seed 0, 1"},
        ),
        (
            ("algo=uldp_avg,uldp_sgd", "--tune", f"uldp_sgd:{FAR},1e61", "--tuning-seeds=9"),
            {"uldp_sgd": NO_CHOICE},
        ),
    ],
    ids=["reported", "tuned"],
)
def test_a_method_that_diverges_is_marked_beside_the_others(words, diverged, tmp_path):
    done = success(
        "compare", *words, "epsilon=2", "seed=0..1", *SMALL, "--folder=out", cwd=tmp_path
    )
    found = result(tmp_path / "out")
    assert found["diverged"] == diverged
    assert [one["n"] for one in found["methods"]] == [2]
    for name, why in diverged.items():
        assert f"WARNING: {name} has no mean: {why}" in done.stdout
        assert re.search(rf"│ {re.escape(name)} +│ diverged +│ 0 │", done.stdout)
        for suffix, cell in (
            ("csv", ",diverged,"),
            ("md", "| diverged |"),
            ("tex", "& diverged &"),
        ):
            assert cell in (tmp_path / "out" / f"comparison.{suffix}").read_text()


def test_a_comparison_without_a_method_that_is_done_fails(tmp_path):
    why = "no private method is left to compare: uldp_avg: diverged with seed 0, 1; uldp_sgd:"
    done = run(*TWO, FAR, "seed=0..1", "--folder=out", cwd=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
