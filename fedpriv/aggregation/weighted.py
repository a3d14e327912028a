"""What every aggregation whose server hands out the weights has in common: agreeing on them, and a silo's weighted sum.

Trust: with weights that depend on record counts the server learns all counts, and each silo its own users' weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, AggregationAborted, Party, Total

if TYPE_CHECKING:
    from fedpriv.aggregation.fixed_point import FixedPoint
    from fedpriv.algorithms.base import Update

WEIGHT_TOLERANCE = 1e-12


def shown_counts(counts: dict[str, np.ndarray], needs_counts: bool) -> dict[str, np.ndarray]:
    """What each silo tells the server: its records per unit, (n_units,), or zeros when no weight depends on them."""
    return {name: own if needs_counts else np.zeros_like(own) for name, own in counts.items()}


def fetch_weights(counts: np.ndarray, memory: dict[str, Any]) -> Party:
    """A silo's part: show the counts, remember the weights, (n_units,)."""
    inbox = yield {SERVER: counts}
    memory["weights"] = inbox[SERVER]


def hand_out_weights(silos: list[str], weigh: Callable[[np.ndarray], np.ndarray]) -> Party:
    """The server's part; returns the mail that answers the weights. Raises ValueError for weights beyond the
    sensitivity bound."""
    inbox = yield {}
    require_all(silos, inbox)
    weights = weigh(np.stack([inbox[name] for name in silos]))
    worst = weights.sum(axis=0).max()
    if weights.min() < 0 or worst > 1 + WEIGHT_TOLERANCE:
        raise ValueError(f"weights of a unit add up to {worst}: the sensitivity bound needs at most 1")
    return (yield dict(zip(silos, weights)))


def hand_out_weights_and_keys(silos: list[str], weigh: Callable[[np.ndarray], np.ndarray]) -> Party:
    """The server's part where the silos answer their weights with a public key each: everybody gets all of them."""
    keys = yield from hand_out_weights(silos, weigh)
    require_all(silos, keys)
    yield dict.fromkeys(silos, keys)


def message(name: str, update: Update, memory: dict[str, Any], code: FixedPoint | None) -> np.ndarray:
    """Silo `name`'s message in the clear, (d,): its weighted contributions plus its noise share, as integers modulo R
    when there is a `code`, else float64."""
    import torch

    signal = np.zeros(len(update.noise))
    for block in update.blocks:
        weights = torch.from_numpy(memory["weights"][block.units]).to(block.vectors.device)
        signal += (weights @ block.vectors).cpu().numpy()
    return signal + update.noise if code is None else code.encode(signal, name, update.noise)


def require_all(silos: Iterable[str], inbox: dict[str, Any]) -> None:
    """Raise AggregationAborted unless every silo has sent something."""
    missing = [name for name in silos if name not in inbox]
    if missing:
        # Without its noise share the sum would be less private than declared.
        raise AggregationAborted(f"no message from {', '.join(missing)}")


def add_messages(silos: list[str], code: FixedPoint | None) -> Party:
    """The server's part where the messages' own sum is the total: nobody may be missing."""
    inbox = yield {}
    require_all(silos, inbox)
    total = np.zeros_like(inbox[silos[0]])
    for name in silos:
        total += inbox[name]
    return Total(total if code is None else code.decode(total), tuple(silos))
