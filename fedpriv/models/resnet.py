"""Residual networks for colour images."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpriv.errors import ConfigError
from fedpriv.models import Model

if TYPE_CHECKING:
    from torch import nn

STEM = 64
CHANNELS = (64, 128, 256, 512)
"""Of the four stages, each of two blocks."""
LEAST_SIDE = 32


@dataclass(frozen=True)
class ResNet18(Model):
    """ResNet-18 (He, Zhang, Ren, Sun, CVPR 2016) as torchvision builds it, normalised by the
    statistics of the batch at hand: no running statistics are kept, since buffers are never sent.

    Records of a batch influence each other through the normalisation, in evaluation too, so that it
    can train only where the unit of privacy, if there is any, is a silo. For ten classes 11181642
    parameters: the CIFAR-10 network of Jeon et al. (SecureD-FL, 2021).
    """

    @property
    def mixes_records(self) -> bool:
        return True

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torchvision.models import resnet18

        from fedpriv.models.batch_statistics import BatchStatistics

        self._require_images(shape)
        network: nn.Module = resnet18(weights=None, num_classes=outputs, norm_layer=BatchStatistics)
        return network

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        self._require_images(shape)
        blocks = [
            pair
            for before, after in pairwise((STEM, *CHANNELS))
            for pair in ((before, after), (after, after))
        ]
        stem = shape[0] * STEM * 49 + 2 * STEM
        return stem + sum(_block(*pair) for pair in blocks) + (CHANNELS[-1] + 1) * outputs

    def _require_images(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 3 or shape[0] != 3 or min(shape[1:]) < LEAST_SIDE:
            allowed = (
                f"colour images of {LEAST_SIDE} x {LEAST_SIDE} pixels or more, not records of "
                f"shape {shape}"
            )
            raise ConfigError("model", "resnet18", allowed)


def _block(before: int, after: int) -> int:
    """Parameters of two convolutions of kernel 3, their normalisations and, where widths differ, of
    a projection."""
    projection = before * after + 2 * after if before != after else 0
    return 9 * (before + after) * after + 4 * after + projection
