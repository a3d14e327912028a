"""A layer that keeps records within an L2 ball."""

from __future__ import annotations

from torch import Tensor, nn


class L2Projection(nn.Module):
    """Scales rows (..., features) of L2 norm above `radius` down to `radius`."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        norm: Tensor = x.norm(dim=-1, keepdim=True)
        return x * (self.radius / norm.clamp_min(self.radius))
