"""What methods need of a network, checked before any data are loaded."""

from __future__ import annotations

import torch
from torch import nn

from fedpriv.training.graph import device_of
from fedpriv.training.network_checks import check_parameters, refuse_shared_state
from fedpriv.training.record_dropout import record_dropout


def check_local_training(network: nn.Module, *, pooled: bool) -> None:
    """Raise ConfigError for a network that users, or whole silos (`pooled`), cannot train."""
    if not pooled:
        refuse_shared_state(network)
    check_parameters(network, (torch.float32,))


def check_record_gradients(
    network: nn.Module,
    shape: tuple[int, ...],
    *,
    text: bool,
    group: int = 1,
    isolated: bool = True,
) -> None:
    """Raise ConfigError for a network without clipped gradients of records (groups of `group`).

    shape: shape of one record's features.
    text: whether the features are numbers of characters.
    isolated: whether what a record drops may not depend on other records.
    """
    refuse_shared_state(network)
    if isolated:
        dtype = torch.int64 if text else torch.float32
        record_dropout(network, (group, *shape), dtype, device_of(network))
