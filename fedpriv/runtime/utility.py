"""What a model is good for: its metrics at the end of a run, beside those of a trivial model and of
one without privacy, for all test records and for parts of them.

The trivial model says the same of every record: shares of classes, the mean, or one hazard, as in
the training records. Without privacy, scikit-learn fits a linear model on the training records of
all silos together. Both look at private records; their metrics are diagnostics.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedpriv.runtime.evaluation import Evaluation

MOST_CELLS = 10**6
"""Numbers in the training records up to which references are fitted."""
ALL = "all"
"""The part with all test records."""
MODEL = "model"
REFERENCES = TRIVIAL, WITHOUT_PRIVACY = "trivial", "without_privacy"

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""From features (n, d) and labels of training, features (m, d) of tests and the number of classes
to outputs of the trivial model (1, c) and of a fitted one (m, c)."""


def utility_rows(params: np.ndarray, on: Evaluation, *, references: bool) -> list[dict[str, Any]]:
    """Rows of utility.csv.

    params: the model (d,), or one for each silo (n_silos, d), as `Evaluation.outputs` takes them.
    references: whether records that are rows of numbers have numbers of the trivial model and of
        the one without privacy.
    """
    outputs = {MODEL: on.outputs(params)}
    if references and on.task.meaning in FITS and _small(on):
        outputs |= _references(on, outputs[MODEL].shape[1])
    rows = []
    for part, chosen in {ALL: np.ones(len(on.test), dtype=bool), **on.parts}.items():
        if not chosen.any():
            continue
        scores = {
            name: on.final_scores(one, chosen)
            for name, one in outputs.items()
            if np.isfinite(one[chosen]).all()  # a model may be finite where its outputs overflow
        }
        for metric in scores.get(MODEL, {}):
            values = {name: scores.get(name, {}).get(metric) for name in (MODEL, *REFERENCES)}
            known = {name: None if _undefined(one) else one for name, one in values.items()}
            rows.append({"part": part, "records": int(chosen.sum()), "metric": metric, **known})
    return rows


def _undefined(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _small(on: Evaluation) -> bool:
    n = sum(len(silo.x) for silo in on.silos)
    plain = on.test.x.ndim == 2 and on.test.x.dtype.kind == "f"
    return plain and 0 < n * on.test.x.shape[1] <= MOST_CELLS


def _references(on: Evaluation, width: int) -> dict[str, np.ndarray]:
    x, y = (
        np.concatenate([getattr(silo, name).cpu().numpy() for silo in on.silos]) for name in "xy"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is a reference as well
        trivial, fitted = FITS[on.task.meaning](x, y, on.test.x, width)
    whole = np.broadcast_to(trivial, (len(on.test), trivial.shape[1]))
    return {TRIVIAL: whole.astype(np.float32), WITHOUT_PRIVACY: fitted.astype(np.float32)}


def _logits(
    x: np.ndarray, y: np.ndarray, tests: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import LogisticRegression

    present, counts = np.unique(y.astype(np.int64), return_counts=True)
    shares = np.full((1, width), LEAST)
    shares[0, present] = counts / len(y)
    fitted = np.broadcast_to(shares, (len(tests), width)).copy()
    if len(present) > 1:
        regression = LogisticRegression(max_iter=1000).fit(x, y.astype(np.int64))
        fitted[:, present] = regression.predict_proba(tests).clip(LEAST)
    return np.log(shares), np.log(fitted)


LEAST = 1e-9
"""The probability of what no training record has."""


def _one_logit(
    x: np.ndarray, y: np.ndarray, tests: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    trivial, fitted = (logits[:, 1:] - logits[:, :1] for logits in _logits(x, y, tests, 2))
    return trivial, fitted


def _numbers(
    x: np.ndarray, y: np.ndarray, tests: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import Ridge

    return np.full((1, 1), y.mean()), Ridge().fit(x, y).predict(tests)[:, None]


def _log_hazards(
    x: np.ndarray, y: np.ndarray, tests: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """The likelihood of exponential times is that of a Poisson regression of events per time."""
    from sklearn.linear_model import PoissonRegressor

    event, time = y[:, 0].astype(np.float64), np.maximum(y[:, 1], LEAST).astype(np.float64)
    rate = max(float(event.sum()), LEAST) / time.sum()
    regression = PoissonRegressor(alpha=1e-4, max_iter=1000)
    regression.fit(x, event / time / rate, sample_weight=time * rate)
    constant = np.full((1, 1), math.log(rate))
    return constant, constant + np.log(regression.predict(tests))[:, None]


FITS: dict[str, Fit] = {
    "classes": _logits,
    "logit": _one_logit,
    "number": _numbers,
    "log_hazard": _log_hazards,
}
"""By the meaning of a task's outputs."""
