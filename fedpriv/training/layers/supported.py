"""The layers that training computes by code of its own: one table for all trainers.

A layer that is not in the table, or that its row does not accept, is left to autograd
(`fedpriv.training.trainers.sequential`, `vmapped`) and to torch.func (`fedpriv.training.clipped`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch import nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.layers import compiled_specs, convolution, dense
from fedpriv.training.layers.batched import BatchedLayer
from fedpriv.training.layers.compiled_specs import SpecMaker
from fedpriv.training.layers.masked_dropout import MaskedDropout
from fedpriv.training.layers.own_gradients import ConvolutionPass, GroupNormPass, Pass
from fedpriv.training.layers.parts import (
    AddedParameter,
    LastStep,
    MeanOfSteps,
    Recurrence,
    Reshape,
    SelfAttention,
    Sum,
)
from fedpriv.training.layers.sequence_gradients import (
    AddedParameterPass,
    EmbeddingPass,
    LayerNormPass,
    RecurrencePass,
    SelfAttentionPass,
    linear_pass,
)
from fedpriv.training.layers.windows import pair
from fedpriv.training.untouched import remember, untouched

Accepts = Callable[[Any, torch.Size], bool]
"""Whether a layer, as it is set, and the shape (1, ...) that it reads are supported."""
Batched = type[BatchedLayer[Any]] | None


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
    """How the trainers compute one type of layer. None: they do not.

    accepts: whether they do for this layer's settings; such a layer treats every record alone.
    parameters: names of the layer's parameters.
    dropout: how many of the last dimensions share one coin; None for a layer that draws nothing.
    elementwise: whether it computes each number by itself, without parameters.
    inner: name of the layer of torch that it calls.
    gradients: per-record gradients.
    at_input: many users at once, as the first layer, on images (users, rows, channels, h, w).
    on_features: many users at once, on features (users, rows, features).
    on_images: many users at once, on images behind a convolution.
    compiled: C++.
    """

    accepts: Accepts = _always
    parameters: tuple[str, ...] = ()
    dropout: int | None = None
    elementwise: bool = False
    inner: str | None = None
    gradients: Callable[..., Pass] | None = None
    at_input: Batched = None
    on_features: Batched = None
    on_images: Batched = None
    compiled: SpecMaker | None = None


_AFFINE = ("weight", "bias")

SUPPORTED: dict[type[nn.Module], LayerSupport] = {
    nn.Linear: LayerSupport(
        _linear,
        _AFFINE,
        gradients=linear_pass,
        on_features=dense.BatchedLinear,
        compiled=compiled_specs.dense,
    ),
    nn.Conv2d: LayerSupport(
        _convolution,
        _AFFINE,
        gradients=ConvolutionPass,
        at_input=convolution.BatchedInputConv2d,
        on_images=convolution.BatchedConv2d,
        compiled=compiled_specs.convolution,
    ),
    nn.GroupNorm: LayerSupport(
        _group_norm,
        _AFFINE,
        gradients=GroupNormPass,
        on_features=dense.BatchedGroupNorm,
        compiled=compiled_specs.group_norm,
    ),
    nn.ReLU: LayerSupport(
        on_features=dense.BatchedReLU,
        on_images=dense.BatchedReLU,
        compiled=compiled_specs.elementwise(compiled_specs.RELU),
    ),
    nn.MaxPool2d: LayerSupport(
        lambda layer, read: not layer.return_indices,
        on_images=convolution.BatchedMaxPool2d,
        compiled=compiled_specs.pool,
    ),
    nn.Flatten: LayerSupport(
        lambda layer, read: layer.start_dim == 1,
        at_input=dense.BatchedInputFlatten,
        on_images=convolution.BatchedFlatten,
        compiled=compiled_specs.flatten,
    ),
    nn.Dropout: LayerSupport(
        dropout=0,
        on_features=dense.BatchedDropout,
        on_images=dense.BatchedDropout,
        compiled=compiled_specs.dropout,
    ),
    nn.Dropout1d: LayerSupport(lambda layer, read: False, dropout=1),
    nn.Dropout2d: LayerSupport(
        dropout=2, on_images=convolution.BatchedDropout2d, compiled=compiled_specs.dropout
    ),
    nn.Dropout3d: LayerSupport(lambda layer, read: False, dropout=3),
    L2Projection: LayerSupport(on_features=dense.BatchedL2Projection),
    MaskedDropout: LayerSupport(compiled=compiled_specs.mask),
    nn.Tanh: LayerSupport(
        elementwise=True, compiled=compiled_specs.elementwise(compiled_specs.TANH)
    ),
    nn.Sigmoid: LayerSupport(
        elementwise=True, compiled=compiled_specs.elementwise(compiled_specs.SIGMOID)
    ),
    nn.GELU: LayerSupport(elementwise=True, compiled=compiled_specs.gelu),
    nn.SiLU: LayerSupport(
        elementwise=True, compiled=compiled_specs.elementwise(compiled_specs.SILU)
    ),
    nn.AvgPool2d: LayerSupport(_average_pool, compiled=compiled_specs.pool),
    nn.AdaptiveAvgPool2d: LayerSupport(_whole_average, compiled=compiled_specs.whole_average),
    nn.Identity: LayerSupport(),
    nn.LayerNorm: LayerSupport(
        _layer_norm, _AFFINE, gradients=LayerNormPass, compiled=compiled_specs.layer_norm
    ),
    nn.Embedding: LayerSupport(
        _embedding, ("weight",), gradients=EmbeddingPass, compiled=compiled_specs.embedding
    ),
    Sum: LayerSupport(on_features=dense.BatchedSum),
    Reshape: LayerSupport(compiled=compiled_specs.reshape),
    LastStep: LayerSupport(compiled=compiled_specs.one_step(compiled_specs.LAST_STEP)),
    MeanOfSteps: LayerSupport(compiled=compiled_specs.one_step(compiled_specs.MEAN_OF_STEPS)),
    AddedParameter: LayerSupport(
        _added, ("own",), gradients=AddedParameterPass, compiled=compiled_specs.positions
    ),
    Recurrence: LayerSupport(
        _recurrence, inner="cell", gradients=RecurrencePass, compiled=compiled_specs.recurrence
    ),
    SelfAttention: LayerSupport(
        _attention,
        inner="attention",
        gradients=SelfAttentionPass,
        compiled=compiled_specs.attention,
    ),
}
"""By the exact type of a layer: a subclass may compute something else."""

_INNER = nn.GRU, nn.LSTM, nn.MultiheadAttention, nn.modules.linear.NonDynamicallyQuantizableLinear
_OUTER = nn.Sequential, nn.TransformerEncoderLayer, nn.TransformerEncoder
remember([*SUPPORTED, *_INNER, *_OUTER])


def support_of(layer: nn.Module, read: torch.Size) -> LayerSupport | None:
    """The row of a layer that reads (1, ...), or None if it is not supported."""
    support = SUPPORTED.get(type(layer))
    if support is None or not untouched(layer):
        return None
    if support.inner is not None:
        parts = getattr(layer, support.inner).modules()
        known = all(map(untouched, parts))
    else:
        parameters = layer._parameters  # with those that are None
        alone = not any(layer.children())
        known = alone and (not parameters or tuple(parameters) == support.parameters)
    return support if known and support.accepts(layer, read) else None
