"""What every aggregation whose server hands out the weights has in common: the set-up, and a silo's weighted sum.

Trust: with weights that depend on record counts the server learns all counts, and each silo its own users' weights.
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
from fedpriv.weighting import WEIGHT_TOLERANCE

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
    """A silo that the server tells its weights, (n_units,) float64."""

    name: str
    weighting: Weighting
    weights: np.ndarray = field(init=False)

    def setup(self, counts: np.ndarray) -> Party:
        """Show the counts, or zeros when no weight depends on them, and remember the weights."""
        mail = yield {SERVER: counts if self.weighting.needs_counts else np.zeros_like(counts)}
        require_all([SERVER], mail)
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
    """A server that makes the weights of all `silos` from what they show."""

    silos: tuple[str, ...]
    weighting: Weighting

    def setup(self) -> Party:
        yield from self.hand_out_weights()

    def hand_out_weights(self) -> Generator[Mail, Mail, Mail]:
        """Collect counts and send weights; returns the mail that answers them. Raises ValueError for weights beyond
        the sensitivity bound."""
        counts = yield {}
        require_all(self.silos, counts)
        weights = self.weighting.weights(np.stack([counts[name] for name in self.silos]))
        worst = weights.sum(axis=0).max()
        if weights.min() < 0 or worst > 1 + WEIGHT_TOLERANCE:
            raise ValueError(f"weights of a unit add up to {worst}: the sensitivity bound needs at most 1")
        return (yield dict(zip(self.silos, weights)))


class KeyPassingServer(WeighingServer):
    """A server whose silos answer their weights with a public key each: everybody gets all of them."""

    def setup(self) -> Party:
        keys = yield from self.hand_out_weights()
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
