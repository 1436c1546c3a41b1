"""Safetensors files: strict headers, the packed index of their tensors, and views as new files.

The index lays out the tensors of one or more files in name order. Extents map it to the bytes in the files, so that
nothing is copied. A new file is read straight into its mapped pages. Implements "Safetensors" of
docs/specs/tensors.md.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.tensors.dtypes import TensorDType, dtype_of_safetensors
from warpdata.formats.tensors.extents import Extent, ExtentMap
from warpdata.formats.tensors.index import ALIGNMENT_BYTES, TensorEntry, TensorIndex, decode_object, pack_index
from warpdata.formats.tensors.shards import SHARD_BYTES
from warpdata.formats.tensors.tensor_file import create_file, finish_file
from warpdata.formats.tensors.view import View
from warpdata.limits import MAX_SAFETENSORS_HEADER_BYTES, MAX_TENSOR_DIMS, MAX_TENSOR_SPACE_BYTES, MAX_TENSORS
from warpdata.primitives.hashing import OnBytes
from warpdata.storage import FileRangeSource

__all__ = ["index_safetensors", "write_safetensors"]

_METADATA = "__metadata__"
_GROUP_BYTES = 4 * SHARD_BYTES  # enough requests at a time to keep a store busy
_MAX_REPORTED = 20
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive, such as a checkpoint of torch.save or a file of numpy.savez",
    b"\x80": "a pickle, such as an old checkpoint of torch.save",
    b"\x93NUMPY": "an array of numpy.save",
    b"\x89HDF\r\n": "an HDF5 file",
    b"GGUF": "a GGUF file",
    b"PAR1": "a Parquet file",
}


@dataclass(frozen=True, slots=True)
class _HeaderTensor:
    """A tensor of a file: bytes `start` to `end`, counted from the begin of the file."""

    name: str
    dtype: TensorDType
    shape: tuple[int, ...]
    start: int
    end: int


def index_safetensors(files: Sequence[FileRangeSource]) -> tuple[TensorIndex, ExtentMap]:
    """Return the index and extents of one or more files. A name that two files have is an error."""
    found: dict[str, tuple[int, _HeaderTensor]] = {}
    for number, file in enumerate(files):
        for tensor in _read_header(file):
            if tensor.name in found:
                other = files[found[tensor.name][0]].path
                raise CorruptError(f"{tensor.name!r} is in {file.path.name} and in {other.name}")
            found[tensor.name] = (number, tensor)
    index = pack_index({name: (tensor.dtype, tensor.shape) for name, (_, tensor) in found.items()})
    extents = [
        Extent(entry.offset, entry.offset + entry.size, found[entry.name][0], found[entry.name][1].start)
        for entry in index
    ]
    return index, ExtentMap(extents)


def _read_header(file: FileRangeSource) -> list[_HeaderTensor]:
    """Return the tensors of a file in byte order. They must fill the file without gap or overlap."""
    name, size = file.path.name, file.size_bytes
    if size < 8:
        _check_is_safetensors(file, b"")
        raise CorruptError(f"{name} has {size} bytes, too few for a safetensors file")
    begin = bytes(file.read_range(0, min(size, 9)))
    (length,) = struct.unpack("<Q", begin[:8])
    if length > min(size - 8, MAX_SAFETENSORS_HEADER_BYTES) or not begin.endswith(b"{"):
        _check_is_safetensors(file, begin)
    if length > min(size - 8, MAX_SAFETENSORS_HEADER_BYTES):
        raise CorruptError(f"{name} declares a header of {length} bytes; the file has {size}")
    header = decode_object(bytes(file.read_range(8, 8 + length)), f"the header of {name}")
    _check_metadata(header.pop(_METADATA, {}), name)
    if len(header) > MAX_TENSORS:
        raise CorruptError(f"{name} has {len(header)} tensors; {MAX_TENSORS} are allowed")
    problems: list[str] = []
    tensors = []
    for tensor_name, row in header.items():
        problem = next(_row_problems(row), None)
        if problem is not None:
            problems.append(f"{tensor_name!r}: {problem}")
            continue
        begin, end = row["data_offsets"]
        dtype = dtype_of_safetensors(row["dtype"])
        tensors.append(_HeaderTensor(tensor_name, dtype, tuple(row["shape"]), 8 + length + begin, 8 + length + end))
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    problems = problems or list(_layout_problems(tensors, 8 + length, size))
    if problems:
        shown = tuple(problems[:_MAX_REPORTED])
        raise CorruptError(f"{name} has {len(problems)} problems; the first: {shown[0]}", problems=shown)
    return tensors


def _check_is_safetensors(file: FileRangeSource, begin: bytes) -> None:
    """Raise `BadInputError` if neither the name nor the first bytes are those of a safetensors file."""
    if begin.endswith(b"{") or file.path.suffix == ".safetensors":
        return
    kind = next((kind for magic, kind in _OTHER_FILES.items() if begin.startswith(magic)), None)
    found = f": it is {kind}" if kind else ""
    raise BadInputError(
        f"{file.path} is not a tensor file{found}",
        hint="Pass a .safetensors file, a directory of them, or a file that write_tensors or save_partial wrote.",
    )


def _row_problems(row: Any) -> Iterator[str]:
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        yield "not an object of dtype, shape and data_offsets"
        return
    shape, offsets = row["shape"], row["data_offsets"]
    if not _are_counts(shape) or len(shape) > MAX_TENSOR_DIMS:
        yield f"the shape is not a list of at most {MAX_TENSOR_DIMS} counts"
    elif not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        yield f"the offsets {offsets!r} are not a range"
    elif not isinstance(row["dtype"], str):
        yield "the element type is not a string"
    else:
        try:
            needed = math.prod(shape) * dtype_of_safetensors(row["dtype"]).item_bytes
        except UnsupportedError as error:
            yield error.message
            return
        if needed != offsets[1] - offsets[0]:
            yield f"the shape needs {needed} bytes, but {offsets[1] - offsets[0]} are stored"


def _layout_problems(tensors: Sequence[_HeaderTensor], start: int, size: int) -> Iterator[str]:
    at = start
    for tensor in tensors:
        if tensor.start != at:
            yield f"{tensor.name!r}: begins at {tensor.start}, but its neighbour ends at {at}"
        at = tensor.end
    if at != size:
        yield f"the tensors end at {at}, but the file has {size} bytes"


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TENSOR_SPACE_BYTES
        for value in values
    )


def _check_metadata(metadata: Any, name: str) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptError(f"the metadata of {name} is not a mapping of strings")


def write_safetensors(
    path: Path, view: View, metadata: Mapping[str, str] | None, *, verify: bool, on_bytes: OnBytes
) -> None:
    """Write a view as a file that appears complete or not at all, and never replaces another.

    Larger elements come first and the header is padded to a multiple of 8, so that every tensor is aligned.
    """
    offsets = _data_offsets(view.index)
    header = _encode_header(view.index, offsets, metadata or {})
    size = sum(entry.byte_size for entry in view.index)
    with create_file(path, len(header) + size) as new:
        new.file.write(header)
        new.file.flush()
        if size:
            mapped = mmap.mmap(new.file.fileno(), len(header) + size)
            data = memoryview(mapped)[len(header) :]
            for names in _groups(view):
                layout = {name: offsets[name] for name in names}
                view.only(names).materialize_into(data, layout=layout, verify=verify)
                on_bytes(sum(view.index[name].byte_size for name in names))
            mapped.flush()
        finish_file(new)


def _data_offsets(index: TensorIndex) -> dict[str, int]:
    """Return the offset of each tensor in the data part."""
    out, cursor = {}, 0
    for entry in sorted(index, key=lambda entry: (-entry.dtype.item_bytes, entry.name)):
        out[entry.name] = cursor
        cursor += entry.byte_size
    return out


def _encode_header(index: TensorIndex, offsets: Mapping[str, int], metadata: Mapping[str, str]) -> bytes:
    rows: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    for name in offsets:
        rows[name] = _header_row(index[name], offsets[name])
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT_BYTES)
    if len(text) > MAX_SAFETENSORS_HEADER_BYTES:
        raise UnsupportedError(
            f"a safetensors header of {len(text)} bytes is too long; {MAX_SAFETENSORS_HEADER_BYTES} are allowed"
        )
    return len(text).to_bytes(8, "little") + text


def _header_row(entry: TensorEntry, start: int) -> dict[str, object]:
    if not entry.dtype.safetensors:
        raise UnsupportedError(f"{entry.name!r} is {entry.dtype.name}, which safetensors does not support")
    offsets = [start, start + entry.byte_size]
    return {"dtype": entry.dtype.safetensors, "shape": list(entry.shape), "data_offsets": offsets}


def _groups(view: View) -> Iterator[list[str]]:
    """Yield names of tensors to read together."""
    group: list[str] = []
    held = 0
    for name in view.names:
        group.append(name)
        held += view.index[name].byte_size
        if held >= _GROUP_BYTES:
            yield group
            group, held = [], 0
    if group:
        yield group
