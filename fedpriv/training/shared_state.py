"""Networks in which the records of a batch influence each other."""

from __future__ import annotations

from torch import nn

from fedpriv.errors import require


def mixing_layer(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The first layer, with its name, that mixes or remembers the records of a batch, as batch
    normalisation does."""
    for name, part in model.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) or getattr(
            part, "track_running_stats", False
        ):
            return name, part
    return None


def refuse_shared_state(model: nn.Module) -> None:
    """Raise ConfigError if records influence each other through `model`: clipping one record's
    gradient or one user's update would then not bound what the record or the user does."""
    found = mixing_layer(model)
    if found is not None:
        name, layer = found
        allowed = (
            f"no layer that mixes or remembers the records of a batch (layer {name}; GroupNorm "
            "does neither)"
        )
        require(False, "model", type(layer).__name__, allowed)
