"""Evaluation of a model on the central test records, on the silos' held-out records and, on demand,
on the training records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.base import Records

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedpriv.algorithms.base import Algorithm
    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task
    from fedpriv.training.evaluate import Evaluator, Labelled


@dataclass(frozen=True)
class OnTraining:
    """The objective on the training records: their loss f0 plus the regulariser f1 of `algo`.

    A silo without training records has no loss, and no mean includes it.

    algo: the algorithm, which decides f1.
    optimum: the least value of f0 + f1; None: unknown.
    """

    algo: Algorithm
    optimum: float | None = None

    def row(self, theta: Tensor, on: Evaluation) -> dict[str, float]:
        """Metrics of the model `theta` (d,) on the silos' records, by name:

        train_loss: f0.
        gradient_norm: norm of the gradient of f0.
        mapping_norm: norm of the proximal gradient mapping; equal to gradient_norm if f1 = 0.
        heterogeneity: distance of the silos' gradients from that gradient.
        excess_risk: f0 + f1 - optimum, if the optimum is known.
        """
        from fedpriv.training.evaluate import training_loss

        filled = [silo for silo in on.silos if len(silo.x)]
        records = [(silo.x.to(on.device), silo.y.to(on.device)) for silo in filled]
        found = training_loss(on.model, theta, silos=records, task=on.task)
        params, gradient = (vector.double().cpu().numpy() for vector in (theta, found.gradient))
        regulariser = self.algo.regulariser
        mapping = gradient if regulariser is None else regulariser.mapping(params, gradient)
        row = {
            "train_loss": found.loss,
            "gradient_norm": float(np.linalg.norm(gradient)),
            "mapping_norm": float(np.linalg.norm(mapping)),
            "heterogeneity": found.heterogeneity,
        }
        if self.optimum is not None:
            penalty = 0.0 if regulariser is None else regulariser.value(params)
            row["excess_risk"] = found.loss + penalty - self.optimum
        return row


@dataclass(frozen=True)
class Evaluation:
    """The records that models are evaluated on.

    model: network into which parameters are loaded.
    task: loss and metrics.
    device: device of the evaluation.
    test: central test records, with the silo of each if it is known; there may be none here.
    held_out: records that silos hold back for tests, with the silo of each; None: there are none.
    silos: training records of each silo.
    training: evaluation on the training records; None: off.
    parts: parts of the central test records by name, (n,) bool each.
    """

    model: nn.Module
    task: Task
    device: str
    test: Records
    held_out: Records | None
    silos: list[SiloData] = field(default_factory=list)
    training: OnTraining | None = None
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)

    def row(self, evaluated: np.ndarray) -> dict[str, float]:
        """Loss and metrics on the central test records, the main metric on the silos' held-out
        records and, on demand, metrics on the training records (`OnTraining`). Not private.

        evaluated: one model (d,), or one model for each silo (n_silos, d). With one model a silo,
            the numbers are means over silos, weighted by their numbers of records. A record whose
            silo is known then counts for that silo's model only.
        """
        row = self._metrics(evaluated, self.test) if len(self.test) else {}
        if self.training is not None and evaluated.ndim == 1:
            row |= self.training.row(self._vector(evaluated), self)
        if self.held_out is not None:
            metric = self.task.metric
            row[f"local_{metric}"] = self._metrics(evaluated, self.held_out)[metric]
        return row

    def outputs(self, evaluated: np.ndarray) -> np.ndarray:
        """Outputs (n, c) on the central test records: of the model (d,), or of each record's own
        silo's one of the models (n_silos, d)."""
        rows = [np.arange(len(self.test))]
        if evaluated.ndim > 1:
            rows = [np.flatnonzero(self.test.silo == silo) for silo in range(len(evaluated))]
        found = [
            self._evaluator.outputs(self._vector(model), self._test.x[own]).cpu().numpy()
            for model, own in zip(np.atleast_2d(evaluated), rows)
            if len(own)
        ]
        return np.concatenate(found)[np.argsort(np.concatenate(rows))]

    def final_scores(self, outputs: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
        """Loss and all metrics of outputs (n, c) on the chosen central test records, (n,) bool."""
        return self._evaluator.final_scores(outputs[chosen], self.test.y[chosen])

    def _metrics(self, evaluated: np.ndarray, records: Records) -> dict[str, float]:
        if evaluated.ndim == 1:
            whole = self._test if records is self.test else self._held_out
            loss, metrics = self._evaluator.evaluate(self._vector(evaluated), whole)
            return {"loss": loss, **metrics}
        rows = []
        weights = []
        for index, model in enumerate(evaluated):
            own = (
                np.ones(len(records), dtype=bool) if records.silo is None else records.silo == index
            )
            if own.any():
                mine = self._labelled(Records(records.x[own], records.y[own]))
                loss, metrics = self._evaluator.evaluate(self._vector(model), mine)
                rows.append({"loss": loss, **metrics})
                weights.append(int(own.sum()))
        return {
            name: float(np.average([row[name] for row in rows], weights=weights))
            for name in rows[0]
        }

    @cached_property
    def _evaluator(self) -> Evaluator:
        from fedpriv.training.evaluate import Evaluator

        return Evaluator(self.model, self.task)

    @cached_property
    def _test(self) -> Labelled:
        return self._labelled(self.test)

    @cached_property
    def _held_out(self) -> Labelled:
        assert self.held_out is not None
        return self._labelled(self.held_out)

    def _labelled(self, records: Records) -> Labelled:
        import torch

        from fedpriv.training.evaluate import Labelled

        return Labelled(
            *(torch.from_numpy(array).to(self.device) for array in (records.x, records.y))
        )

    def _vector(self, params: np.ndarray) -> Tensor:
        import torch

        return torch.from_numpy(params).to(self.device, torch.float32)
