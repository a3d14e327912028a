"""What aggregations have in common in which a silo knows its weights: the set-up, and a silo's weighted sum.

Trust: weights that depend on no record count each silo computes itself, from public numbers. With weights that do, the
server learns all counts, and each silo its own users' weights. A silo refuses weights that cannot be right; a server
that tells several silos too much of one user, each time less than 1, can still move the sum by more than the bound.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.aggregation.base import SERVER, HelperProtocol, SiloProtocol
from fedpriv.deployment import Observer, Trust
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.party import Mail, Party
from fedpriv.weighting import bounded_weights

if TYPE_CHECKING:
    from fedpriv.query import Broadcast, Update
    from fedpriv.weighting import Weighting


def server_trust(*, sees_messages: bool) -> Trust:
    """Who sees what where the server hands out weights, samples users and learns the sum.

    sees_messages: whether the server sees every silo's message too.
    """
    released, server, silo = OBSERVERS
    observers = (
        Observer(released, sees_sample=False),
        Observer(server, sees_messages=sees_messages, sees_counts="the server learns every user's record counts"),
        Observer(silo, sees_counts="a silo's weights reveal its users' records elsewhere", own_shares=1),
    )
    return Trust(observers, learners=(SERVER,))


@dataclass(repr=False)
class WeightedSilo(SiloProtocol):
    """A silo, one of `silos`, with weights (n_units,) float64."""

    name: str
    silos: tuple[str, ...]
    weighting: Weighting
    weights: np.ndarray = field(init=False)

    def setup(self, counts: np.ndarray) -> Party:
        """Compute the weights, or show the counts and be told. Raises AggregationAbortedError for weights that cannot
        be right."""
        if not self.weighting.needs_counts:
            self.weights = self.weighting.own_weights(self.silos.index(self.name), (len(self.silos), len(counts)))
            return
        mail = yield {SERVER: counts}
        require_all([SERVER], mail)
        try:
            self.weighting.check_row(mail[SERVER], counts)
        except ValueError as wrong:
            raise AggregationAbortedError(f"{self.name} refuses the weights of the {SERVER}: {wrong}") from wrong
        self.weights = mail[SERVER]

    def weighted_sum(self, update: Update) -> np.ndarray:
        """The silo's contributions times their weights, without noise: (size,) float64."""
        import torch

        signal = np.zeros(len(update.noise))
        for block in update.blocks:
            weights = torch.from_numpy(self.weights[block.units]).to(block.vectors.device)
            signal += (weights @ block.vectors).cpu().numpy()
        return signal


@dataclass
class WeighingServer(HelperProtocol):
    """A server that makes the weights of all `silos` from the counts that they show, if any depends on counts."""

    silos: tuple[str, ...]
    weighting: Weighting

    def setup(self) -> Party:
        weights = yield from self.weights_of_silos()
        if weights:
            yield weights

    def weights_of_silos(self) -> Generator[Mail, Mail, Mail]:
        """Each silo's weights, made of the counts of all; none where silos compute them. Raises ValueError for weights
        beyond the sensitivity bound."""
        if not self.weighting.needs_counts:
            return {}
        counts = yield {}
        require_all(self.silos, counts)
        table = self.weighting.weights(np.stack([counts[name] for name in self.silos]))
        return dict(zip(self.silos, bounded_weights(table)))


class KeyPassingServer(WeighingServer):
    """A server whose silos send a public key each once they have weights: everybody gets all keys."""

    def setup(self) -> Party:
        keys = yield (yield from self.weights_of_silos())
        require_all(self.silos, keys)
        yield dict.fromkeys(self.silos, keys)


def require_all(names: Iterable[str], mail: Mail) -> None:
    """Raise AggregationAbortedError unless every one of them has sent something."""
    missing = [name for name in names if name not in mail]
    if missing:
        # Without its noise share the sum would be less private than declared.
        raise AggregationAbortedError(f"no message from {', '.join(missing)}")


def sum_of_answers(silos: tuple[str, ...], broadcast: Broadcast) -> Generator[Mail, Mail, np.ndarray]:
    """The server's part where the messages' own sum, in the order of `silos`, is the total: nobody may be missing."""
    answers = yield dict.fromkeys(silos, broadcast)
    require_all(silos, answers)
    total: np.ndarray = np.zeros_like(answers[silos[0]])
    for name in silos:
        total += answers[name]
    return total
