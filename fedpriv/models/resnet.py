"""Residual networks for colour images."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpriv.errors import require
from fedpriv.models import Model, linear_size

if TYPE_CHECKING:
    from torch import nn

STEM = 64
CHANNELS = (64, 128, 256, 512)
"""Channels of the four stages, each of two blocks."""
LEAST_SIDE = 32
"""Smallest height and width of an image in pixels."""


@dataclass(frozen=True)
class ResNet18(Model):
    """ResNet-18 (He, Zhang, Ren, Sun, CVPR 2016) as torchvision builds it. It normalises by the
    statistics of each batch and keeps no running statistics, since buffers are never sent.

    The records of a batch influence each other through the normalisation, in evaluation too.
    Therefore it can train only if there is no privacy or the unit of privacy is a silo. With ten
    classes it is the CIFAR-10 network of Jeon et al. (SecureD-FL, 2021), with 11181642 parameters.
    """

    mixes_records = True

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torchvision.models import resnet18

        from fedpriv.models.batch_statistics import BatchStatistics

        self._require_images(shape)
        network: nn.Module = resnet18(weights=None, num_classes=outputs, norm_layer=BatchStatistics)
        return network

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        self._require_images(shape)
        stem = shape[0] * STEM * 49 + 2 * STEM
        stages = pairwise((STEM, *CHANNELS))
        blocks = sum(_block(before, after) + _block(after, after) for before, after in stages)
        return stem + blocks + linear_size(CHANNELS[-1], outputs)

    def _require_images(self, shape: tuple[int, ...]) -> None:
        fits = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= LEAST_SIDE
        sides = f"{LEAST_SIDE} x {LEAST_SIDE}"
        allowed = f"colour images of {sides} pixels or more, not records of shape {shape}"
        require(fits, "model", "resnet18", allowed)


def _block(before: int, after: int) -> int:
    """Parameters of two convolutions of kernel 3, of their normalisations and, if the widths
    differ, of a projection."""
    projection = before * after + 2 * after if before != after else 0
    return 9 * (before + after) * after + 4 * after + projection
