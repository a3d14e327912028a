"""The bound that every mechanism puts on a contribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpriv.errors import require

if TYPE_CHECKING:
    import torch

LEAST = 1e-100
"""Smallest bound: the squares of vectors near it would be zero soon, and their norms with them."""


def clipped_rows(vectors: torch.Tensor, clip: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of (k, d) scaled down to L2 norm `clip` where theirs is larger. Returns (k, d) float64
    rows and their (k,) norms before."""
    import torch

    exact = vectors.to(torch.float64, copy=clip < math.inf)
    norms = torch.linalg.vector_norm(exact, dim=1)
    if clip == math.inf:
        return exact, norms
    # A zero row stays zero. A row with NaN or infinity keeps them: the caller decides about it.
    scale = (clip / norms.clamp_min(clip)).unsqueeze(1)
    return exact.mul_(scale), norms  # in place: new memory costs more than the product


def check_clip_and_noise(clip: float, noise_multiplier: float) -> None:
    """Raise ConfigError for settings that no mechanism with noise has."""
    bounded = f"a finite bound of at least {LEAST:g} (mechanism=none to not clip)"
    require(LEAST <= clip < math.inf, "algo.clip", clip, bounded)
    noisy = 0 <= noise_multiplier < math.inf
    finite = "zero or a positive finite number"
    require(noisy, "algo.noise_multiplier", noise_multiplier, finite)
