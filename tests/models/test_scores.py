"""Metrics of probabilities, against scikit-learn's and plain arithmetic."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from fedpriv.models.scores import class_scores, probabilities
from fedpriv.models.tasks import BinaryClassification, Classification

RNG = np.random.default_rng(0)
Y = (RNG.random(400) < 0.1).astype(np.int64)
MARGIN = (2 * RNG.normal(size=400) + 2 * Y - 3).astype(np.float32)
BOTH = np.stack([np.zeros(400, np.float32), MARGIN], 1)


def test_two_classes_are_scored_as_by_scikit_learn():
    p = 1 / (1 + np.exp(-MARGIN.astype(np.float64)))
    found = Classification().final_metrics(BOTH, Y)
    assert found["auc"] == roc_auc_score(Y, p)
    assert found["average_precision"] == average_precision_score(Y, p)
    assert found["brier"] == pytest.approx(brier_score_loss(Y, p), rel=1e-12)
    slope = LogisticRegression(C=1e6).fit(MARGIN[:, None], Y).coef_[0, 0]
    assert found["calibration_slope"] == pytest.approx(slope, rel=1e-3)
    one = BinaryClassification().final_metrics(MARGIN[:, None], Y.astype(np.float32))
    assert {name: one[name] for name in found if name in one} == pytest.approx(
        {name: value for name, value in found.items() if name in one}
    )


def test_a_class_of_a_single_record_is_ranked():
    """Above one of the two others, and below the other."""
    margins = np.array([[0.0, -1.0], [0.0, 1.0], [0.0, 0.0]], np.float32)
    assert Classification().final_metrics(margins, np.array([0, 0, 1]))["auc"] == 0.5


@pytest.mark.parametrize("threshold", [0.5, 0.1, 0.9])
def test_a_threshold_decides_confusion_and_accuracy(threshold):
    p = probabilities(BOTH)[:, 1]
    found = Classification("balanced_accuracy", threshold=threshold).final_metrics(BOTH, Y)
    hits, alarms = (p > threshold) & (Y == 1), (p > threshold) & (Y == 0)
    assert (found["true_positives"], found["false_positives"]) == (hits.sum(), alarms.sum())
    assert found["true_positives"] + found["false_negatives"] == Y.sum()
    assert found["true_negatives"] + found["false_positives"] == (1 - Y).sum()
    sides = hits.sum() / Y.sum(), 1 - alarms.sum() / (1 - Y).sum()
    assert found["balanced_accuracy"] == pytest.approx(np.mean(sides))
    assert found["accuracy"] == pytest.approx(((p > threshold) == Y).mean())


def test_more_classes_are_scored_against_the_rest():
    y = RNG.integers(0, 3, 300)
    outputs = (RNG.normal(size=(300, 3)) + np.eye(3)[y]).astype(np.float32)
    p = probabilities(outputs)
    found = Classification("auc").final_metrics(outputs, y)
    assert next(iter(found)) == "auc"
    assert found["auc"] == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), rel=1e-12)
    assert found["brier"] == pytest.approx(
        np.mean([sum((p[i] - np.eye(3)[y[i]]) ** 2) for i in range(300)])
    )
    alone = class_scores(p[y < 2], y[y < 2], p[y < 2].argmax(1))  # the third class has no records
    assert 0.5 < alone["auc"] < 1
    assert np.isnan(class_scores(p[y < 1], y[y < 1], p[y < 1].argmax(1))["auc"])


def test_calibration_is_seen():
    """Labels drawn from the probabilities, and the same with logits twice as large."""
    p = RNG.uniform(0.02, 0.98, 20_000)
    y = (RNG.random(20_000) < p).astype(np.int64)
    logit = np.log(p / (1 - p))[:, None]
    good, bold = (class_scores(probabilities(z), y, y) for z in (logit, 2 * logit))
    assert good["calibration_slope"] == pytest.approx(1, abs=0.05)
    assert bold["calibration_slope"] == pytest.approx(0.5, abs=0.03)
    assert good["calibration_error"] < 0.02 < bold["calibration_error"]
