"""CUDA C++ compiled by NVRTC, which comes with torch, and its functions on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedpriv.training.trainers.compiled.build_folder import CannotCompileError, built
from fedpriv.training.trainers.compiled.library import cache_dir

FLAGS = ("--std=c++17", "-default-device")
"""No flag may exclude NaN and infinities: they show that a user's training diverged."""
FAILURES = CannotCompileError, ImportError, OSError, RuntimeError
"""What a machine without a working NVRTC raises."""


class Function:
    """A kernel, loaded onto one GPU.

    processors: the GPU's multiprocessors.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        source: str,
        name: str,
        device: torch.device,
    ) -> None:
        """texts: the files by name; source: the one that is compiled. Raises `FAILURES`."""
        from cuda.bindings import driver

        self.driver = driver
        self.known: dict[tuple[int, int], int] = {}
        self.device = device
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count
        major, minor = torch.cuda.get_device_capability(device)
        image = build(texts, source, f"sm_{major}{minor}", cache_dir()).read_bytes()
        with torch.cuda.device(device):
            torch.empty(1, device=device)  # torch makes the device's context
            self.module = checked(driver.cuModuleLoadData(image))
            self.function = checked(driver.cuModuleGetFunction(self.module, name.encode()))

    def allow_shared_memory(self, most: int) -> None:
        """Let blocks have so many bytes of shared memory."""
        attribute = self.driver.CUfunction_attribute
        limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(self.driver.cuFuncSetAttribute(self.function, limit, most))

    def blocks(self, threads: int, shared_bytes: int) -> int:
        """How many blocks run at the same time."""
        key = threads, shared_bytes
        if key not in self.known:
            ask = self.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
            with torch.cuda.device(self.device):
                each = max(1, checked(ask(self.function, threads, shared_bytes)))
            self.known[key] = each * self.processors
        return self.known[key]

    def launch(
        self, arguments: ctypes.Structure, blocks: int, threads: int, shared_bytes: int = 0
    ) -> None:
        """Begin to run on the current stream. arguments: the kernel's only parameter."""
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream().cuda_stream
            sizes = (blocks, 1, 1), (threads, 1, 1)
            place = ctypes.addressof(addresses)
            checked(
                self.driver.cuLaunchKernel(
                    self.function, *sizes[0], *sizes[1], shared_bytes, stream, place, 0
                )
            )


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a block may have. Raises `FAILURES`."""
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    checked(driver.cuInit(0))
    handle = checked(driver.cuDeviceGet(index_of(device)))
    return int(checked(driver.cuDeviceGetAttribute(attribute, handle)))


def index_of(device: torch.device) -> int:
    """The number of a GPU."""
    return torch.cuda.current_device() if device.index is None else device.index


def build(
    texts: Mapping[str, str],
    source: str,
    architecture: str,
    folder: Path,
) -> Path:
    """The machine code for an architecture such as sm_90, in `folder`; compiled if it is
    missing. Raises `FAILURES`."""
    from cuda.bindings import nvrtc

    chosen = (*FLAGS, f"--gpu-architecture={architecture}")
    version = checked(nvrtc.nvrtcVersion())
    content = sorted(texts.items()), source, chosen, version
    return built(folder, "gpu", content, lambda _: _compiled(texts, source, chosen))


def _compiled(texts: Mapping[str, str], source: str, flags: Sequence[str]) -> bytes:
    from cuda.bindings import nvrtc

    headers = {name: text for name, text in texts.items() if name != source}
    program = checked(
        nvrtc.nvrtcCreateProgram(
            texts[source].encode(),
            source.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [name.encode() for name in headers],
        )
    )
    try:
        [status] = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        if int(status):
            log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            lines = log.decode(errors="replace").strip().splitlines()
            raise CannotCompileError(lines[0] if lines else str(status))
        image = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
        checked(nvrtc.nvrtcGetCUBIN(program, image))
        return bytes(image)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def checked(answer: tuple[Any, ...]) -> Any:
    """What a function of CUDA returned. Raises RuntimeError for an error."""
    status, *found = answer
    if int(status):
        raise RuntimeError(f"CUDA answers {status.name}")
    return found[0] if len(found) == 1 else tuple(found) or None
