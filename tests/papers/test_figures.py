import csv
import itertools

import pandas as pd
import pytest
from command import run
from fake_runs import fake_run

from fedpriv.errors import FedprivError
from fedpriv.papers.uldp_fl import group_privacy
from fedpriv.reports import epsilon_curve, privacy_utility
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.summary import UNTOLD


@pytest.fixture
def sweep(tmp_path):
    fake_run(tmp_path / "0", "FedAvg", [0.1, 0.6, 0.9], (float("inf"), None))
    fake_run(tmp_path / "1", "ULDP-AVG", [0.1, 0.4, 0.8], (1.0, 2.0))
    fake_run(tmp_path / "2", "ULDP-AVG", [0.1, 0.5, 0.6], (1.0, 2.0), seed=1)
    fake_run(tmp_path / "3", "ULDP-SGD", [0.1, 0.2, 0.3], (1.0, 2.0))
    fake_run(tmp_path / "4", "ULDP-SGD", [0.1, 0.2, 0.3], (1.0, 2.0), seed=1, state="failed")
    return tmp_path


@pytest.fixture
def figures(monkeypatch):
    """The figures that `draw` has closed."""
    seen = []
    monkeypatch.setattr(privacy_utility.plt, "close", seen.append)
    return seen


def legend(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def test_privacy_utility_draws_one_line_for_equal_epsilons(sweep, tmp_path, figures):
    out = tmp_path / "figure.png"
    privacy_utility.draw(find_runs([sweep]), out)
    assert out.stat().st_size > 10_000
    left, right = figures[0].axes
    assert legend(left) == ["FedAvg (1 seed)", "ULDP-SGD (1 seed)", "ULDP-AVG (2 seeds)"]
    assert legend(right) == [
        "certified: ULDP-SGD, ULDP-AVG",
        "claimed: ULDP-SGD, ULDP-AVG",
        "nothing certified: FedAvg",
    ]
    styles = {line.get_label().split(":")[0]: line.get_linestyle() for line in right.lines}
    assert styles == {"certified": "-", "claimed": "--"}


@pytest.mark.parametrize(
    ("epsilon", "evaluation", "shown", "says"),
    [
        ((1.0, 2.0), "exact", ["accuracy", "epsilon"], "unit user, add/remove; simulation"),
        ((float("inf"), 2.0), "exact", ["accuracy", "epsilon"], "unit user, add/remove"),
        ((float("inf"), None), "exact", ["accuracy"], "no epsilon is finite"),
        ((1.0, 2.0), "none", ["epsilon"], UNTOLD),
    ],
)
def test_a_panel_without_a_line_is_left_out(epsilon, evaluation, shown, says, tmp_path, figures):
    fake_run(tmp_path / "0", "ULDP-AVG", [0.1, 0.4], epsilon)
    with open(tmp_path / "0" / "config.yaml", "a") as file:
        file.write(f"evaluation: {evaluation}\n")
    privacy_utility.draw(find_runs([tmp_path]), tmp_path / "figure.png")
    [figure] = figures
    assert [axis.get_ylabel().split()[0] for axis in figure.axes] == shown
    assert all(axis.lines for axis in figure.axes)
    assert says in figure.get_supxlabel().replace("\n", " ")


def test_runs_without_a_line_are_refused(tmp_path):
    fake_run(tmp_path / "0", "FedAvg", [0.1, 0.4], (float("inf"), None))
    with open(tmp_path / "0" / "config.yaml", "a") as file:
        file.write("evaluation: none\n")
    with pytest.raises(FedprivError, match="neither a metric nor a finite epsilon to draw"):
        privacy_utility.draw(find_runs([tmp_path]), tmp_path / "figure.png")


def test_settings_of_one_method_are_no_seeds(tmp_path, figures):
    """Three noise levels were once one curve of three seeds, with an epsilon that no run has."""
    for place, noise in enumerate((1, 2, 5.0)):
        for seed in (0, 1):
            values = [0.1, 0.5 + seed / 10, 1 - noise / 10]
            fake_run(
                tmp_path / f"{place}_{seed}",
                "ULDP-AVG",
                values,
                (4 / noise, None),
                seed=seed,
                noise_multiplier=noise,
            )
    fake_run(tmp_path / "plain", "FedAvg", [0.1, 0.9, 0.9], (float("inf"), None))
    (tmp_path / "figure.csv").write_text("its reader's own table")
    privacy_utility.draw(find_runs([tmp_path]), tmp_path / "figure.pdf")
    assert (tmp_path / "figure.csv").read_text() == "its reader's own table"
    [figure] = figures
    left, right = figure.axes
    assert left.get_title() == "utility on the test split"
    assert legend(left) == ["default", "1", "2", "5", "FedAvg", "ULDP-AVG"]
    colors = [{line.get_color() for line in axis.lines} for axis in (left, right)]
    assert colors[1] < colors[0]
    fonts = (tmp_path / "figure.pdf").read_bytes()
    assert b"/CIDFontType2" in fonts  # Type 42's contents
    assert b"/Type3" not in fonts
    table = pd.read_csv(tmp_path / "figure.pdf.csv")
    last = table[table["round"] == 2].set_index("group")
    assert last["certified"].to_dict() == {
        "FedAvg": float("inf"),
        "ULDP-AVG, noise_multiplier=1": 8.0,
        "ULDP-AVG, noise_multiplier=2": 4.0,
        "ULDP-AVG, noise_multiplier=5": 1.6,
    }
    assert last["n"].tolist() == [1, 2, 2, 2]


def test_the_last_point_against_epsilon_has_a_mark(tmp_path, figures):
    """Of twenty points every second one, about eight to a line."""
    fake_run(tmp_path / "run", "ULDP-AVG", [0.1] * 21, (1.0, None))
    epsilon_curve.draw(find_runs([tmp_path]), tmp_path / "figure.png")
    [line] = figures[0].axes[0].lines
    assert [*line.get_xdata()] == [*range(1, 21)]
    assert line.get_markevery() == (1, 2)


def test_a_method_has_one_mark_in_both_figures(tmp_path, figures):
    for place, (method, clip) in enumerate(itertools.product(("ULDP-AVG", "ULDP-NAIVE"), (1, 2))):
        fake_run(tmp_path / str(place), method, [0.1, 0.4], (1.0, None), clip=clip)
    for draw in (epsilon_curve.draw, privacy_utility.draw):
        draw(find_runs([tmp_path]), tmp_path / "figure.png")
    against, by_round = (
        dict(zip(legend(axis), (one.get_marker() for one in axis.get_legend().legend_handles)))
        for axis in (figure.axes[0] for figure in figures)
    )
    assert against == by_round
    assert against["ULDP-AVG"] != against["ULDP-NAIVE"]


def test_two_data_sets_are_no_curve(tmp_path):
    fake_run(tmp_path / "0", "ULDP-AVG", [0.1, 0.4], (1.0, 2.0))
    fake_run(tmp_path / "1", "ULDP-AVG", [0.1, 0.4], (1.0, 2.0), seed=1, data="Mnist")
    with pytest.raises(FedprivError, match=r"different data.*data=Digits.*Mnist"):
        privacy_utility.draw(find_runs([tmp_path]), tmp_path / "figure.png")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--method", "foo"], "--method=foo: one of rdp, pld"),
        (["--observer", "foo"], "--observer=foo: one of released model"),
        (["--metric", "foo"], "--metric=foo: one of loss, accuracy"),
        (["--out", "x.xyz"], "--out=x.xyz"),
        (["--out", "nowhere/x.png"], "--out=nowhere/x.png"),
        (["empty"], "no finished run at or below empty"),
        (["--frame"], "--frame"),
    ],
)
def test_what_runs_do_not_have_is_told_in_one_line(sweep, words, named):
    (sweep / "empty").mkdir()
    for command in ("figure", "table"):
        done = run(command, ".", *words, cwd=sweep)
        assert done.returncode == 2
        complaint = [line for line in done.stderr.splitlines() if not line.startswith("left out")]
        assert len(complaint) == 1
        assert named in complaint[0]
    assert not list(sweep.glob("*.png"))


def test_group_privacy_writes_what_it_draws(tmp_path, monkeypatch):
    small = {
        name: (rule, style, lambda profile: (1, 32))
        for name, (rule, style, _) in group_privacy.CURVES.items()
    }
    monkeypatch.setattr(group_privacy, "CURVES", small)
    group_privacy.draw(tmp_path)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    with open(tmp_path / "group_privacy.csv", newline="") as file:
        rows = {
            (row["curve"], row["group_size"]): float(row["epsilon"]) for row in csv.DictReader(file)
        }
    # ALGORITHMS 9, rows 7 and 10
    assert rows["claimed (paper, RDP)", "1"] == pytest.approx(2.8492, abs=2e-3)
    assert rows["claimed (paper, RDP)", "32"] == pytest.approx(2151.976, abs=0.1)
    assert rows["valid RDP lemma", "32"] == pytest.approx(3266.97, abs=0.1)
    assert rows["tight (mixture of Gaussians)", "32"] == pytest.approx(295.8, abs=0.1)


@pytest.mark.parametrize(("calibration", "made_for"), [("paper", "CS,"), ("certified", "2CS,")])
def test_the_figure_says_what_naive_s_noise_is_made_for(tmp_path, figures, calibration, made_for):
    fake_run(
        tmp_path / "naive", "ULDP-NAIVE", [0.1, 0.2, 0.3], (16.5, 10.7), calibration=calibration
    )
    privacy_utility.draw(find_runs([tmp_path]), tmp_path / "figure.png")
    assert f"noise is for a sensitivity of {made_for}" in figures[0].get_supxlabel().replace(
        "\n", " "
    )
