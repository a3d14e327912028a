"""Functions of torch that a trace may call, and the layers that compute the same."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

RESHAPES = {"view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous"}
ADDITIONS = {"add"}


def _relu(inplace: bool = False) -> nn.Module:
    return nn.ReLU()


def _silu(inplace: bool = False) -> nn.Module:
    return nn.SiLU()


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Dropout(p) if training else nn.Identity()


def _dropout2d(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Dropout2d(p) if training else nn.Identity()


def _max_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> nn.Module:
    return nn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)


def _average_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> nn.Module:
    return nn.AvgPool2d(
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )


def _gelu(approximate: str = "none") -> nn.Module:
    return nn.GELU(approximate)


OPERATIONS: Mapping[str, Callable[..., nn.Module]] = {
    "relu": _relu,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": _gelu,
    "silu": _silu,
    "dropout": _dropout,
    "dropout2d": _dropout2d,
    "max_pool2d": _max_pool,
    "_max_pool2d": _max_pool,
    "boolean_dispatch": _max_pool,
    "avg_pool2d": _average_pool,
}
"""Makers of layers by the names of functions and methods. Their arguments are those of the
function after the tensor."""


_OWNERS = operator, torch, functional, torch._C._nn
_NAMES = {
    *OPERATIONS,
    *RESHAPES,
    *ADDITIONS,
    "mean",
    "getitem",
    "max_pool2d",
    "mul",
    "floordiv",
    "sub",
}
FUNCTIONS = {
    getattr,
    *(own for owner in _OWNERS for name in _NAMES if callable(own := getattr(owner, name, None))),
}
"""Functions whose calls are read; others may have the same names."""
