"""Observations and actions of Gymnasium as flat channels, whatever their spaces are nested in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from warpdata.errors import BadInputError, SchemaMismatchError, UnsupportedError
from warpdata.formats.convert.episode_fields import Array
from warpdata.formats.wshard import DType

__all__ = ["channel_of", "flat_names", "flat_values"]

_LEAVES = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")


def flat_names(space: Any, name: str) -> Iterator[str]:
    """The name of each leaf of a space: keys of `Dict` and places in `Tuple`, joined by slashes.

    `UnsupportedError` for spaces whose values have no fixed shape.
    """
    kind = type(space).__name__
    if kind == "Dict":
        for key, below in space.spaces.items():
            yield from flat_names(below, f"{name}/{key}" if name else str(key))
    elif kind == "Tuple":
        for number, below in enumerate(space.spaces):
            yield from flat_names(below, f"{name}/{number}" if name else str(number))
    elif kind in _LEAVES:
        yield name
    else:
        raise UnsupportedError(
            f"the space {name or space!s} is a {kind}, whose values have no fixed shape",
            hint="Wrap the environment so that it has Box, Discrete, MultiBinary, MultiDiscrete, Dict or Tuple spaces.",
        )


def flat_values(space: Any, value: Any, name: str) -> Iterator[tuple[str, Array]]:
    """The leaves of a value, by the same names. Types are those of the values, not of the space."""
    kind = type(space).__name__
    if kind == "Dict":
        for key, below in space.spaces.items():
            yield from flat_values(below, value[key], f"{name}/{key}" if name else str(key))
    elif kind == "Tuple":
        for number, below in enumerate(space.spaces):
            yield from flat_values(below, value[number], f"{name}/{number}" if name else str(number))
    else:
        yield name, np.asarray(value)


def channel_of(block: str, channel_id: str, value: Array) -> dict[str, Any]:
    """A declaration for the stream writer."""
    try:
        dtype = DType.of(value.dtype)
    except BadInputError as error:
        raise SchemaMismatchError(f"{block} has values of {value.dtype}, which an episode cannot hold") from error
    return {"id": channel_id, "dtype": str(dtype), "shape": list(value.shape), "signal_block": block}
