import numpy as np
import pytest
import yaml

from fedpriv.papers.hu import noisy_steps
from fedpriv.reports.finished_runs import find_runs
from fedpriv.runs.folder import RunFolder


def fake_run(
    path, label, accuracy, aggregation="Masked", seed=0, claimed=10.0, certified=40.0, **algo
):
    folder = RunFolder(path)
    config = {"seed": seed, "aggregation": {"_target_": f"fedpriv.aggregation.{aggregation}"}}
    settings = {
        "local_steps": 1,
        "noise_multiplier": 0.1,
        "clip": 2.0,
        "calibration": "paper",
        "epsilon": 1.0,
    } | algo
    folder.begin(yaml.safe_dump(config | {"algo": settings})).close()
    rows = [
        {"round": r, "accuracy": a, "train_loss": 1 - a, "gradient_norm": 2 - a}
        for r, a in enumerate(accuracy)
    ]
    folder.append("metrics.csv", rows)
    names = {
        "round": len(accuracy) - 1,
        "observer": "server",
        "adjacency": "replace",
        "unit": "record",
    }
    folder.append(
        "epsilon.csv", [names | {"method": "pld", "certified": certified, "claimed": claimed}]
    )
    folder.status(state="done", label=label, metric="accuracy", delta=1e-4, randomness="simulation")


@pytest.fixture
def axes(monkeypatch):
    """The axes of the figure that was drawn last."""
    seen = []
    close = noisy_steps.plt.close

    def spy(figure):
        seen[:] = figure.axes
        close(figure)

    monkeypatch.setattr(noisy_steps.plt, "close", spy)
    return seen


def texts(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def test_a_column_for_each_noise_and_a_line_for_each_tau(tmp_path, axes):
    for number, (noise, steps, seed) in enumerate(
        (n, s, i) for n in (0.01, 0.1) for s in (1, 5) for i in (0, 1)
    ):
        values = [0.5, 0.5 + noise + 0.1 * seed]
        fake_run(
            tmp_path / str(number),
            "any",
            values,
            seed=seed,
            noise_multiplier=noise,
            local_steps=steps,
        )
    noisy_steps.convergence(
        find_runs([tmp_path]), tmp_path / "figure.png", second="train_loss", title="title"
    )
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert len(axes) == 4
    assert axes[0].get_title() == "sigma = 0.02\nclaimed epsilon 10 to 10"
    assert [line.get_label() for line in axes[1].lines] == ["tau = 1", "tau = 5"]
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), [0.5, 0.65])
    np.testing.assert_allclose(axes[3].lines[0].get_ydata(), [0.5, 0.35])


def test_a_column_for_each_calibration_and_a_line_for_each_method(tmp_path, axes):
    settings = [
        ("CDP-FedAvg tau=5", "paper", 39.8),
        ("DP-SGD", "paper", 11.3),
        ("DP-SGD", "certified", 10.0),
    ]
    for number, (label, calibration, certified) in enumerate(settings):
        fake_run(
            tmp_path / str(number), label, [0.1, 0.2], calibration=calibration, certified=certified
        )
    noisy_steps.comparison(
        find_runs([tmp_path]), tmp_path / "figure.png", second="gradient_norm", title="title"
    )
    assert [axis.get_title() for axis in axes[:2]] == [
        "noise by the paper's formula",
        "noise by the certificate",
    ]
    assert texts(axes[2]) == [
        "CDP-FedAvg tau=5: claimed 10, certified 39.8",
        "DP-SGD: claimed 10, certified 11.3",
    ]
    assert texts(axes[3]) == ["DP-SGD: claimed 10, certified 10"]


def test_accuracy_against_epsilon_with_and_without_masks(tmp_path, axes):
    number = 0
    for target in (1.0, 4.0):
        for aggregation, gain in (("Masked", 0.2), ("Plain", 0.1)):
            for seed in (0, 1):
                values = [0.5, 0.5 + gain * target / 4 + 0.02 * seed]
                fake_run(tmp_path / str(number), "any", values, aggregation, seed, epsilon=target)
                number += 1
    noisy_steps.tradeoff(find_runs([tmp_path]), tmp_path / "figure.png", title="title")
    [axis] = axes
    assert texts(axis) == ["with secure aggregation", "without"]
    hidden, plain = (container.lines[0] for container in axis.containers)
    np.testing.assert_allclose(hidden.get_xydata(), [[1, 0.56], [4, 0.71]])
    np.testing.assert_allclose(plain.get_xydata(), [[1, 0.535], [4, 0.61]])
    assert axis.get_xlabel() == "epsilon of the server, as claimed"
