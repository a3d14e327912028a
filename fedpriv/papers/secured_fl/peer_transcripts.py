"""Letters of real aggregations without a server, on records that need no folder."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedpriv.engines.base import Network
from fedpriv.parties.traffic import Letter
from fedpriv.runtime import prepare
from fedpriv.settings.compose import one_experiment

FIXED = (
    "data=breast_cancer",
    "algo=fedavg",
    "aggregation=admm",
    "aggregation.preset=null",
    "aggregation.rho=1",
)


@dataclass
class Kept(Network):
    """A network that keeps a copy of everything."""

    letters: list[Letter] = field(default_factory=list)

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.letters += letters
        return letters


def transcript(peers: int, iterations: int, *words: str) -> list[Letter]:
    """All messages of a round of federated averaging among so many peers, with rho = 1. words:
    other settings.

    Raises ConfigError as the command would.
    """
    sizes = (
        f"preset.n_silos={peers}",
        "preset.silo_epochs=1",
        f"aggregation.iterations={iterations}",
    )
    exp = one_experiment(*FIXED, *sizes, "aggregation.beyond_safe=true", *words)
    kept = Kept()
    with prepare(exp) as prepared:
        prepared.session.network = lambda: kept
        result = prepared.run_round(prepared.queries(1), prepared.state)
        if result.aborted:
            raise RuntimeError(result.aborted)
    return kept.letters
