"""Views → safetensors files, read straight into the pages of the new file.

Elements of larger types come first, each tensor follows the one before it, and the header is filled up to a
multiple of 8, so every tensor is aligned. Implements "Safetensors" of docs/specs/tensors.md.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from warpdata.errors import AlreadyExistsError, UnsupportedFormatError
from warpdata.formats.tensors.index import ALIGNMENT_BYTES, TensorEntry, TensorIndex
from warpdata.formats.tensors.new_files import create_file, write_all
from warpdata.formats.tensors.view import View
from warpdata.limits import MAX_SAFETENSORS_HEADER_BYTES, TENSOR_SHARD_BYTES
from warpdata.primitives.hashing import OnBytes

__all__ = ["write_safetensors"]


def write_safetensors(
    path: Path, view: View, metadata: Mapping[str, str] | None, *, verify: bool, on_bytes: OnBytes
) -> None:
    """The file appears whole or not at all, and never replaces another. `on_bytes` hears of bytes as they come."""
    offsets = _offsets(view.index)
    header = _header(view.index, offsets, metadata or {})
    size = sum(entry.byte_size for entry in view.index)
    if path.exists():
        raise AlreadyExistsError(f"{path} is already there")
    partial = path.with_name(path.name + ".partial")
    file = create_file(partial, len(header) + size)
    try:
        write_all(file, header)
        if size:
            mapped = mmap.mmap(file, len(header) + size)
            data = memoryview(mapped)[len(header) :]
            for names in _groups(view):
                some = view.only(names)
                some.materialize_into(data, layout={name: offsets[name] for name in names}, verify=verify)
                on_bytes(sum(view.index[name].byte_size for name in names))
            mapped.flush()
        os.fsync(file)
        try:
            os.link(partial, path)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{path} is already there") from error
    finally:
        os.close(file)
        partial.unlink(missing_ok=True)


def _offsets(index: TensorIndex) -> dict[str, int]:
    """Where each tensor begins behind the header."""
    out, cursor = {}, 0
    for entry in sorted(index, key=lambda entry: (-entry.dtype.item_bytes, entry.name)):
        out[entry.name] = cursor
        cursor += entry.byte_size
    return out


def _header(index: TensorIndex, offsets: Mapping[str, int], metadata: Mapping[str, str]) -> bytes:
    rows: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    for name in offsets:
        rows[name] = _row(index[name], offsets[name])
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    if len(text) > MAX_SAFETENSORS_HEADER_BYTES:
        raise UnsupportedFormatError(f"safetensors files can not name {len(index)} tensors in one header")
    return len(text).to_bytes(8, "little") + text


def _row(entry: TensorEntry, start: int) -> dict[str, object]:
    if not entry.dtype.safetensors:
        raise UnsupportedFormatError(f"{entry.name!r} is {entry.dtype.name}, which safetensors files can not hold")
    offsets = [start, start + entry.byte_size]
    return {"dtype": entry.dtype.safetensors, "shape": list(entry.shape), "data_offsets": offsets}


def _groups(view: View) -> Iterator[list[str]]:
    """Tensors to be read together: so many that their requests keep a store busy."""
    group: list[str] = []
    held = 0
    for name in view.names:
        group.append(name)
        held += view.index[name].byte_size
        if held >= 4 * TENSOR_SHARD_BYTES:
            yield group
            group, held = [], 0
    if group:
        yield group
