"""The journal of a running recording: an append-only file of records.

Each record has a checksum of its header and one of its payload. Readers detect a record that a crash left incomplete,
and accept the records before it. Implements "Journal" of docs/specs/wshard.md.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from typing import Any

from warpdata.errors import CorruptError
from warpdata.formats.wshard.canonical_json import decode_object
from warpdata.formats.wshard.codecs import crc32c
from warpdata.formats.wshard.metadata import ChannelSpec, parse_channel
from warpdata.limits import MIB, WSHARD_MAX_CHANNELS, WSHARD_MAX_JSON_BYTES, WSHARD_MAX_RECORD_BYTES
from warpdata.primitives.cached_property import cached_property

__all__ = [
    "JOURNAL_MAGIC",
    "Journal",
    "RecordKind",
    "append_record",
    "has_later_record",
    "is_unstarted",
    "parse_begin",
    "read_journal",
]

JOURNAL_MAGIC = b"WSJ1"
_RECORD = struct.Struct("<4sB3xIQIQI")
_CHECKSUM = struct.Struct("<I")
RECORD_BYTES = _RECORD.size + _CHECKSUM.size
_WRITEV_PARTS = 512
_READ_BYTES = 1 * MIB


class RecordKind(IntEnum):
    """The content of a record: the description of the episode, some steps, or the end mark."""

    BEGIN = 1
    STEPS = 2
    END = 3


@dataclass(frozen=True, slots=True)
class _Head:
    kind: int
    sequence: int
    first_step: int
    step_count: int
    payload_bytes: int
    payload_checksum: int


@dataclass(frozen=True)
class Journal:
    """The valid records of a journal.

    A steps record holds the series of `parts`, one after another. `problem` is the reason why reading stopped before
    the end of the file, and `lost_bytes` the number of bytes after that.
    """

    document: dict[str, Any]
    parts: tuple[ChannelSpec, ...]
    offsets: array[int] = field(repr=False)
    counts: array[int] = field(repr=False)
    step_count: int
    is_complete: bool
    good_bytes: int
    lost_bytes: int
    problem: str | None

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The offset of each part in a record of one step."""
        return tuple(accumulate((part.step_bytes for part in self.parts), initial=0))

    def pieces(self, handle: int, number: int) -> Iterator[memoryview]:
        """Yield the bytes of one part over all steps, record by record."""
        before = self._starts[number]
        width = self.parts[number].step_bytes
        if not width:
            return
        for offset, count in zip(self.offsets, self.counts, strict=True):
            yield memoryview(_pread(handle, offset + before * count, width * count))


def append_record(
    handle: int, kind: RecordKind, sequence: int, steps: tuple[int, int], parts: Sequence[memoryview]
) -> int:
    """Append one record in as few writes as the system allows, and return its size.

    `steps` are the first step and the number of steps.
    """
    checksum = payload_bytes = 0
    for part in parts:
        checksum = crc32c(part, checksum)
        payload_bytes += part.nbytes
    head = _RECORD.pack(JOURNAL_MAGIC, kind, sequence, steps[0], steps[1], payload_bytes, checksum)
    pending = [memoryview(head + _CHECKSUM.pack(crc32c(head))), *(part for part in parts if part.nbytes)]
    while pending:
        written = os.writev(handle, pending[:_WRITEV_PARTS])
        while pending and written >= pending[0].nbytes:
            written -= pending.pop(0).nbytes
        if written:
            pending[0] = pending[0][written:]
    return RECORD_BYTES + payload_bytes


def read_journal(handle: int) -> Journal:
    """Read and verify every record. Memory is 16 bytes for each record.

    `CorruptError` only if the first record is not valid.
    """
    size = os.fstat(handle).st_size
    head, problem = _read_head(handle, 0, 0, size)
    if head is None or head.kind != RecordKind.BEGIN or head.payload_bytes > WSHARD_MAX_JSON_BYTES:
        hint = "It has no steps. Record again under the same name, or remove it." if is_unstarted(handle) else None
        raise CorruptError(f"the journal has no valid first record: {problem or 'another kind of record'}", hint=hint)
    document, parts = parse_begin(_pread(handle, RECORD_BYTES, head.payload_bytes))
    step_bytes = sum(part.step_bytes for part in parts)
    at, sequence, steps, is_complete = RECORD_BYTES + head.payload_bytes, 1, 0, False
    offsets, counts = array("Q"), array("Q")
    while at < size and not is_complete:
        head, problem = _read_head(handle, at, sequence, size)
        if head is None:
            break
        problem = _find_mismatch(head, steps, step_bytes)
        if problem is not None:
            break
        is_complete = head.kind == RecordKind.END
        if not is_complete:
            offsets.append(at + RECORD_BYTES)
            counts.append(head.step_count)
        at, sequence, steps = at + RECORD_BYTES + head.payload_bytes, sequence + 1, steps + head.step_count
    return Journal(document, parts, offsets, counts, steps, is_complete, at, size - at, problem)


def is_unstarted(handle: int) -> bool:
    """Return whether the file has no byte after a first record, so that it never held a step."""
    size = os.fstat(handle).st_size
    raw = _pread(handle, 0, min(size, RECORD_BYTES))
    if size < RECORD_BYTES:
        return JOURNAL_MAGIC.startswith(raw[: len(JOURNAL_MAGIC)])
    head = _Head(*_RECORD.unpack(raw[: _RECORD.size])[1:])
    return _is_header(raw) and head.kind == RecordKind.BEGIN and size <= RECORD_BYTES + head.payload_bytes


def has_later_record(handle: int, journal: Journal) -> bool:
    """Return whether a valid header follows the bytes that could not be read: flushed steps behind the damage."""
    start, end = journal.good_bytes + 1, journal.good_bytes + journal.lost_bytes
    while start + RECORD_BYTES <= end:
        piece = _pread(handle, start, min(_READ_BYTES, end - start))
        at = piece.find(JOURNAL_MAGIC)
        while at >= 0 and start + at + RECORD_BYTES <= end:
            if _is_header(_pread(handle, start + at, RECORD_BYTES)):
                return True
            at = piece.find(JOURNAL_MAGIC, at + 1)
        # A magic number may straddle two pieces.
        start += max(1, len(piece) - len(JOURNAL_MAGIC) + 1)
    return False


def _is_header(raw: bytes) -> bool:
    return raw[:4] == JOURNAL_MAGIC and crc32c(raw[: _RECORD.size]) == _CHECKSUM.unpack(raw[_RECORD.size :])[0]


def parse_begin(payload: bytes) -> tuple[dict[str, Any], tuple[ChannelSpec, ...]]:
    """Parse the first record: its document, and the parts of a step."""
    document = decode_object(payload, "the first record of the journal")
    return document, _parts(document)


def _read_head(handle: int, at: int, sequence: int, size: int) -> tuple[_Head | None, str | None]:
    """Return the header of a record if the record is valid, else the problem."""
    if size - at < RECORD_BYTES:
        return None, f"the {size - at} bytes at {at} are too few for a record"
    raw = _pread(handle, at, RECORD_BYTES)
    head = _Head(*_RECORD.unpack(raw[: _RECORD.size])[1:])
    if not _is_header(raw):
        return None, f"the record at {at} has a damaged header"
    if head.sequence != sequence:
        return None, f"the record at {at} has the number {head.sequence} instead of {sequence}"
    if head.payload_bytes > min(WSHARD_MAX_RECORD_BYTES, size - at - RECORD_BYTES):
        return None, f"the record at {at} promises {head.payload_bytes} bytes, which the file does not have"
    checksum, end = 0, at + RECORD_BYTES + head.payload_bytes
    for start in range(at + RECORD_BYTES, end, _READ_BYTES):
        checksum = crc32c(_pread(handle, start, min(_READ_BYTES, end - start)), checksum)
    if checksum != head.payload_checksum:
        return None, f"the record at {at} has a damaged payload"
    return head, None


def _find_mismatch(head: _Head, steps: int, step_bytes: int) -> str | None:
    """Return the reason why a valid record cannot follow those before it."""
    if head.kind not in (RecordKind.STEPS, RecordKind.END):
        return f"there is a record of the kind {head.kind} among the steps"
    if head.first_step != steps:
        return f"a record begins at step {head.first_step} instead of {steps}"
    is_end = head.kind == RecordKind.END
    if head.payload_bytes != head.step_count * step_bytes or is_end == bool(head.step_count):
        return f"a record of {head.step_count} steps has {head.payload_bytes} bytes"
    return None


def _parts(document: dict[str, Any]) -> tuple[ChannelSpec, ...]:
    listed = document.get("parts")
    version = document.get("v")
    if isinstance(version, bool) or version != 1:
        raise CorruptError(f"the journal has the version {version!r}")
    if not isinstance(listed, list) or not isinstance(document.get("episode"), dict):
        raise CorruptError("the journal does not describe its episode and parts")
    if len(listed) > WSHARD_MAX_CHANNELS:
        raise CorruptError(f"the journal records {len(listed)} parts; the most is {WSHARD_MAX_CHANNELS}")
    if not all(isinstance(item, dict) for item in listed):
        raise CorruptError("the journal lists a part that is not an object")
    return tuple(parse_channel(item) for item in listed)


def _pread(handle: int, offset: int, count: int) -> bytes:
    data = os.pread(handle, count, offset)
    while len(data) < count:
        more = os.pread(handle, count - len(data), offset + len(data))
        if not more:
            raise CorruptError(f"the journal was truncated at byte {offset + len(data)} while it was read")
        data += more
    return data
