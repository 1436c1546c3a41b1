"""Chunks of LitData: plain, compressed as a whole, or in compressed frames; and leaves of nested values.

Every count is compared with the bytes that are there before memory is allocated for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.errors import InvalidSourceError
from warpdata.ingest.sample_columns import json_text
from warpdata.ingest.sample_shards import cut_fields, expand, read_offsets, unpack_samples
from warpdata.ingest.source_files import read_bytes, source_errors
from warpdata.limits import MAX_FOREIGN_EMPTY_LISTS, MAX_FOREIGN_SHARD_BYTES, MAX_FOREIGN_VALUE_BYTES
from warpdata.primitives.strict_json import unique_keys

__all__ = ["Chunk", "decode_nested", "nested_text", "read_samples"]

_FRAMED_MAGIC, _FRAMED_VERSION = b"LDFZ01\0\0", 1
_FRAMED_HEADER, _FRAME = struct.Struct("<8sHHIII"), struct.Struct("<IIQII")
_MAX_DEPTH = 64
_FIRST_JSON_BYTE = 0x20


@dataclass(frozen=True, slots=True)
class Chunk:
    path: Path
    sample_count: int
    compression: str | None


def read_samples(chunk: Chunk, leaf_count: int) -> Iterator[tuple[str, list[memoryview]]]:
    """Yield the leaves of each sample of a chunk, after its place."""
    path = chunk.path
    data = read_bytes(path, MAX_FOREIGN_SHARD_BYTES)
    if data.startswith(_FRAMED_MAGIC):
        samples = _framed_samples(data, chunk)
    else:
        view = memoryview(data if chunk.compression is None else expand(data, chunk.compression, None, path))
        samples = unpack_samples(view, read_offsets(view, chunk.sample_count, path), path)
    for place, sample in samples:
        yield place, _leaves(sample, leaf_count, place)


def _framed_samples(data: bytes, chunk: Chunk) -> Iterator[tuple[str, memoryview]]:
    """Yield the samples of a chunk whose samples are compressed in frames, after a table of offsets.

    The offsets have 32 bits and ascend, and a frame has the size that they say. So all frames have at most 4 GiB.
    """
    import numpy as np

    with source_errors(chunk.path):
        _, version, _, count, _, frame_count = _FRAMED_HEADER.unpack_from(data)
        if version != _FRAMED_VERSION:
            raise InvalidSourceError(f"{chunk.path} has version {version} of framed chunks, which is not known")
        if count != chunk.sample_count:
            raise InvalidSourceError(f"{chunk.path} has {count} samples, and the index says {chunk.sample_count}")
        start = _FRAMED_HEADER.size
        if len(data) < start + 4 * (count + 1) + _FRAME.size * frame_count:
            raise InvalidSourceError(f"{chunk.path} is too short for its tables")
        offsets = np.frombuffer(data, "<u4", count + 1, start)
        start += 4 * (count + 1)
        if offsets[0] != 0 or not np.all(offsets[:-1] <= offsets[1:]):
            raise InvalidSourceError(f"{chunk.path} has offsets of samples that do not ascend from 0")
    done = 0
    for first, length, offset, packed_bytes, size_bytes in _FRAME.iter_unpack(
        memoryview(data)[start : start + _FRAME.size * frame_count]
    ):
        if first != done or done + length > count or offset + packed_bytes > len(data):
            raise InvalidSourceError(f"{chunk.path}: the frame of samples from {first} is not where it should be")
        within = offsets[first : first + length + 1] - offsets[first]
        if size_bytes != within[-1]:
            raise InvalidSourceError(
                f"{chunk.path}: the frame of samples from {first} claims {size_bytes:,} bytes, "
                f"and its samples have {within[-1]:,}"
            )
        frame = memoryview(expand(data[offset : offset + packed_bytes], "zstd", size_bytes, chunk.path))
        yield from unpack_samples(frame, within, f"{chunk.path}, frame from sample {first}")
        done += length
    if done != count:
        raise InvalidSourceError(f"{chunk.path} has frames for {done} of {count} samples")


def _leaves(sample: memoryview, count: int, place: str) -> list[memoryview]:
    if len(sample) < 4 * count:
        raise InvalidSourceError(f"{place}: {len(sample)} bytes are too few for the sizes of {count} leaves")
    return cut_fields(sample[4 * count :], struct.unpack_from(f"<{count}I", sample), place)


def nested_text(data: memoryview) -> str:
    """Return a leaf `json` as JSON text. Text is returned as it is, so that no digit of a number is lost."""
    if len(data) > MAX_FOREIGN_VALUE_BYTES:
        raise ValueError(f"{len(data):,} bytes of JSON are more than {MAX_FOREIGN_VALUE_BYTES:,}")
    value = decode_nested(data)
    return bytes(data).decode("utf-8") if _is_json(data) else json_text(value)


def _is_json(data: memoryview) -> bool:
    return not data or data[0] > _FIRST_JSON_BYTE


def decode_nested(data: memoryview) -> Any:
    """Return the lists, dicts and scalars of a leaf `json`: JSON text, or a compact form with a tag before each value.

    `ValueError` or `struct.error` for bytes that are neither.
    """
    if _is_json(data):
        return json.loads(bytes(data).decode("utf-8"), object_pairs_hook=unique_keys)
    reader = _NestedReader(data)
    value = reader.value(0)
    if reader.offset != len(data):
        raise ValueError(f"{len(data) - reader.offset} bytes follow the value")
    return value


class _NestedReader:
    """Reads tagged values in order. Sizes are checked by slicing: a slice that is too short is an error."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.offset = 0

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError(f"values are nested deeper than {_MAX_DEPTH} levels")
        tag = self._unpack("<B")
        if tag == 0:
            return json.loads(self._take(self._unpack("<I")), object_pairs_hook=unique_keys)
        if tag == 1:
            return [self._text() for _ in range(self._count(4))]
        if tag in (2, 3, 4):
            code = {2: "q", 3: "d", 4: "?"}[tag]
            count = self._count(struct.calcsize(f"<{code}"))
            return list(struct.unpack(f"<{count}{code}", self._take(count * struct.calcsize(f"<{code}"))))
        if tag == 5:
            return unique_keys([(self._text(), self.value(depth + 1)) for _ in range(self._count(5))])
        if tag == 6:
            return self._records()
        return self._scalar(tag - 7)

    def _records(self) -> list[dict[str, Any]]:
        count, key_count = self._unpack("<I"), self._unpack("<I")
        if count * max(key_count, 1) + 4 * key_count > len(self._data) - self.offset:
            raise ValueError(f"{count} records of {key_count} keys are not in the bytes")
        if not key_count and count > MAX_FOREIGN_EMPTY_LISTS:
            raise ValueError(f"{count} records without a key are more than {MAX_FOREIGN_EMPTY_LISTS:,}")
        keys = [self._text() for _ in range(key_count)]
        unique_keys([(key, None) for key in keys])
        order = {0x10: 4, 0x11: 0, 0x12: 1, 0x13: 2, 0x14: 3}
        return [{key: self._scalar(order.get(self._unpack("<B"), -1)) for key in keys} for _ in range(count)]

    def _scalar(self, kind: int) -> Any:
        if kind == 0:
            return self._text()
        if kind in (1, 2, 3):
            return self._unpack({1: "<q", 2: "<d", 3: "<?"}[kind])
        if kind == 4:
            return None
        raise ValueError("the value has an unknown tag")

    def _text(self) -> str:
        return self._take(self._unpack("<I")).decode("utf-8")

    def _count(self, item_bytes: int) -> int:
        count: int = self._unpack("<I")
        if count * item_bytes > len(self._data) - self.offset:
            raise ValueError(f"{count} items are not in the bytes")
        return count

    def _unpack(self, code: str) -> Any:
        (value,) = struct.unpack_from(code, self._data, self.offset)
        self.offset += struct.calcsize(code)
        return value

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self.offset:
            raise ValueError(f"{size} bytes are not there")
        taken = bytes(self._data[self.offset : self.offset + size])
        self.offset += size
        return taken
