import csv

import pytest

from fedpriv.errors import FedprivError
from fedpriv.figures import group_privacy, privacy_utility
from fedpriv.figures.runs import find_runs, mean_and_std, user_epsilons
from fedpriv.results import RunFolder


def fake_run(path, label, values, epsilon, state="done"):
    """A finished run with rounds 0, 1, ...; `epsilon` (certified, claimed) of the released model for users."""
    folder = RunFolder(path)
    folder.create("")
    folder.append("metrics.csv", [{"round": r, "loss": 1 - v, "accuracy": v} for r, v in enumerate(values)])
    names = {"observer": "released model", "adjacency": "add/remove"}
    rows = []
    for r in range(1, len(values)):
        for unit, method, factor in (("record", "pld", 0.1), ("user", "rdp", 1.1), ("user", "pld", 1.0)):
            certified = epsilon[0] * r * factor
            claimed = None if epsilon[1] is None else epsilon[1] * r
            rows.append(
                {"round": r, **names, "unit": unit, "method": method, "certified": certified, "claimed": claimed}
            )
    folder.append("epsilon.csv", rows)
    folder.status(state=state, label=label, metric="accuracy", delta=1e-5, randomness="simulation")


@pytest.fixture
def sweep(tmp_path):
    fake_run(tmp_path / "0", "DEFAULT", [0.1, 0.6, 0.9], (float("inf"), None))
    fake_run(tmp_path / "1", "ULDP-AVG", [0.1, 0.4, 0.8], (1.0, 2.0))
    fake_run(tmp_path / "2", "ULDP-AVG", [0.1, 0.5, 0.6], (1.0, 2.0))
    fake_run(tmp_path / "3", "ULDP-SGD", [0.1, 0.2, 0.3], (1.0, 2.0))
    fake_run(tmp_path / "4", "ULDP-SGD", [0.1, 0.2, 0.3], (1.0, 2.0), state="failed")
    return tmp_path


def test_finished_runs_are_found_and_others_named(sweep, capsys):
    runs = find_runs([sweep])
    assert [run.label for run in runs] == ["DEFAULT", "ULDP-AVG", "ULDP-AVG", "ULDP-SGD"]
    assert "4 (failed)" in capsys.readouterr().err
    with pytest.raises(FedprivError, match="no finished run"):
        find_runs([sweep / "nowhere"])


def test_mean_and_std_over_seeds(sweep):
    curve = mean_and_std([run.metrics for run in find_runs([sweep]) if run.label == "ULDP-AVG"], "accuracy")
    assert curve["mean"].tolist() == pytest.approx([0.1, 0.45, 0.7])
    assert curve["std"].tolist() == pytest.approx([0, 0.05, 0.1])


def test_users_come_first_and_a_method_that_was_not_used_falls_back(sweep):
    epsilon = find_runs([sweep])[1].epsilon
    assert user_epsilons(epsilon, "released model", "pld")["certified"].tolist() == [1.0, 2.0]
    assert user_epsilons(epsilon, "released model", "other")["method"].unique().tolist() == ["rdp"]


def test_privacy_utility_draws_one_line_for_equal_epsilons(sweep, tmp_path, monkeypatch):
    seen = {}
    close = privacy_utility.plt.close

    def spy(figure):
        seen["left"], seen["right"] = figure.axes
        close(figure)

    monkeypatch.setattr(privacy_utility.plt, "close", spy)
    out = tmp_path / "figure.png"
    privacy_utility.draw(find_runs([sweep]), out)
    assert out.stat().st_size > 10_000
    assert [text.get_text() for text in seen["left"].get_legend().get_texts()] == [
        "DEFAULT (1 seeds)",
        "ULDP-SGD (1 seeds)",
        "ULDP-AVG (2 seeds)",
    ]
    assert [text.get_text() for text in seen["right"].get_legend().get_texts()] == [
        "certified: ULDP-SGD, ULDP-AVG",
        "claimed: ULDP-SGD, ULDP-AVG",
        "nothing certified: DEFAULT",
    ]
    styles = {line.get_label().split(":")[0]: line.get_linestyle() for line in seen["right"].lines}
    assert styles == {"certified": "-", "claimed": "--"}


def test_group_privacy_writes_what_it_draws(tmp_path, monkeypatch):
    small = {name: (rule, style, lambda profile: (1, 32)) for name, (rule, style, _) in group_privacy.CURVES.items()}
    monkeypatch.setattr(group_privacy, "CURVES", small)
    assert group_privacy.draw(tmp_path).stat().st_size > 10_000
    with open(tmp_path / "group_privacy.csv", newline="") as file:
        rows = {(row["curve"], row["group_size"]): float(row["epsilon"]) for row in csv.DictReader(file)}
    # ALGORITHMS 9, rows 7 and 10
    assert rows["claimed (paper, RDP)", "1"] == pytest.approx(2.8492, abs=2e-3)
    assert rows["claimed (paper, RDP)", "32"] == pytest.approx(2151.976, abs=0.1)
    assert rows["valid RDP lemma", "32"] == pytest.approx(3266.97, abs=0.1)
    assert rows["tight (mixture of Gaussians)", "32"] == pytest.approx(295.8, abs=0.1)
