"""`functools.cached_property` as it is since Python 3.12.

Before, all instances of a class shared one lock. So threads waited while others opened files that had
nothing to do with theirs, and a process that was forked meanwhile waited for ever. Without it, threads
that meet may compute the same value twice, and all get the first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["cached_property"]

if sys.version_info >= (3, 12):
    from functools import cached_property
else:
    _T = TypeVar("_T")

    class cached_property(Generic[_T]):  # noqa: N801
        def __init__(self, compute: Callable[[Any], _T]) -> None:
            self._compute = compute
            self._name = ""
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        @overload
        def __get__(self, instance: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type | None = None) -> _T: ...
        def __get__(self, instance: object, owner: type | None = None) -> Self | _T:
            """Asked only while the instance has no such attribute of its own."""
            if instance is None:
                return self
            value: _T = instance.__dict__.setdefault(self._name, self._compute(instance))
            return value
