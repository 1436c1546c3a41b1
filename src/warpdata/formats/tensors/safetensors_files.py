"""Safetensors files as artifacts: their headers, read strictly, and the canonical index they amount to.

A file's tensors are laid out anew in name order; where their bytes really lie is kept as extents, so nothing
is copied. Implements "Safetensors" of docs/specs/tensors.md.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warpdata.errors import TensorsCorruptedError, UnsupportedFormatError
from warpdata.formats.tensors.dtypes import DType, dtype_of_safetensors
from warpdata.formats.tensors.extents import Extent, Extents
from warpdata.formats.tensors.index import TensorIndex, pack_index
from warpdata.formats.tensors.index_json import decode_object
from warpdata.formats.tensors.sources import FileSource
from warpdata.limits import MAX_SAFETENSORS_HEADER_BYTES, MAX_TENSOR_DIMS, MAX_TENSOR_SPACE_BYTES, MAX_TENSORS

__all__ = ["StoredTensor", "index_files", "read_header"]

_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file: bytes `start` to `end`, counted from the beginning of the file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


def index_files(files: Sequence[FileSource]) -> tuple[TensorIndex, Extents]:
    """One artifact out of one or more files. A name may appear in one of them only."""
    found: dict[str, tuple[int, StoredTensor]] = {}
    for number, file in enumerate(files):
        for tensor in read_header(file):
            if tensor.name in found:
                other = files[found[tensor.name][0]].path
                raise TensorsCorruptedError(f"{tensor.name!r} is in {file.path.name} and in {other.name}")
            found[tensor.name] = (number, tensor)
    index = pack_index({name: (tensor.dtype, tensor.shape) for name, (_, tensor) in found.items()})
    extents = [
        Extent(entry.offset, entry.offset + entry.size, found[entry.name][0], found[entry.name][1].start)
        for entry in index
    ]
    return index, Extents(extents)


def read_header(file: FileSource) -> list[StoredTensor]:
    """The tensors of a file in the order of their bytes, which must fill the file without gap or overlap."""
    what, size = file.path.name, file.size_bytes
    if size < 8:
        raise TensorsCorruptedError(f"{what} has {size} bytes, too few for a safetensors file")
    (length,) = struct.unpack("<Q", file.read_range(0, 8))
    if length > min(size - 8, MAX_SAFETENSORS_HEADER_BYTES):
        raise TensorsCorruptedError(f"{what} promises a header of {length} bytes, and the file has {size}")
    header = decode_object(bytes(file.read_range(8, 8 + length)), f"the header of {what}")
    _check_metadata(header.pop(_METADATA, {}), what)
    if len(header) > MAX_TENSORS:
        raise TensorsCorruptedError(f"{what} has {len(header)} tensors; {MAX_TENSORS} are allowed")
    problems: list[str] = []
    tensors = []
    for name, row in header.items():
        problem = next(_row_problems(row), None)
        if problem is not None:
            problems.append(f"{name!r}: {problem}")
            continue
        begin, end = row["data_offsets"]
        dtype = dtype_of_safetensors(row["dtype"])
        tensors.append(StoredTensor(name, dtype, tuple(row["shape"]), 8 + length + begin, 8 + length + end))
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    problems = problems or list(_layout_problems(tensors, 8 + length, size))
    if problems:
        shown = tuple(problems[:20])
        raise TensorsCorruptedError(f"{what} has {len(problems)} problems; the first: {shown[0]}", problems=shown)
    return tensors


def _row_problems(row: Any) -> Iterator[str]:
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        yield "not an object of dtype, shape and data_offsets"
        return
    shape, offsets = row["shape"], row["data_offsets"]
    if not _counts(shape) or len(shape) > MAX_TENSOR_DIMS:
        yield f"the shape is not a list of at most {MAX_TENSOR_DIMS} counts"
    elif not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        yield f"the offsets {offsets!r} are not a range"
    elif not isinstance(row["dtype"], str):
        yield "the element type is not a string"
    else:
        try:
            wanted = math.prod(shape) * dtype_of_safetensors(row["dtype"]).item_bytes
        except UnsupportedFormatError as error:
            yield error.message
            return
        if wanted != offsets[1] - offsets[0]:
            yield f"{offsets[1] - offsets[0]} bytes are stored, and the shape needs {wanted}"


def _layout_problems(tensors: Sequence[StoredTensor], start: int, size: int) -> Iterator[str]:
    at = start
    for tensor in tensors:
        if tensor.start != at:
            yield f"{tensor.name!r}: begins at {tensor.start}, and its neighbour ends at {at}"
        at = tensor.end
    if at != size:
        yield f"the tensors end at {at}, and the file has {size} bytes"


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TENSOR_SPACE_BYTES
        for value in values
    )


def _check_metadata(metadata: Any, what: str) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise TensorsCorruptedError(f"the header of {what} has metadata that is not a mapping of strings")
