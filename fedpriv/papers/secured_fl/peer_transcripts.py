"""All messages of real aggregations without a server, on embedded records."""

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
class RecordingNetwork(Network):
    """A network that records every letter."""

    letters: list[Letter] = field(default_factory=list)

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.letters += letters
        return letters


def transcript(peers: int, iterations: int, *words: str) -> list[Letter]:
    """All messages of one round of federated averaging, with rho = 1.

    peers: how many.
    iterations: of ADMM.
    words: further overrides.

    Raises ConfigError like the command.
    """
    sizes = (
        f"preset.n_silos={peers}",
        "preset.silo_epochs=1",
        f"aggregation.iterations={iterations}",
    )
    exp = one_experiment(*FIXED, *sizes, "aggregation.beyond_safe=true", *words)
    network = RecordingNetwork()
    with prepare(exp) as prepared:
        prepared.session.network = lambda: network
        result = prepared.run_round(prepared.queries(1), prepared.state)
        if result.aborted:
            raise RuntimeError(result.aborted)
    return network.letters
