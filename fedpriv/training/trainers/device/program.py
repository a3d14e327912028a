"""The kernel of a network on a GPU."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from fedpriv.training.layers.compiled_specs import fields
from fedpriv.training.trainers.compiled.build_folder import source_texts
from fedpriv.training.trainers.device.network import DeviceNetwork
from fedpriv.training.trainers.gpu.nvrtc import Function, shared_memory

SOURCE = "kernel.cpp"


class Task(ctypes.Structure):
    """What the kernel is told: `Task` of block.h. Addresses are those of the training device."""

    _fields_ = (
        fields(
            ctypes.c_void_p,
            "start correction shared own x y order_keys dropout_keys counts deltas "
            "arenas gradients numbers orders next",
        )
        + fields(ctypes.c_int64, "arena longest")
        + fields(ctypes.c_int32, "k size epochs batch rows places drawing epochs_a_word")
        + fields(ctypes.c_float, "lr proximal")
    )


def kernel_texts(network: DeviceNetwork, teams: int) -> dict[str, str]:
    """The files of the kernel's source, by name. teams: of a block, at most."""
    own = {"sizes.h": network.sizes(teams), "layers.h": network.layers}
    return source_texts(__package__) | own


@cache
def cuda_program(network: DeviceNetwork, index: int) -> Function:
    """The program of the network on the GPU of this number. Raises `FAILURES`."""
    device = torch.device("cuda", index)
    function = Function(kernel_texts(network, network.teams), SOURCE, "train", device)
    function.allow_shared_memory(shared_memory(device))
    return function
