"""Opacus: calls of `make_private` and `make_private_with_epsilon`.

Opacus clips the gradients of records and adds noise of `noise_multiplier * max_grad_norm` to their
sum, which it divides by a public number. Its loaders sample by Poisson unless told otherwise. How
many steps run, at which rate, and what else is sent is in code that is not executed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.claims.importers.syntax import FoundCall, calls

CALLS = ("make_private", "make_private_with_epsilon")


def read_opacus(files: Iterable[Path], config: Mapping[str, Any] | None = None) -> draft.Draft:
    """The draft of all calls in `files`."""
    found = draft.Draft("Opacus")
    for file in files:
        for call in calls(file, config or {}, found.unread):
            if call.name in CALLS:
                found.files.append(call.place)
                add_call(found, call)
                if call.branched:
                    found.unread.append(f"{call.place}: {call.name} {draft.BRANCHED}")
    return found


def add_call(found: draft.Draft, call: FoundCall) -> None:
    """Add the release of one call, and its statement if it names an epsilon."""
    bound = draft.product(call.value("max_grad_norm"))
    multiplier = call.value("noise_multiplier")
    flat = not call.has("clipping") or call.value("clipping") == "flat"
    sampled = not call.has("poisson_sampling") or call.value("poisson_sampling") is True
    found.releases.append(
        draft.release(
            f"gradients, {call.place}",
            contributor=s.RECORD,
            clip=bound if flat else None,
            tensors=1 if flat else None,
            weight=1.0,
            weights=s.FIXED,
            denominator=s.FIXED,
            noise=draft.noise(
                s.GAUSSIAN,
                deviation=draft.product(multiplier, bound) if flat else None,
                added_by=s.BY_HOLDER,
            ),
            sampling=draft.poisson(None) if sampled else None,
        )
    )
    for name in ("max_grad_norm", *(("noise_multiplier",) if call.name == CALLS[0] else ())):
        if call.value(name) is None:
            found.unread.append(f"{call.place}: {name} is computed by the code")
    for name in ("noise_generator", "clipping", "poisson_sampling"):
        if call.has(name):
            found.unread.append(f"{call.place}: {name} is given; check what it does")
    if call.name == CALLS[1]:
        epsilon = draft.product(call.value("target_epsilon"))
        delta = draft.product(call.value("target_delta"))
        found.claims.append(draft.statement(epsilon=epsilon, delta=delta, unit=s.RECORD))
        found.unread.append(f"{call.place}: Opacus computes the noise when it runs")
