"""What a model is worth: on the central test records, on those that silos hold back, and on demand in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.base import Records

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedpriv.data.silo import SiloData
    from fedpriv.tasks import Task


@dataclass(frozen=True)
class Evaluation:
    """The records that models are evaluated on. held_out: what silos hold back for tests, with the silo of each record;
    None where no silo does. training: the silos' training records if they are looked at too."""

    model: nn.Module
    task: Task
    device: str
    test: Records
    held_out: Records | None
    training: list[SiloData] | None = None

    def row(self, evaluated: np.ndarray) -> dict[str, float]:
        """Loss and metrics on the central test split, the main metric on the records held out in the silos, and on
        demand the loss on the training records with its gradient's norm. Not private.

        evaluated: one model (d,), or one a silo, in the order of the silos: then the numbers are means over silos, on
        held-out records weighted by how many each has.
        """
        if evaluated.ndim == 2:
            return self._mean(evaluated)
        loss, metrics = self._evaluate(evaluated, self.test)
        row = {"loss": loss, **metrics}
        if self.training is not None:
            row |= self._training(evaluated, self.training)
        if self.held_out is not None:
            row[f"local_{self.task.metric}"] = self._evaluate(evaluated, self.held_out)[1][self.task.metric]
        return row

    def _mean(self, models: np.ndarray) -> dict[str, float]:
        rows = []
        for model in models:
            loss, metrics = self._evaluate(model, self.test)
            rows.append({"loss": loss, **metrics})
        row = {name: float(np.mean([other[name] for other in rows])) for name in rows[0]}
        if self.held_out is not None and self.held_out.silo is not None:
            silo = self.held_out.silo
            values = [self._of_silo(models[index], silo == index) for index in np.unique(silo)]
            row[f"local_{self.task.metric}"] = float(np.average(values, weights=np.unique(silo, return_counts=True)[1]))
        return row

    def _of_silo(self, params: np.ndarray, rows: np.ndarray) -> float:
        assert self.held_out is not None
        own = Records(self.held_out.x[rows], self.held_out.y[rows])
        return self._evaluate(params, own)[1][self.task.metric]

    def _evaluate(self, params: np.ndarray, records: Records) -> tuple[float, dict[str, float]]:
        import torch

        from fedpriv.training.evaluate import evaluate

        x, y = torch.from_numpy(records.x).to(self.device), torch.from_numpy(records.y).to(self.device)
        return evaluate(self.model, self._vector(params), x=x, y=y, task=self.task)

    def _training(self, params: np.ndarray, silos: list[SiloData]) -> dict[str, float]:
        from fedpriv.training.evaluate import objective

        records = [(silo.x.to(self.device), silo.y.to(self.device)) for silo in silos]
        loss, norm = objective(self.model, self._vector(params), silos=records, task=self.task)
        return {"train_loss": loss, "gradient_norm": norm}

    def _vector(self, params: np.ndarray) -> Tensor:
        import torch

        return torch.from_numpy(params).to(self.device, torch.float32)
