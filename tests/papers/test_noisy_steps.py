from itertools import product

import numpy as np
from paper_runs import paper_run

from fedpriv.papers.hu import noisy_steps
from fedpriv.reports.finished_runs import find_runs


def fake_run(path, label, accuracy, aggregation="Masked", seed=0, epsilons=(40.0, 10.0), **algo):
    target = f"fedpriv.aggregation.{aggregation}"
    usual = {"local_steps": 1, "noise_multiplier": 0.1, "clip": 2.0, "calibration": "paper"}
    config = {"seed": seed, "aggregation": {"_target_": target}}
    keys = usual | {"epsilon": 1.0} | algo
    paper_run(path, label, accuracy, epsilons=epsilons, config=config, **keys)


def texts(axis):
    return [text.get_text() for text in axis.get_legend().get_texts()]


def test_a_column_for_each_noise_and_a_line_for_each_tau(tmp_path):
    for noise, steps, seed in product((0.01, 0.1), (1, 5), (0, 1)):
        values = [0.5, 0.5 + noise + 0.1 * seed]
        keys = {"noise_multiplier": noise, "local_steps": steps}
        fake_run(tmp_path / f"{noise} {steps} {seed}", "any", values, seed=seed, **keys)
    out = tmp_path / "figure.png"
    axes = noisy_steps.convergence(find_runs([tmp_path]), out, second="train_loss", title="").axes
    assert out.stat().st_size > 10_000
    assert len(axes) == 4
    assert axes[0].get_title() == "sigma = 0.02\nclaimed epsilon 10 to 10"
    assert [line.get_label() for line in axes[1].lines] == ["tau = 1", "tau = 5"]
    np.testing.assert_allclose(axes[1].lines[0].get_ydata(), [0.5, 0.65])
    np.testing.assert_allclose(axes[3].lines[0].get_ydata(), [0.5, 0.35])


def test_a_column_for_each_calibration_and_a_line_for_each_method(tmp_path):
    settings = [
        ("CDP-FedAvg tau=5", "paper", 39.8),
        ("DP-SGD", "paper", 11.3),
        ("DP-SGD", "certified", 10.0),
    ]
    for label, calibration, certified in settings:
        place = tmp_path / f"{label} {calibration}"
        fake_run(place, label, [0.1, 0.2], epsilons=(certified, 10.0), calibration=calibration)
    out = tmp_path / "figure.png"
    axes = noisy_steps.comparison(find_runs([tmp_path]), out, second="gradient_norm", title="").axes
    assert [axis.get_title() for axis in axes[:2]] == [
        "noise by the paper's formula",
        "noise by the certificate",
    ]
    assert texts(axes[2]) == [
        "CDP-FedAvg tau=5: claimed 10, certified 39.8",
        "DP-SGD: claimed 10, certified 11.3",
    ]
    assert texts(axes[3]) == ["DP-SGD: claimed 10, certified 10"]


def test_accuracy_against_epsilon_with_and_without_masks(tmp_path):
    gains = (("Masked", 0.2), ("Plain", 0.1))
    for target, (aggregation, gain), seed in product((1.0, 4.0), gains, (0, 1)):
        values = [0.5, 0.5 + gain * target / 4 + 0.02 * seed]
        place = tmp_path / f"{target} {aggregation} {seed}"
        fake_run(place, "any", values, aggregation, seed, epsilon=target)
    [axis] = noisy_steps.tradeoff(find_runs([tmp_path]), tmp_path / "figure.png", title="").axes
    assert texts(axis) == ["with secure aggregation", "without"]
    hidden, plain = (container.lines[0] for container in axis.containers)
    np.testing.assert_allclose(hidden.get_xydata(), [[1, 0.56], [4, 0.71]])
    np.testing.assert_allclose(plain.get_xydata(), [[1, 0.535], [4, 0.61]])
    assert axis.get_xlabel() == "epsilon of the server, as claimed"
