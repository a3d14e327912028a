"""Whether values are equal in types and fields too, tensors and arrays bit for bit."""

from dataclasses import fields, is_dataclass

import numpy as np
import torch


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if is_dataclass(one):
        names = [f.name for f in fields(one) if f.init]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one.items()], [*other.items()])
    return one == other or (one != one and other != other)
