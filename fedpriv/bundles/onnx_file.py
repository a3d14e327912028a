"""The network of a bundle for other programs, and its use without torch.

A file of a stranger runs no code: it may hold operators of ONNX alone, without loops, functions of
its own and tensors in other files.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import FedprivError
from fedpriv.util.installed import how_to_install
from fedpriv.util.untrusted_files import read_bytes

if TYPE_CHECKING:
    from fedpriv.bundles.network import SavedNetwork

MOST_BYTES = 2**31 - 1
"""Size limit of a model.onnx, which is that of its format."""
LOOPS = ("If", "Loop", "Scan", "SequenceMap")
"""Operators with graphs inside."""


def require_packages(*names: str) -> None:
    """Raise FedprivError for a package that is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise FedprivError(f"ONNX needs {name}: {how_to_install('onnx')}")


def onnx_bytes(network: SavedNetwork, shape: list[int], dtype: str) -> bytes:
    """A model.onnx: input `records` (n, *shape), output `outputs` (n, c). Raises FedprivError for a
    network that has no form in ONNX."""
    import logging
    import warnings

    import torch

    require_packages("onnx", "onnxscript")
    example = torch.zeros((3, *shape), dtype=getattr(torch, dtype))
    rows = torch.export.Dim("rows")
    level = logging.getLogger("torch.onnx").level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["records"],
                output_names=["outputs"],
                dynamic_shapes=({0: rows},),
            )
        assert program is not None  # with dynamo
        return bytes(program.model_proto.SerializeToString())
    except Exception as error:  # of torch.onnx, which has no common base
        reason = " ".join(str(error).split())
        raise FedprivError(f"--onnx: the network has no form in ONNX: {reason:.120}") from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def open_network(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """The network in a model.onnx, from records (n, ...) to outputs (n, c). Raises ValueError or
    OSError, or an error of onnxruntime."""
    content = read_bytes(path, MOST_BYTES)
    import onnx
    import onnxruntime

    model = onnx.load_model_from_string(content)
    odd = {node.op_type for node in model.graph.node if node.domain or node.op_type in LOOPS}
    outside = any(tensor.external_data for tensor in model.graph.initializer)
    constants = [one.t for node in model.graph.node for one in node.attribute]
    outside |= any(tensor.external_data for tensor in constants)
    if odd or outside or model.functions:
        raise ValueError(f"{path.name} holds more than plain operators and tensors")
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    [name] = [one.name for one in session.get_inputs()]
    return lambda x: np.asarray(session.run(None, {name: x})[0])
