"""Which classes are of this package, and which of another author."""

from __future__ import annotations

from dataclasses import fields, is_dataclass


def installed(component: object) -> bool:
    """Whether a component's class is of this package."""
    return type(component).__module__.startswith("fedpriv.")


def others(*components: object) -> tuple[str, ...]:
    """The names of other authors' classes among components and what they consist of.

    >>> from fedpriv.aggregation.plain import Plain
    >>> others(Plain(), None), others(Plain(), object())
    ((), ('object',))
    """
    names = []
    for one in components:
        if one is not None and not installed(one):
            names.append(type(one).__name__)
        if is_dataclass(one):
            parts = (getattr(one, field.name) for field in fields(one))
            names += others(*(part for part in parts if is_dataclass(part)))
    return tuple(dict.fromkeys(names))
