"""What a model is worth: on the central test records, on those that silos hold back, and on demand
in training."""

from __future__ import annotations

from dataclasses import dataclass
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
    """The silos' training records, and what the method minimises on them: their loss f0, and f1 of
    `algo`.

    A silo without training records has no loss, and is in no mean.

    optimum: the least value of f0 + f1, where somebody knows it.
    """

    silos: list[SiloData]
    algo: Algorithm
    optimum: float | None = None

    def row(self, model: nn.Module, theta: Tensor, *, task: Task, device: str) -> dict[str, float]:
        """f0 and the norm of its gradient, how far the silos' gradients are from that, the norm of
        the proximal gradient mapping, which is the gradient's where f1 = 0, and the excess risk.

        theta: (d,).
        """
        from fedpriv.training.evaluate import training_loss

        records = [(silo.x.to(device), silo.y.to(device)) for silo in self.silos if len(silo.x)]
        found = training_loss(model, theta, silos=records, task=task)
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

    test: the central ones, with the silo of each where that is known.
    held_out: what silos hold back for tests, with the silo of each record; None where no silo does.
    training: how the silos' training records are looked at too; None: not at all.
    """

    model: nn.Module
    task: Task
    device: str
    test: Records
    held_out: Records | None
    training: OnTraining | None = None

    def row(self, evaluated: np.ndarray) -> dict[str, float]:
        """Loss and metrics on the central test split, the main metric on the records held out in
        the silos, and on demand what the training records say (`OnTraining`). Not private.

        evaluated: one model (d,), or one a silo, in the order of the silos: then the numbers are
        means over silos. Where a record's silo is known it counts for that silo's model alone, and
        silos by how many records they have.
        """
        if evaluated.ndim == 2:
            return self._mean(evaluated)
        theta = self._vector(evaluated)
        loss, metrics = self._evaluator.evaluate(theta, self._test)
        row = {"loss": loss, **metrics}
        if self.training is not None:
            row |= self.training.row(self.model, theta, task=self.task, device=self.device)
        if self._held_out is not None:
            row[f"local_{self.task.metric}"] = self._evaluator.evaluate(theta, self._held_out)[1][
                self.task.metric
            ]
        return row

    def _mean(self, models: np.ndarray) -> dict[str, float]:
        row = self._mean_on(models, self.test)
        if self.held_out is not None:
            row[f"local_{self.task.metric}"] = self._mean_on(models, self.held_out)[
                self.task.metric
            ]
        return row

    def _mean_on(self, models: np.ndarray, records: Records) -> dict[str, float]:
        rows = []
        weights = []
        for index, model in enumerate(models):
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
    def _held_out(self) -> Labelled | None:
        return None if self.held_out is None else self._labelled(self.held_out)

    def _labelled(self, records: Records) -> Labelled:
        import torch

        from fedpriv.training.evaluate import Labelled

        return Labelled(
            *(torch.from_numpy(array).to(self.device) for array in (records.x, records.y))
        )

    def _vector(self, params: np.ndarray) -> Tensor:
        import torch

        return torch.from_numpy(params).to(self.device, torch.float32)
