"""The objects of a class that are alive, for bounds on what all of them hold together."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Generic, TypeVar

__all__ = ["LiveObjects"]

T = TypeVar("T")


class LiveObjects(Generic[T]):
    """A set of objects that leave it when they are collected.

    Unlike a `WeakSet`, it may be iterated while other threads add objects. It takes no lock, so it is safe in a
    finalizer.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[T]] = {}

    def add(self, item: T) -> None:
        key = id(item)
        self._references[key] = weakref.ref(item, partial(_forget, self._references, key))

    def __len__(self) -> int:
        return len(self._references)

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._references.values()):
            item = reference()
            if item is not None:
                yield item


def _forget(references: dict[int, weakref.ref[T]], key: int, reference: weakref.ref[T]) -> None:
    if references.get(key) is reference:  # the number may belong to a new object by now
        del references[key]
