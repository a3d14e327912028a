"""A method at which one silo's process ends in the middle of its local training. A party's process
imports it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.algorithms.scaffold import Scaffold
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo

SICK = "silo1"


def dying(update: LocalJob, silo: Silo, query: Query, sick_round: int) -> LocalJob:
    if silo.name != SICK or query.round != sick_round:
        return update

    def blocks():
        yield next(update.contributions)
        os.kill(os.getpid(), signal.SIGKILL)

    return replace(update, steps=blocks())


@dataclass(frozen=True)
class MortalAvg(UldpAvg):
    sick_round: int = 2

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return dying(super().local_update(silo, query, down), silo, query, self.sick_round)


@dataclass(frozen=True)
class MortalScaffold(Scaffold):
    sick_round: int = 2

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return dying(super().local_update(silo, query, down), silo, query, self.sick_round)
