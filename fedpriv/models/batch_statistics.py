"""Normalisation by the statistics of the current batch."""

from __future__ import annotations

from torch import Tensor, nn


class BatchStatistics(nn.BatchNorm2d):
    """Batch normalisation without running statistics. A single value per channel, which torch
    refuses, becomes zero before the scale and the shift, since it is its own mean."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[1]:
            return (x - x) * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)
        normalised: Tensor = super().forward(x)
        return normalised
