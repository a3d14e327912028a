"""Give functions of an imported module the bodies of a changed source, so that a mutant needs no
new imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType


class NotPatchableError(Exception):
    """The change is not only in bodies of functions."""


CACHED = type(cache(len))
"""Type of a function with `functools.cache` or a similar decorator."""


def forget(tree: Path) -> None:
    """Empty the caches of functions from below `tree`: what a test asks for is computed then, and
    by what the source is now."""
    for one in gc.get_objects():
        code = getattr(one.__wrapped__, "__code__", None) if type(one) is CACHED else None
        if code is not None and code.co_filename.startswith(f"{tree}/"):
            one.cache_clear()


def patch(file: str, old: str, new: str) -> None:
    """Change all functions that were made from the source `old` of `file` into those of `new`.

    Functions are found wherever they are, since decorators, properties and caches hide them. Raises
    NotPatchableError where a module's or a class's own statements differ, or no function is there.
    """
    before, after = (compile(text, file, "exec") for text in (old, new))
    changed = dict(_changed(before, after))
    patched = set[CodeType]()
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == file:
            code = next((one for one in changed if _same(one, function.__code__)), None)
            if code is not None:
                try:
                    function.__code__ = changed[code]
                except ValueError as error:  # another number of names from outside
                    raise NotPatchableError(str(error)) from error
                patched.add(code)
    if len(patched) < len(changed):
        raise NotPatchableError(
            "functions that are made when others are called, or not loaded at all"
        )


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Outermost functions whose code differs, in pairs. before, after: of modules or bodies of
    classes."""
    if _own(before) != _own(after):
        raise NotPatchableError(before.co_qualname)
    for one, other in zip_longest(_nested(before), _nested(after)):
        if one is None or other is None:
            raise NotPatchableError(before.co_qualname)
        if one != other:
            # Only functions have local variables that the compiler counts.
            yield from [(one, other)] if one.co_flags & 1 else _changed(one, other)


def _nested(code: CodeType) -> list[CodeType]:
    return [part for part in code.co_consts if isinstance(part, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    """What a module or class does itself, without the bodies of its functions."""
    constants = [repr(part) for part in code.co_consts if not isinstance(part, CodeType)]
    return code.co_code, code.co_names, constants


def _same(one: CodeType, other: CodeType) -> bool:
    return (one.co_qualname, one.co_firstlineno) == (other.co_qualname, other.co_firstlineno)
