"""The bound that every mechanism here puts on a contribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def clipped_rows(vectors: torch.Tensor, clip: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of (k, d) cut to L2 norm `clip`. Returns (k, d) float64 rows and their (k,) norms
    before."""
    import torch

    exact = vectors.to(torch.float64, copy=True)
    norms = torch.linalg.vector_norm(exact, dim=1)
    # A zero row stays zero, a non-finite row stays non-finite: the caller decides about those,
    # clipping does not.
    scale = (clip / norms.clamp_min(clip)).unsqueeze(1)
    return exact.mul_(
        scale
    ), norms  # in place: new memory for every block would cost more than the product
