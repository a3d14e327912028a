"""Many local trainings at once whose noisy steps each use one record. Every kernel computes a step
of all of them.

The batched layers compute one gradient for each network. With one record a batch, that is the
per-record gradient that is clipped. Gradients are float32; they are clipped, noised and added up in
float64. Trainings whose noise comes from equal generators, such as those of one seed in a sweep,
share one draw.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fedpriv.models.tasks import Task
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.layers.buffers import BufferPool, Masks
from fedpriv.training.per_record import clip_factors, finite_norms
from fedpriv.training.trainers.batched import Program
from fedpriv.training.trainers.compile_layers import Link, parameter_layout
from fedpriv.util.work import Work

NUMBERS_AT_ONCE = 2**17
"""Parameters of all networks of a stack. The copies that a step uses then stay in a processor's
second cache."""
STEPS_AT_ONCE = 32
"""Steps whose records and noise are loaded together."""


@dataclass(frozen=True, eq=False)
class RecordSteps(Work[np.ndarray]):
    """A training whose steps each follow one record's clipped gradient plus noise. Its result is
    the final minus the starting parameters, (d,) float64, without the last step's noise.

    links: of a network that draws no random numbers.
    task: gives the loss.
    clip: bound on a gradient's L2 norm.
    lr: rate of a step.
    theta: starting parameters (d,) float64.
    x: records (n, ...).
    y: labels (n, ...).
    rows: (steps,) positions of the records.
    noise: generator of (d,) Gaussian numbers for every step but the last, left in any state; None:
        no noise.
    deviation: factor of these numbers.
    stats: counts gradients.
    """

    links: Sequence[Link]
    task: Task
    clip: float
    lr: float
    theta: np.ndarray
    x: Tensor
    y: Tensor
    rows: np.ndarray
    noise: np.random.Generator | None
    deviation: float
    stats: ContributionStats

    @property
    def nbytes(self) -> int:
        return self.theta.nbytes

    @property
    def batch_key(self) -> Hashable:
        alike = ((t.shape[1:], t.dtype, t.device) for t in (self.x, self.y))
        return tuple(link.layer.batch_key for link in self.links), self.task, len(self.rows), *alike

    def run(self) -> np.ndarray:
        return self.run_batch([self])[0]

    @classmethod
    def run_batch(cls, works: Sequence[RecordSteps]) -> list[np.ndarray]:
        states = [work.noise_state for work in works]
        # Works that share their noise come side by side.
        order = sorted(range(len(works)), key=states.__getitem__)
        size = max(1, NUMBERS_AT_ONCE // len(works[0].theta))
        found: dict[int, np.ndarray] = {}
        for start in range(0, len(order), size):
            places = order[start : start + size]
            widths = [len(list(group)) for _, group in groupby(places, states.__getitem__)]
            found |= zip(places, _Stack([works[place] for place in places], widths).changes())
        return [found[place] for place in range(len(works))]

    @property
    def noise_state(self) -> bytes:
        """Equal for trainings with the same noise, up to its deviation."""
        return b"" if self.noise is None else pickle.dumps(self.noise.bit_generator.state)


class _Stack:
    """Networks that train side by side.

    `theta`, `weights` (theta in float32), `gradients` and `exact` (gradients in float64) are views
    (k, ...) of one flat buffer each, which has the first parameters of all networks, then the
    second.

    widths: how many consecutive networks share their noise.
    """

    def __init__(self, works: Sequence[RecordSteps], widths: Sequence[int]) -> None:
        self.works = works
        self.device = works[0].x.device
        links = works[0].links
        self.layout = parameter_layout(links)
        self.theta_flat, self.theta = self._buffer(torch.float64)
        self.weights_flat, self.weights = self._buffer(torch.float32)
        self.gradients_flat, self.gradients = self._buffer(torch.float32)
        self.exact_flat, self.exact = self._buffer(torch.float64)
        self.start = torch.from_numpy(np.stack([work.theta for work in works])).to(self.device)
        for own, piece in zip(self.theta, self.layout.stacks(self.start)):
            own.copy_(piece)
        self.clips, self.rates = (
            self._column([getattr(work, name) for work in works]) for name in ("clip", "lr")
        )
        self.sharing = list(self._sharing(widths))
        buffers = BufferPool(self.device)
        self.program = Program(
            links,
            buffers.take("x", (len(works), 1, *works[0].x.shape[1:])),
            parameters=self.weights,
            targets=self.gradients,
            buffers=buffers,
            masks=Masks(np.zeros(len(works), np.uint64), layers=(), budget=0, device=self.device),
        )
        self.one_each = torch.ones((len(works), 1), device=self.device)

    def _sharing(
        self, widths: Sequence[int]
    ) -> Iterator[tuple[np.random.Generator, list[Tensor], list[Tensor]]]:
        """Generators, each with the parameters of the networks that share it and with the factors
        of their noise."""
        ends = np.cumsum(widths).tolist()
        for end, width in zip(ends, widths):
            works = self.works[end - width : end]
            noise = self.works[end - 1].noise
            if noise is not None:
                theta = [own[end - width : end] for own in self.theta]
                far = self._column([work.lr * work.deviation for work in works])
                yield noise, theta, [far.view(-1, *[1] * (own.dim() - 1)) for own in theta]

    def _buffer(self, dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
        k = len(self.works)
        sizes = [k * size for size in self.layout.sizes]
        flat = torch.empty(sum(sizes), dtype=dtype, device=self.device)
        pieces = zip(torch.split(flat, sizes), self.layout.shapes)
        return flat, [piece.view(k, *shape) for piece, shape in pieces]

    def _column(self, numbers: Sequence[float]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float64, device=self.device)

    @torch.inference_mode()
    def changes(self) -> list[np.ndarray]:
        """Final minus starting parameters of each network, (d,) float64."""
        norms = torch.stack([self._step(*given) for given in self._given()], 1)
        for work, own in zip(self.works, norms):
            finite_norms(own, work.clip, work.stats)
        changes: np.ndarray = (self.layout.vectors(self.theta) - self.start).cpu().numpy()
        return list(changes)

    def _given(self) -> Iterator[tuple[Tensor, Tensor, list[list[Tensor]]]]:
        """Each step's records (k, 1, ...), labels (k, 1, ...), and noise by parameters for each of
        `sharing`."""
        steps = len(self.works[0].rows)
        d = self.start.shape[1]
        for begin in range(0, steps, STEPS_AT_ONCE):
            here = min(STEPS_AT_ONCE, steps - begin)
            rows = [
                torch.from_numpy(work.rows[begin : begin + here]).to(self.device)
                for work in self.works
            ]
            x, y = (
                torch.stack([getattr(work, name)[own] for work, own in zip(self.works, rows)], 1)
                for name in "xy"
            )
            noisy = min(here, steps - 1 - begin)
            noise = []
            for generator, _, _ in self.sharing:
                drawn = generator.standard_normal((noisy, d))
                noise.append(self.layout.stacks(torch.from_numpy(drawn).to(self.device)))
            for step in range(here):
                drawn_now = [[p[step] for p in own] for own in noise] if step < noisy else []
                yield x[step].unsqueeze(1), y[step].unsqueeze(1), drawn_now

    def _step(self, x: Tensor, y: Tensor, noise: list[list[Tensor]]) -> Tensor:
        """Move all networks. Returns the norms (k,) of their gradients."""
        self.weights_flat.copy_(self.theta_flat)
        self.gradients_flat.zero_()
        self.program.load(x)
        outputs = self.program.forward()
        self.program.backward(self.works[0].task.gradient(outputs, y, self.one_each), 1.0)
        self.exact_flat.copy_(self.gradients_flat)
        parts = [torch.linalg.vector_norm(own.flatten(1), dim=1) for own in self.exact]
        norms: Tensor = torch.linalg.vector_norm(torch.stack(parts), dim=0)
        factors = clip_factors(norms, self.clips, None).mul_(self.rates)
        if not bool(factors.all()):  # NaN and infinity times zero are not zero
            for own in self.exact:
                own[factors == 0] = 0.0
        for theta, gradient in zip(self.theta, self.exact):
            theta.addcmul_(gradient, factors.view(-1, *[1] * (theta.dim() - 1)), value=-1)
        for (_, targets, deviations), pieces in zip(self.sharing, noise):
            for theta, piece, deviation in zip(targets, pieces, deviations):
                theta.addcmul_(piece, deviation, value=-1)
        return norms
