"""What the kernel is told: `Task` of block.h."""

from __future__ import annotations

import ctypes

from fedpriv.training.layers.compiled_specs import fields


class Task(ctypes.Structure):
    """Addresses are those of the training device."""

    _fields_ = (
        fields(
            ctypes.c_void_p,
            "start correction shared own x y order_keys dropout_keys counts places_of deltas "
            "arenas gradients numbers orders next",
        )
        + fields(ctypes.c_int64, "arena longest")
        + fields(ctypes.c_int32, "k size epochs batch rows places drawing epochs_a_word")
        + fields(ctypes.c_float, "lr proximal")
    )
