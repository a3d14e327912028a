"""Metrics of probabilities, by scikit-learn. NaN where one is undefined on these records."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

BINS = 10
"""Groups of equal size of a calibration curve."""
Ranked = Callable[[np.ndarray, np.ndarray], float]


def probabilities(outputs: np.ndarray) -> np.ndarray:
    """Probabilities (n, c) of logits (n, c), or (n, 2) of one logit (n, 1)."""
    from scipy.special import softmax

    logits = outputs.astype(np.float64)
    one = logits.shape[1] == 1
    return np.asarray(softmax(np.hstack([np.zeros_like(logits), logits]) if one else logits, 1))


def predicted(outputs: np.ndarray, threshold: float) -> np.ndarray:
    """Classes (n,) int64 of logits (n, c), or of one logit (n, 1): of two classes the second where
    its probability is above `threshold`, else the class of the largest logit."""
    if outputs.shape[1] > 2:
        return np.asarray(outputs.argmax(1))
    margin = outputs[:, -1].astype(np.float64)
    if outputs.shape[1] == 2:
        margin -= outputs[:, 0]
    return (margin > math.log(threshold / (1 - threshold))).astype(np.int64)


def ranked(name: str, p: np.ndarray, y: np.ndarray) -> float:
    """Metric `name` of `RANKED` for probabilities (n, c) and classes (n,): of the second of two
    classes, else the mean over classes against the rest, where a class and the rest have records.
    """
    from sklearn import metrics

    score: Ranked = getattr(metrics, RANKED[name])
    classes = [1] if p.shape[1] == 2 else range(p.shape[1])
    found = [score(y == k, p[:, k]) for k in classes if 0 < np.count_nonzero(y == k) < len(y)]
    return float(np.mean(found)) if found else float("nan")


RANKED = {"auc": "roc_auc_score", "average_precision": "average_precision_score"}
"""Metrics that depend on no threshold."""


def class_scores(p: np.ndarray, y: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Metrics of probabilities (n, c) and predicted classes (n,) against classes (n,).

    auc, average_precision: see `ranked`.
    brier: mean squared error of the second class's probability; of more classes their sum.
    calibration_error: mean distance of shares from probabilities over `BINS` groups: of the second
        class, or that the prediction is right.
    calibration_slope: of the second class's logit; 1 if calibrated, smaller if overconfident.
    true_negatives, false_positives, false_negatives, true_positives: of two classes.
    """
    from sklearn.calibration import calibration_curve
    from sklearn.metrics import confusion_matrix

    two = p.shape[1] == 2
    errors = np.square(p - np.eye(p.shape[1])[y])
    chance, happened = (p[:, 1], y == 1) if two else (p.max(1), predicted == y)
    shares, means = calibration_curve(happened, chance, n_bins=BINS, strategy="quantile")
    found = {name: ranked(name, p, y) for name in RANKED} | {
        "brier": float(errors.sum(1).mean()) / (2 if two else 1),
        "calibration_error": float(np.abs(shares - means).mean()),
    }
    if not two:
        return found
    cells = confusion_matrix(y, predicted, labels=[0, 1]).ravel().tolist()
    return found | {"calibration_slope": _slope(p, y)} | dict(zip(CONFUSION, cells))


CONFUSION = ("true_negatives", "false_positives", "false_negatives", "true_positives")


def _slope(p: np.ndarray, y: np.ndarray) -> float:
    """The slope of a logistic regression on the logit of the second class."""
    from scipy.special import logit
    from sklearn.linear_model import LogisticRegression

    logits = logit(p[:, 1:].clip(1e-12, 1 - 1e-12))
    if np.ptp(logits) < 1e-9 or len(set(y.tolist())) < 2:
        return float("nan")
    return float(LogisticRegression(C=1e6).fit(logits, y).coef_[0, 0])
