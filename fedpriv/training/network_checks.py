"""Networks that training refuses, each with one line that says what it supports."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.modes import kept_generators, seeded_dropout
from fedpriv.training.own_code import own_code
from fedpriv.training.untouched import appearance, has_hooks
from fedpriv.training.vectors import call, flatten, load, unflatten

REAL = torch.float32, torch.float64


@cached_by_model
def check_parameters(model: nn.Module, types: tuple[torch.dtype, ...] = REAL) -> None:
    """Raise ConfigError unless the network can be copied and every parameter is trained, by its
    gradient alone.

    types: the parameters are all of one of these.
    """
    for name, own in model.named_parameters():
        if isinstance(own, nn.UninitializedParameter):
            raise refused(model, f"no lazy parameters before a first pass ({name})")
    names = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    first = next((own.dtype for own in model.parameters()), types[0])
    for name, own in model.named_parameters():
        if own.dtype != first or first not in types:
            raise refused(model, f"parameters of one type, {names} ({name} has {own.dtype})")
        if not own.numel():
            raise refused(model, f"no empty parameters ({name} has shape {tuple(own.shape)})")
        if not own.requires_grad:
            raise refused(model, f"trainable parameters only ({name} is frozen)")
        if own._backward_hooks:
            raise refused(model, f"no hooks on parameters ({name} has one)")
    if shared := _overlapping(model):
        allowed = "parameters with memory of their own, or one parameter in two layers"
        raise refused(model, f"{allowed} ({shared[1]} lies over {shared[0]})")
    for name, part in model.named_modules():
        if part._forward_pre_hooks and any(isinstance(own, Tensor) for own in vars(part).values()):
            allowed = "weights of torch.nn.utils.parametrizations, not recomputed by a hook"
            raise refused(part, f"{allowed} (layer {name})")
    try:
        copy.deepcopy(model)
    except Exception as error:  # of an attribute
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise refused(model, f"a network that copy.deepcopy copies ({line[:90]})") from error


def _overlapping(model: nn.Module) -> tuple[str, str] | None:
    """The names of two parameters that share memory, or twice that of one whose numbers do. A
    trainer that copies parameters one by one would train them apart."""
    places = []
    for name, own in model.named_parameters():
        extent = 1 + sum((n - 1) * step for n, step in zip(own.shape, own.stride()))
        if extent < own.numel():
            return name, name
        start = own.data_ptr()
        places.append((str(own.device), start, start + extent * own.element_size(), name))
    for one, other in pairwise(sorted(places)):
        if one[0] == other[0] and other[1] < one[2]:
            first, second = sorted((one[3], other[3]))
            return first, second
    return None


@cached_by_model
def refuse_shared_state(model: nn.Module) -> None:
    """Raise ConfigError if records influence each other through `model`, as in batch normalisation.
    Clipping the gradient of a record, or the update of a user, would then not bound its influence.
    """
    check_parameters(model)
    for name, part in model.named_modules():
        normalises = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if normalises or getattr(part, "track_running_stats", False):
            allowed = "no layer that mixes or remembers the records of a batch"
            raise refused(part, f"{allowed} (layer {name}; GroupNorm does neither)")


class Memory:
    """What a network could remember a record by, and how it looks now."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.alive = [*model.parameters(), *model.buffers()]  # ids stay theirs
        self.alive += [own for part in model.modules() for own in vars(part).values()]
        self.looks = appearance(model)

    @property
    def changed(self) -> bool:
        """Whether passes since then have left something in the network."""
        return appearance(self.model) != self.looks


def remembers(model: nn.Module) -> ConfigError:
    """The error for a network in which a record leaves something for the next one."""
    return refused(
        model, "a network that keeps nothing from one pass to the next, for gradients of records"
    )


def _remembers(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether training passes over records of `shape` change attributes of a network's parts after
    the first pass, or what a later pass computes. The first pass may make tables, such as encodings
    of places, but no parameters."""
    own = copy.deepcopy(model).train()
    parameters = list(own.parameters())
    _pass_over_zeros(own, shape, dtype)
    before = Memory(own)
    _pass_over_zeros(own, shape, dtype)
    if before.changed or list(map(id, own.parameters())) != list(map(id, parameters)):
        return True

    def first_and_used() -> list[nn.Module]:
        first, used = (copy.deepcopy(model).train() for _ in range(2))
        return [first, used, used]

    return not _repeats(first_and_used, _device(model), shape, dtype)


@cached_by_model
def first_pass_changes(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether the first training pass over records of `shape` leaves something in a network, such
    as a table of places. Gradients of records are then computed on fresh copies."""
    own = copy.deepcopy(model).train()
    before = Memory(own)
    _pass_over_zeros(own, shape, dtype)
    return before.changed


def _pass_over_zeros(own: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A pass over two records of zeros, which every embedding knows."""
    device = _device(own)
    with torch.no_grad(), seeded_dropout(device, 0):
        own(torch.zeros((2, *shape), dtype=dtype, device=device))


@cached_by_model
def refuse_outside_state(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ConfigError if a training pass changes what another copy of the network computes, as a
    generator or a counter does that is no part of it."""
    if own_code(model).hidden is None and not has_hooks(model):
        return

    def copies() -> Iterator[nn.Module]:
        return (copy.deepcopy(model).train() for _ in range(3))

    if not _repeats(copies, _device(model), shape, dtype):
        raise changes_outside(model)


def changes_outside(model: nn.Module) -> ConfigError:
    """The error for a network whose users would share what its code changes."""
    return refused(model, "code that changes no variable outside the network")


def _repeats(
    networks: Callable[[], Iterable[nn.Module]],
    device: torch.device,
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> bool:
    """Whether the last of three passes, in training mode from equal seeds, computes what the first
    has computed from equal records; the second has others. Each has its own of `networks`."""
    for one, other in _examples((2, *shape), dtype, device):
        try:
            found = [_seeded_pass(own, x) for x, own in zip((one, other, one), networks())]
        except Exception:  # of the network's own code, which need not know such records
            continue
        before, _, after = found
        return _equal(before, after)
    return True


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.is_cuda:  # whose sums have no fixed order
        return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _seeded_pass(compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.no_grad(), seeded_dropout(x.device, 0):
        return compute(x.clone()).clone()


def _examples(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of batches: random ones, if they are no tokens, then zeros, which every embedding
    knows."""
    generator = torch.Generator().manual_seed(1)
    one, other = torch.randn((2, *shape), generator=generator).to(device)
    if dtype.is_floating_point:
        yield one.to(dtype), other.to(dtype)
    yield torch.zeros_like(one, dtype=dtype), torch.zeros_like(one, dtype=dtype)


def _device(model: nn.Module) -> torch.device:
    return next((own.device for own in model.parameters()), torch.device("cpu"))


def changing_buffer(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> str | None:
    """The name of a buffer that training passes over records of `shape` write to after the first.

    What counts is the write, not the value: a running mean of records that are zero stays zero, and
    a converged power iteration changes no bit until the weights move.
    """
    own = copy.deepcopy(model).train()
    if not any(True for _ in own.buffers()):
        return None
    _pass_over_zeros(own, shape, dtype)
    before = {name: (buffer, buffer._version) for name, buffer in own.named_buffers()}
    _pass_over_zeros(own, shape, dtype)
    for name, buffer in own.named_buffers():
        same, version = before.get(name, (None, 0))
        if buffer is not same or buffer._version != version:
            return name
    return None


@cached_by_model
def torch_func_obstacle(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> ConfigError | None:
    """Why torch.func cannot compute gradients through a network; None: it can."""
    for name, part in model.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            return refused(part, f"no backward hooks for gradients of records (layer {name})")
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None:
            return refused(part, f"no max_norm, which moves weights, for those (layer {name})")
    buffer = changing_buffer(model, shape, dtype)
    if buffer is None:
        return remembers(model) if _remembers(model, shape, dtype) else None
    return refused(model, f"no buffers that change in training ({buffer}) for those of records")


@cached_by_model
def vmap_batches(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether torch.func computes the gradients of a network on batches of `shape`: it knows every
    operation, and the network's code reads the parameters that it is given.

    It knows none of torch's recurrent layers, no checkpoints, and no branches that depend on
    values. Raises what the network itself raises on zeros.
    """
    own = copy.deepcopy(model).train()
    another = copy.deepcopy(own)  # a pass may leave something in an attribute's attribute
    changes = first_pass_changes(model, shape[1:], dtype)
    randomness = "error" if changes else "different"  # a table may come from a seed of its own
    device = _device(own)
    records = torch.zeros((1, *shape), dtype=dtype, device=device)

    def outputs_sum(vector: Tensor, x: Tensor) -> Tensor:
        return call(own, unflatten(own, vector), x).sum()

    each = torch.func.vmap(torch.func.grad(outputs_sum), (None, 0), randomness=randomness)
    with kept_generators(device):
        try:
            with torch.no_grad():
                torch.func.vmap(another, randomness=randomness)(records)
            each(flatten(own), records)
        except Exception:  # of torch.func; the network's own code raises it again
            with torch.no_grad():
                copy.deepcopy(model).train()(records[0])
            return False
    return _reads_given_parameters(model, shape, dtype)


def _reads_given_parameters(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether outputs at given parameters are those of a network that has them. Those that its code
    finds in a list or a closure stay its own."""
    start = flatten(model)
    generator = torch.Generator().manual_seed(1)
    other = start + 0.1 * torch.randn(len(start), generator=generator).to(start)
    own, loaded = (copy.deepcopy(model).train() for _ in range(2))
    load(loaded, other)

    def given(x: Tensor) -> Tensor:
        return call(own, unflatten(own, other), x)

    for x, _ in _examples(shape, dtype, start.device):
        try:
            want, found = (_seeded_pass(compute, x) for compute in (loaded, given))
        except Exception:  # of the network's own code, which need not know such records
            continue
        return torch.allclose(want, found, rtol=1e-3, atol=1e-5, equal_nan=True)
    return False


def refused(part: nn.Module, allowed: str) -> ConfigError:
    """The error for a part of a network."""
    return ConfigError("model", type(part).__name__, allowed)
