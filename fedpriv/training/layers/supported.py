"""The layers of captured networks that training knows: one table for C++ and for clipped gradients.

Each treats every record alone. A network with a layer that is not in the table, or that its row
does not accept, is left to torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch import nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.layers import compiled_specs
from fedpriv.training.layers.compiled_specs import SpecMaker
from fedpriv.training.layers.parts import (
    AddedParameter,
    LastStep,
    MeanOfSteps,
    Recurrence,
    Reshape,
    SelfAttention,
    Sum,
    pair,
)
from fedpriv.training.masked_dropout import DROPOUTS, MaskedDropout

Accepts = Callable[[Any, torch.Size], bool]
"""Whether a layer, as it is set, and the shape (1, ...) that it reads are supported."""
Shapes = dict[str, tuple[int, ...]]
"""Of parameters, by name, in the order that C++ and gradients of records rely on."""


def _has(layer: nn.Module, shapes: Shapes) -> bool:
    """Whether a layer has exactly these parameters, in this order and each its own. One that was
    registered anew, such as what is left of a pruned weight, is the last of its layer."""
    found = dict(layer.named_parameters(remove_duplicate=False))
    same = [(name, tuple(own.shape)) for name, own in found.items()] == [*shapes.items()]
    return same and len({*map(id, found.values())}) == len(found)


def _without(shapes: Shapes, unbiased: bool) -> Shapes:
    """The shapes of a layer that may have no offsets."""
    return {name: own for name, own in shapes.items() if "bias" not in name or not unbiased}


def _always(layer: Any, read: torch.Size) -> bool:
    return True


def _linear(layer: nn.Linear, read: torch.Size) -> bool:
    shapes = {"weight": (layer.out_features, layer.in_features), "bias": (layer.out_features,)}
    return len(read) in (2, 3) and _has(layer, _without(shapes, layer.bias is None))


def _convolution(layer: nn.Conv2d, read: torch.Size) -> bool:
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if not plain or layer.groups != 1 or len(read) != 4:
        return False
    sizes = (layer.out_channels, layer.in_channels, *layer.kernel_size)
    shapes: Shapes = {"weight": sizes, "bias": (layer.out_channels,)}
    return _has(layer, _without(shapes, layer.bias is None))


def _average_pool(layer: nn.AvgPool2d, read: torch.Size) -> bool:
    """Windows side by side that cover the image."""
    kernel, stride = pair(layer.kernel_size), pair(layer.stride)
    plain = pair(layer.padding) == (0, 0) and not layer.ceil_mode and not layer.divisor_override
    return plain and kernel == stride and len(read) == 4


def _whole_average(layer: nn.AdaptiveAvgPool2d, read: torch.Size) -> bool:
    return layer.output_size in (1, (1, 1)) and len(read) == 4


def _group_norm(layer: nn.GroupNorm, read: torch.Size) -> bool:
    both = (layer.weight is None) == (layer.bias is None)
    return both and layer.affine == (layer.weight is not None)


def _layer_norm(layer: nn.LayerNorm, read: torch.Size) -> bool:
    both = (layer.weight is None) == (layer.bias is None)
    return len(layer.normalized_shape) == 1 and len(read) in (2, 3) and both


def _embedding(layer: nn.Embedding, read: torch.Size) -> bool:
    plain = layer.padding_idx is None and layer.max_norm is None
    plain = plain and _has(layer, {"weight": (layer.num_embeddings, layer.embedding_dim)})
    return plain and not layer.scale_grad_by_freq and not layer.sparse and len(read) == 2


def _added(layer: AddedParameter, read: torch.Size) -> bool:
    return len(read) == 3 and layer.own.numel() == read.numel()


def _recurrence(layer: Recurrence, read: torch.Size) -> bool:
    cell = layer.cell
    single = cell.num_layers == 1 and not cell.bidirectional and not cell.proj_size
    if not single or not cell.batch_first or len(read) != 3:
        return False
    rows = (4 if isinstance(cell, nn.LSTM) else 3) * cell.hidden_size
    shapes: Shapes = {
        "weight_ih_l0": (rows, cell.input_size),
        "weight_hh_l0": (rows, cell.hidden_size),
        "bias_ih_l0": (rows,),
        "bias_hh_l0": (rows,),
    }
    computed = all(map(is_, cell._flat_weights, cell.parameters()))  # what torch itself reads
    return computed and _has(cell, _without(shapes, not cell.bias))


def _attention(layer: SelfAttention, read: torch.Size) -> bool:
    own = layer.attention
    plain = own.bias_k is None and own.bias_v is None and not own.add_zero_attn
    n = own.embed_dim
    shapes: Shapes = {
        "in_proj_weight": (3 * n, n),
        "in_proj_bias": (3 * n,),
        "out_proj.weight": (n, n),
        "out_proj.bias": (n,),
    }
    sequences = own.batch_first and not own.dropout and len(read) == 3
    return plain and sequences and _has(own, shapes)


@dataclass(frozen=True)
class LayerSupport:
    """What is known of one type of layer.

    accepts: whether it is known with this layer's settings; such a layer treats every record alone.
    parameters: names of the layer's parameters.
    inner: name of the layer of torch that it calls.
    compiled: what C++ computes; None: it does not.
    """

    accepts: Accepts = _always
    parameters: tuple[str, ...] = ()
    inner: str | None = None
    compiled: SpecMaker | None = None


_AFFINE = ("weight", "bias")


def _elementwise(schema: int) -> LayerSupport:
    return LayerSupport(compiled=compiled_specs.elementwise(schema))


SUPPORTED: dict[type[nn.Module], LayerSupport] = {
    nn.Linear: LayerSupport(_linear, _AFFINE, compiled=compiled_specs.dense),
    nn.Conv2d: LayerSupport(_convolution, _AFFINE, compiled=compiled_specs.convolution),
    nn.GroupNorm: LayerSupport(_group_norm, _AFFINE, compiled=compiled_specs.group_norm),
    nn.LayerNorm: LayerSupport(_layer_norm, _AFFINE, compiled=compiled_specs.layer_norm),
    nn.Embedding: LayerSupport(_embedding, ("weight",), compiled=compiled_specs.embedding),
    nn.ReLU: _elementwise(compiled_specs.RELU),
    nn.Tanh: _elementwise(compiled_specs.TANH),
    nn.Sigmoid: _elementwise(compiled_specs.SIGMOID),
    nn.SiLU: _elementwise(compiled_specs.SILU),
    nn.GELU: LayerSupport(compiled=compiled_specs.gelu),
    nn.MaxPool2d: LayerSupport(
        lambda layer, read: not layer.return_indices, compiled=compiled_specs.pool
    ),
    nn.AvgPool2d: LayerSupport(_average_pool, compiled=compiled_specs.pool),
    nn.AdaptiveAvgPool2d: LayerSupport(_whole_average, compiled=compiled_specs.whole_average),
    nn.Flatten: LayerSupport(
        lambda layer, read: layer.start_dim == 1, compiled=compiled_specs.flatten
    ),
    **{kind: LayerSupport() for kind in DROPOUTS},
    nn.Dropout: LayerSupport(compiled=compiled_specs.dropout),
    nn.Dropout2d: LayerSupport(compiled=compiled_specs.dropout),
    MaskedDropout: LayerSupport(compiled=compiled_specs.mask),
    nn.Identity: LayerSupport(),
    L2Projection: LayerSupport(),
    Sum: LayerSupport(),
    Reshape: LayerSupport(compiled=compiled_specs.reshape),
    LastStep: LayerSupport(compiled=compiled_specs.one_step(compiled_specs.LAST_STEP)),
    MeanOfSteps: LayerSupport(compiled=compiled_specs.one_step(compiled_specs.MEAN_OF_STEPS)),
    AddedParameter: LayerSupport(_added, ("own",), compiled=compiled_specs.positions),
    Recurrence: LayerSupport(_recurrence, inner="cell", compiled=compiled_specs.recurrence),
    SelfAttention: LayerSupport(_attention, inner="attention", compiled=compiled_specs.attention),
}
"""By the exact type of a layer: a subclass may compute something else."""


def support_of(layer: nn.Module, read: torch.Size) -> LayerSupport | None:
    """The row of a layer that reads (1, ...), or None if it is not supported."""
    support = SUPPORTED.get(type(layer))
    if support is None:
        return None
    parameters = layer._parameters  # with those that are None
    known = support.inner or not parameters or tuple(parameters) == support.parameters
    return support if known and support.accepts(layer, read) else None
