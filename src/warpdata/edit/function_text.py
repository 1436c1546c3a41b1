"""A text that tells two functions apart by their code, so that finished work of one is not taken for that of another.

It is for work that is resumed on this machine. The code of a function is its bytecode with constants and names, its
defaults, and the functions and plain values that it closes over. It leaves out modules, globals and objects.
"""

from __future__ import annotations

import functools
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = ["function_text"]

_MAX_DEPTH = 8


def function_text(value: Any, depth: int = 0) -> str:
    """Return the code of a function as text, or the type of an object that has no code."""
    if depth > _MAX_DEPTH:
        return "…"
    inner = functools.partial(function_text, depth=depth + 1)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(inner, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(inner, value)))}}}"
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} {inner(value.co_consts)}"
    if isinstance(value, MethodType):
        return inner(value.__func__)
    if isinstance(value, functools.partial):
        return f"{inner(value.func)} {inner(value.args)} {inner(tuple(sorted(value.keywords.items())))}"
    if isinstance(value, FunctionType):
        cells = tuple(_cell_value(cell) for cell in value.__closure__ or ())
        return f"{inner(value.__code__)} {inner(value.__defaults__ or ())} {inner(cells)}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
