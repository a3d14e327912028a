"""Where local training is faster: on the processor or on the GPU. It is measured, on made-up
records, so the choice depends on no data and on no number of users."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedpriv.data.silo import SiloData
from fedpriv.training.batches import TrainingUsers
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.select import select_trainer
from fedpriv.training.trainers.base import LocalProblem
from fedpriv.training.trainers.compiled.losses import known_loss
from fedpriv.training.trainers.compiled.trainer import compiled
from fedpriv.training.trainers.device.trainer import device_trainer

USERS = 1024, 32
"""Made-up users where the GPU's kernel trains them, and where torch does."""
RECORDS = 16
PROCESSOR = "cpu"


@dataclass(frozen=True)
class Choice:
    """A device.

    name: of the device.
    reason: why, as the end of a line; empty where nothing was compared.
    """

    name: str
    reason: str = ""


_known: dict[object, Choice] = {}


def faster_device(problem: LocalProblem, gpu: str) -> Choice:
    """The faster device for the training of users, remembered for the process.

    problem: on the processor; its network is on the processor afterwards too.
    """
    key = str(problem.model), problem.shape, problem.task, problem.execution, gpu
    if key not in _known:
        _known[key] = _measured(problem, gpu)
    return _known[key]


def _measured(problem: LocalProblem, gpu: str) -> Choice:
    if isinstance(compiled(problem), Unmapped):
        return Choice(gpu)  # torch trains on either
    try:
        there = replace(problem, model=problem.model.to(gpu), start=problem.start.to(gpu))
        users = USERS[isinstance(device_trainer(there), Unmapped)]
        fast = seconds(there, users)
    finally:
        problem.model.to(PROCESSOR)
    slow = seconds(problem, users)
    reason = (
        f"{users} made-up users take {1e3 * fast:.2g} ms on the GPU and {1e3 * slow:.2g} ms on "
        f"the processor"
    )
    return Choice(gpu if fast < slow else PROCESSOR, reason)


def seconds(problem: LocalProblem, users: int) -> float:
    """How long the fastest trainer on the problem's device takes for made-up users, warmed up."""
    device = problem.start.device
    problem = replace(problem, recipe=replace(problem.recipe, epochs=2, batch_size=RECORDS))
    made = _made_up(problem, users, device)
    taken = []
    for _ in range(2):
        since = time.perf_counter()
        trainer = select_trainer(problem, alone=False)
        for start, stop in trainer.blocks(made.counts, made.size):
            trainer.run(made.part(slice(start, stop)), None)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - since)
    return taken[-1]


def _made_up(problem: LocalProblem, users: int, device: torch.device) -> TrainingUsers:
    rows = users * RECORDS
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((rows, *problem.shape), generator=generator)
    if not problem.dtype.is_floating_point:
        x = torch.zeros((rows, *problem.shape), dtype=problem.dtype)
    loss = known_loss(problem.task)
    assert loss is not None  # else nothing is compared
    y = torch.zeros((rows, *loss.label), dtype=loss.dtype)
    positions = np.arange(users)
    data = SiloData(x.to(device), y.to(device), positions, RECORDS * np.arange(users + 1))
    keys = positions.astype(np.uint64)
    return TrainingUsers(data, positions, RECORDS, keys, keys)
