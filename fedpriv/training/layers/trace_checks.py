"""Whether a trace computes what its network computes: outputs and gradients.

A trace sees neither hooks nor gradients that are stopped, and a network with spectral normalisation
or a block without gradients has the outputs of its trace. So such networks are refused by what they
have, and all others compared, in training mode and in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fedpriv.training.layers.chain import LayerChain, chain_of
from fedpriv.training.layers.masked_dropout import MaskedDropout
from fedpriv.training.layers.traced import Call, UnmappedError, read_calls
from fedpriv.training.modes import in_mode, modes, seeded_dropout
from fedpriv.training.own_code import own_code
from fedpriv.training.untouched import (
    HOOKS,
    appearance,
    changed_classes,
    has_hidden_attributes,
    torch_is_untouched,
)
from fedpriv.training.vectors import call, flatten, unflatten

BATCHES = 1, 2, 5
"""Numbers of records of the passes that are compared."""
POINTS = 2
"""Parameters at which they are compared: the network's own, and others close to them."""
TOLERANCE = 1e-9
"""Largest relative difference; both compute in float64."""


def traced_chain(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> LayerChain:
    """The chain that computes what `model` computes. Raises UnmappedError where there is none.

    The forward pass runs on a copy only.
    """
    if not any(True for _ in model.parameters()):
        raise UnmappedError("the network has no parameters")
    require_transparent(model)
    try:
        own = copy.deepcopy(model).train()
    except Exception as error:
        raise UnmappedError("the network cannot be copied") from error
    device = next(own.parameters()).device

    def zeros(count: int) -> Tensor:
        return torch.zeros((count, *shape), dtype=dtype, device=device)

    before = appearance(own)
    ready = modes(own)
    with torch.no_grad(), seeded_dropout(device, 0):
        calls = read_calls(own, zeros)
    if appearance(own) != before or modes(own) != ready:
        raise UnmappedError("its forward pass changes the network")
    _require_plain_code(own)
    chain = chain_of(model, shape, dtype, _of(model, own, calls), traced=True)
    _compare(own, chain, shape, dtype)
    if appearance(own) != before:
        raise UnmappedError("its forward pass changes the network")
    return chain


def require_transparent(model: nn.Module) -> None:
    """Raise UnmappedError for what a trace does not see."""
    if not torch_is_untouched():
        raise UnmappedError("torch has hooks for all modules, or patches")
    if changed_classes(model):
        raise UnmappedError("classes of torch are patched")
    for name, part in model.named_modules():
        own = vars(part)
        where = f"layer {name}" if name else "the network"
        if any(own[hooks] for hooks in HOOKS):
            raise UnmappedError(f"{where} has hooks")
        if "forward" in own or "__call__" in own:
            raise UnmappedError(f"{where} has a forward pass of its own instance")
        if hasattr(part, "parametrizations"):
            raise UnmappedError(f"{where} has parametrised weights")
        if own["_buffers"] and not isinstance(part, MaskedDropout):
            raise UnmappedError(f"{where} has buffers")
    if has_hidden_attributes(model):
        raise UnmappedError("it has an attribute that may change unseen")
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or parameter._backward_hooks:
            raise UnmappedError(f"parameter {name} is frozen or has hooks")


def _require_plain_code(model: nn.Module) -> None:
    """Raise UnmappedError for code that may do something else elsewhere than where it is traced."""
    code = own_code(model)
    if code.hidden is not None:
        raise UnmappedError(f"its code reads {code.hidden}, which may change unseen")
    if code.blind is not None:
        raise UnmappedError(f"its code has {code.blind}, from which a trace may hide")


def _of(model: nn.Module, own: nn.Module, calls: Sequence[Call]) -> list[Call]:
    """The same calls with the modules and parameters of `model` in the place of its copy's."""
    pairs: dict[int, object] = {}
    for mine, theirs in ((own.modules(), model.modules()), (own.parameters(), model.parameters())):
        pairs |= {id(one): other for one, other in zip(mine, theirs)}
    return [call.of(pairs) for call in calls]


def _compare(
    model: nn.Module, chain: LayerChain, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Raise UnmappedError if outputs or gradients of the two differ anywhere."""
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(1)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(device)

    start = flatten(model).double()
    words = min((own.num_embeddings for own in _embeddings(chain)), default=2)
    for point in range(POINTS):
        theta = start + 0.1 * point * drawn(len(start))
        for count in BATCHES:
            x = drawn(count, *shape)
            if not dtype.is_floating_point:
                x = (x.abs() * 1000).to(dtype) % words
            _require_equal(model, chain, theta, x, drawn)


def _require_equal(
    model: nn.Module, chain: LayerChain, theta: Tensor, x: Tensor, drawn: Callable[..., Tensor]
) -> None:
    both: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda theta: call(model, unflatten(model, theta), x.clone()),  # which it may overwrite
        lambda theta: chain.run(theta, x.clone()),
    )
    found = []
    factors = None
    for compute in both:
        own = theta.clone().requires_grad_()
        with torch.enable_grad(), seeded_dropout(x.device, 1), in_mode(model, train=True):
            try:
                outputs = compute(own)
                if factors is None:
                    factors = drawn(*outputs.shape)
                [gradient] = torch.autograd.grad([(outputs * factors).sum()], [own])
            except Exception as error:  # of the network's own code
                raise UnmappedError("it does not run in float64 beside its trace") from error
        found.append((outputs.detach(), gradient))
    for name, one, other in zip(("outputs", "gradients"), *found):
        same = one.shape == other.shape and bool(one.isfinite().all())
        if not same or not float((one - other).norm()) <= TOLERANCE * (1 + float(one.norm())):
            raise UnmappedError(f"its trace has other {name}")


def _embeddings(chain: LayerChain) -> list[nn.Embedding]:
    return [layer.module for layer in chain.layers if isinstance(layer.module, nn.Embedding)]
