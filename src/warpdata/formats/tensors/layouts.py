"""Where in a caller's memory each tensor of a view goes, when it is not the view's own order.

Implements "Layouts" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from warpdata.errors import InvalidViewError, ViewPreconditionError
from warpdata.formats.tensors.buffers import Region, region_of
from warpdata.formats.tensors.index import ALIGNMENT_BYTES, TensorEntry, TensorIndex
from warpdata.formats.tensors.multi_buffer import Assembly
from warpdata.formats.tensors.plan import ViewPlan
from warpdata.formats.tensors.spec import NormalView

__all__ = ["Layout", "Placed", "lay_out"]

Layout: TypeAlias = "Literal['view', 'canonical', 'packed'] | Mapping[str, int | tuple[str, int]]"
"""A name for an order, or the first byte of each tensor: in the region, or in one of several regions by name."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Tensors with places in memory, ready to be read."""

    assembly: Assembly
    entries: Mapping[str, tuple[TensorEntry, Region]]
    on_device: bool


def lay_out(index: TensorIndex, normal: NormalView, names: tuple[str, ...], layout: Layout, memory: Any) -> Placed:
    """Everything is checked here, before a byte is read: names, overlaps, room, and whether it can be written."""
    assembly = Assembly(index)
    selections = dict(normal.selections)
    pieces = {name: assembly.piece(name, selections.get(name)) for name in names}
    places = _places(index, pieces, layout)
    _check_overlaps(places, pieces)
    storages = {str(key): value for key, value in memory.items()} if isinstance(memory, Mapping) else {"": memory}
    regions = {key: region_of(value) for key, value in storages.items()}
    if len({str(region.device) for region in regions.values()}) > 1:
        raise ViewPreconditionError("the regions are not all on one device")
    entries = {}
    for name, piece in pieces.items():
        storage, offset = places[name]
        region = regions.get(storage)
        if region is None:
            raise InvalidViewError(f"{name!r} belongs into {storage!r}, and there are {', '.join(map(repr, regions))}")
        end = offset + piece.size
        place = region.first(end)
        assembly.add(piece, place.part(offset, end))
        entries[name] = (_moved(piece.index[name], offset), place)
    on_device = any(region.memory is None for region in regions.values())
    return Placed(assembly, entries, on_device)


def _places(index: TensorIndex, pieces: Mapping[str, ViewPlan], layout: Layout) -> dict[str, tuple[str, int]]:
    if layout == "canonical":
        return {name: ("", index[name].offset) for name in pieces}
    if layout == "packed":
        return _packed(pieces)
    if not isinstance(layout, Mapping):
        raise InvalidViewError(f"layout={layout!r} is not known", hint="use 'view', 'canonical', 'packed' or a mapping")
    if set(layout) != set(pieces):
        odd = sorted(set(layout) ^ set(pieces), key=str)
        raise InvalidViewError(f"the view and the layout do not name the same tensors: {odd[:5]!r}")
    out = {}
    for name, piece in pieces.items():
        told = layout[name]
        storage, offset = told if isinstance(told, tuple) else ("", told)
        item = min(piece.index[name].dtype.item_bytes, ALIGNMENT_BYTES)
        if not isinstance(offset, int) or offset < 0 or offset % item:
            raise InvalidViewError(f"{name!r} can not begin at byte {offset!r}: its elements have {item} bytes")
        out[name] = (str(storage), offset)
    return out


def _packed(pieces: Mapping[str, ViewPlan]) -> dict[str, tuple[str, int]]:
    """One after the other, each at the next multiple of the size of its elements."""
    out, cursor = {}, 0
    for name, piece in pieces.items():
        item = piece.index[name].dtype.item_bytes
        cursor = -(-cursor // item) * item
        out[name] = ("", cursor)
        cursor += piece.size
    return out


def _check_overlaps(places: Mapping[str, tuple[str, int]], pieces: Mapping[str, ViewPlan]) -> None:
    spans = sorted((*places[name], pieces[name].size, name) for name in pieces if pieces[name].size)
    for (storage, start, size, name), (next_storage, next_start, _, next_name) in pairwise(spans):
        if storage == next_storage and start + size > next_start:
            raise InvalidViewError(f"{name!r} and {next_name!r} overlap in the layout, at byte {next_start}")


def _moved(entry: TensorEntry, offset: int) -> TensorEntry:
    return TensorEntry(entry.name, offset, entry.size, entry.shape, entry.stride, entry.dtype, entry.storage_offset)
