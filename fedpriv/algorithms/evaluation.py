"""Accuracy, loss, calibration and AUC of a fixed model, by one private sum over test persons.

Each test person contributes one vector, whose parts are means over the own records:

- accuracy: 1 for a wrong prediction, or 1 for a right one.
- loss: (1 - x, x) for x = loss / most_loss, cut to 1.
- calibration: 1 for the bin of the probability, and whether what it is of has happened. Of two
  classes it is that of the second, and AUC follows: pairs of one bin count one half.

A record's values are computed from the model and this record alone, so that nobody else's record
changes a bit of them. The model is a constant, also if it was
trained on the same records. With `models` each round evaluates another model of a training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.algorithms.parts import Estimate, Part, between, counted, ratio
from fedpriv.algorithms.sums_of_parts import SumsOfParts
from fedpriv.data.test_records import TestRecords
from fedpriv.errors import require
from fedpriv.models.released import Released
from fedpriv.models.scores import predicted, probabilities
from fedpriv.rounds.state import State

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.data.base import DataSet
    from fedpriv.models import Model
    from fedpriv.models.tasks import Task
    from fedpriv.rounds.plan import Federation, Plan
    from fedpriv.rounds.query import Query, Total
    from fedpriv.rounds.silo_context import Silo

MODEL = "model"
"""The slot of the model in the state."""
BEST = "best"
"""The slot of the best model before it."""
ROUNDS = "rounds"
"""The slot (models,) of the rounds of a training after which its models were evaluated; 0: none."""
EVALUATED = {"classes": "classes", "logit": "classes", "number": "numbers"}
"""Tasks whose losses compare no records, by the meaning of their outputs."""


@dataclass(frozen=True)
class Share(Part):
    """The mean of x from 0 to 1 over users.

    name: of the mean.
    high: what x = 1 stands for.
    """

    name: str
    high: float = 1.0
    size = 2

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.stack([1 - x, x], axis=1)

    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        yield _share(self.name, "", *ratio(sums, np.array([0, 1]), noise), scale=self.high)


@dataclass(frozen=True)
class Calibration(Part):
    """How often happens what has a probability, by bins of the probability, and AUC.

    bins: number of bins; x is twice the bin's number, and 1 more if it has happened.
    ranks: whether AUC follows.
    """

    bins: int
    ranks: bool

    @property
    def size(self) -> int:  # type: ignore[override]
        return 2 * self.bins

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.eye(self.size)[x.astype(np.int64)])

    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        cells = sums.reshape(self.bins, 2)
        edges = pairwise(np.linspace(0, 1, self.bins + 1))
        for (low, high), cell in zip(edges, cells):
            often = ratio(cell, np.array([0, 1]), noise)
            yield _share("calibration", f"{low:g} to {high:g}", *often)
        if self.ranks:
            yield _share("auc", f"{self.bins} bins", *area(cells, noise))


def area(cells: np.ndarray, noise: float) -> tuple[float, float, float]:
    """AUC of the bins with its interval: all m for which the sum over pairs of a positive and a
    negative record of (1 if it ranks higher, 1/2 if alike, else 0) - m is not far from 0. Its noise
    is bilinear; estimating its variance from noisy numbers overstates it by more than that.

    cells: (bins, 2) numbers of negative and positive records by rising probability.
    """
    bins, k = len(cells), noise**2
    negative, positive = cells[:, 0], cells[:, 1]
    n, p = float(negative.sum()), float(positive.sum())
    a = (p * n) ** 2 - k * bins * (p**2 + n**2)
    if min(n, p) <= 0 or a <= 0:  # too few of a class for the noise: nothing is known
        return 0.5, 0.0, 1.0
    higher = np.tri(bins, k=-1) + np.eye(bins) / 2
    left, right = higher.T @ positive, higher @ negative
    pairs = float(positive @ right)
    b = 2 * pairs * p * n - 2 * k * float(p * left.sum() + n * right.sum())
    c = pairs**2 - k * float(left @ left + right @ right)
    return between(pairs / (p * n), a, b, c)


def _share(name: str, of: str, *found: float, scale: float = 1.0) -> Estimate:
    """A number from 0 to `scale` and its interval."""
    return Estimate(name, of, *(min(max(one, 0.0), 1.0) * scale for one in found))


@dataclass(frozen=True)
class Evaluation(SumsOfParts):
    """Private evaluation of a run's released model on the test records of its data set.

    weights: file of the model, which `fedpriv evaluate` names.
    digest: SHA-256 of the file.
    classes: number of classes; 0: the label is a number.
    bins: of probabilities.
    most_loss: larger losses of a record count as this.
    models: number of models of a training, which are evaluated one by one; 0: one fixed model.
    """

    weights: str | None = None
    digest: str = ""
    classes: int = 0
    bins: int = 5
    most_loss: float = 3.0
    models: int = 0

    label = "Evaluation"

    def __post_init__(self) -> None:
        named = self.weights is not None or self.models > 0
        require(named, "algo.weights", "null", "set by fedpriv evaluate RUN")
        require(1 <= self.bins <= 2**10, "algo.bins", self.bins, "a number up to 1024")
        positive = 0 < self.most_loss < math.inf
        require(positive, "algo.most_loss", self.most_loss, "a positive number")

    def data_of(self, data: DataSet) -> DataSet:
        known = data.task.meaning in EVALUATED
        name = type(data).__name__
        ways = "a task whose loss compares no records: classes or a number"
        require(known, "data", f"{name} ({data.task.metric})", ways)
        fits = self.classes == classes_of(data)
        require(fits, "algo.classes", self.classes, f"{classes_of(data)}, of {name}")
        return data if isinstance(data, TestRecords) else TestRecords(whole=data)

    def model_of(self, model: Model) -> Model:
        if self.weights is None or isinstance(model, Released):
            return model
        return Released(model, Path(self.weights), self.digest)

    @property
    def scores(self) -> list[str]:
        """The statistics with one value, by which a run may be chosen."""
        found = [part.name for _, _, part in self.parts() if isinstance(part, Share)]
        return found + (["auc"] if self.classes == 2 else [])

    def parts(self) -> list[tuple[str, int, Part]]:
        found: list[Part] = [Share("loss", self.most_loss)]
        if self.classes:
            found += [Share("accuracy"), Calibration(self.bins, ranks=self.classes == 2)]
        return [("test", place, part) for place, part in enumerate(found)]

    def init(self, params: np.ndarray, plan: Plan) -> State:
        slots = {MODEL: params, ROUNDS: np.zeros(self.models)}
        return State(np.zeros(self.size * max(1, self.models)), slots)

    def last_round(self, federation: Federation) -> int | None:
        return max(1, self.models)

    def columns(self, state: State) -> list[str]:
        """What each evaluation is called: by the model that it was of."""
        return [f"round {number:.0f}" for number in state.slots[ROUNDS]] or ["test"]

    def of_model(self, state: State, round: int, model: np.ndarray, best: np.ndarray) -> State:
        """The state in which the next evaluation is of `model`, that of a training after `round`
        rounds.

        best: the best model before it.
        """
        rounds = state.slots[ROUNDS].copy()
        rounds[np.count_nonzero(rounds)] = round
        return state.with_params(state.params, **{MODEL: model, BEST: best, ROUNDS: rounds})

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        sums = state.params.copy()
        sums.reshape(-1, self.size)[query.round - 1] = total.vector
        return state.with_params(sums)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {"params": state.slots[MODEL]}

    def values(self, silo: Silo, down: Mapping[str, np.ndarray], rows: slice) -> np.ndarray:
        import torch

        from fedpriv.training.evaluate import Evaluator

        theta = torch.tensor(down["params"], dtype=torch.float32)
        # One record at a time: in a batch, rounding may depend on the others.
        outputs = Evaluator(silo.model, silo.task, batch=1).outputs(theta, silo.data.x[rows])
        y = silo.data.y[rows]
        each = (slice(number, number + 1) for number in range(len(y)))
        return np.array([self._of_record(silo.task, outputs[one], y[one]) for one in each])

    def _of_record(self, task: Task, outputs: Tensor, y: Tensor) -> list[float]:
        """The value of each part for one record. Without a finite output it has the largest loss, a
        wrong prediction and no probability."""
        if not outputs.isfinite().all():
            return [1.0, 0.0, math.nan][: len(self.placed)]
        loss = float(task.loss(outputs, y, outputs.new_ones(1)))
        found = [min(max(loss / self.most_loss, 0.0), 1.0)]
        if self.classes:
            logits, label = outputs.numpy(), int(y[0] > 0.5) if self.classes == 2 else int(y[0])
            chances = probabilities(logits)[0]
            right = int(predicted(logits, task.threshold)[0] == label)
            two = self.classes == 2
            chance, happened = (chances[1], label) if two else (chances.max(), right)
            place = min(int(chance * self.bins), self.bins - 1)
            found += [right, 2 * place + happened]
        return found

    def table(self, state: State, plan: Plan) -> list[dict[str, Any]]:
        """For each evaluation so far, the rows of `SumsOfParts` after the number of persons."""
        share = self.share(plan.mechanism)
        reach = math.sqrt(2) * plan.mechanism.spread(plan.n_summed) / share
        rows: list[dict[str, Any]] = []
        for column, sums in zip(self.columns(state), state.params.reshape(-1, self.size)):
            if sums.any():
                number = float(sums[self.placed[0].here].sum()) / share
                rows.append({"column": column, **counted("count", "", number, reach)._asdict()})
                found = super().table(replace(state, params=sums), plan)
                rows += [{**row, "column": column} for row in found]
        return rows

    def in_words(self, column: str, state: State, plan: Plan) -> dict[str, str]:
        """Name of each score of an evaluation: its value with its interval."""
        return {
            f"{row['statistic']} {row['of']}".strip(): f"{row['value']:.4g} (charged, of test "
            f"persons, 95 % from {row['low']:.4g} to {row['high']:.4g})"
            for row in self.table(state, plan)
            if row["column"] == column
        }

    def best(self, metric: str, state: State, plan: Plan) -> int:
        """The number of the evaluation with the best score so far, from 1; 0: there is none."""
        better = min if metric == "loss" else max
        found = {
            r["column"]: r["value"] for r in self.table(state, plan) if r["statistic"] == metric
        }
        names = self.columns(state)
        return 1 + names.index(better(found, key=found.__getitem__)) if found else 0


def classes_of(data: DataSet) -> int:
    """The number of classes of a data set; 0: its label is a number."""
    if data.task.meaning == "logit":
        return 2
    return data.outputs if data.task.meaning == "classes" else 0
