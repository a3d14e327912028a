"""A layer that keeps records within a ball."""

from __future__ import annotations

from torch import Tensor, nn


class Ball(nn.Module):
    """Rows (..., features) longer than `radius` are scaled down to it; the others pass unchanged."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.radius / x.norm(dim=-1, keepdim=True).clamp_min(self.radius))
