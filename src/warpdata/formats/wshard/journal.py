"""The journal of an episode that is being recorded: records that are each whole or not there.

An append-only file. Each record carries a checksum of its header and one of its payload, so that what a
crash tore is recognised, and what was written before it is believed. Implements "Journal" of
docs/specs/wshard.md.
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

from warpdata.errors import EpisodeCorruptedError
from warpdata.formats.wshard.canonical_json import decode_object
from warpdata.formats.wshard.libraries import crc32c
from warpdata.formats.wshard.metadata import ChannelSpec, parse_channel
from warpdata.limits import COPY_CHUNK_BYTES, WSHARD_MAX_CHANNELS, WSHARD_MAX_JSON_BYTES, WSHARD_MAX_RECORD_BYTES
from warpdata.primitives.cached_property import cached_property

__all__ = ["JOURNAL_MAGIC", "Journal", "RecordKind", "append_record", "parse_begin", "read_journal"]

JOURNAL_MAGIC = b"WSJ1"
_RECORD = struct.Struct("<4sB3xIQIQI")
_CHECKSUM = struct.Struct("<I")
RECORD_BYTES = _RECORD.size + _CHECKSUM.size
_WRITEV_PARTS = 512


class RecordKind(IntEnum):
    """What a record holds: what is recorded, some steps, or the word that the episode is complete."""

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
    """What a journal holds, up to the first byte that cannot be believed.

    `parts` are the series of one steps record, one after another. `problem` says why reading stopped before
    the end of the file; `lost_bytes` is what lies behind.
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
        """Where each part begins in a record of one step."""
        return tuple(accumulate((part.step_bytes for part in self.parts), initial=0))

    def pieces(self, handle: int, number: int) -> Iterator[memoryview]:
        """The bytes of one part over all steps, record by record."""
        before = self._starts[number]
        width = self.parts[number].step_bytes
        if not width:
            return
        for offset, count in zip(self.offsets, self.counts, strict=True):
            yield memoryview(_pread(handle, offset + before * count, width * count))


def append_record(
    handle: int, kind: RecordKind, sequence: int, steps: tuple[int, int], parts: Sequence[memoryview]
) -> int:
    """Append one record in as few writes as the system allows; returns its size.

    `steps` are the first step and how many.
    """
    checksum = payload_bytes = 0
    for part in parts:
        checksum = crc32c(part, checksum)
        payload_bytes += part.nbytes
    head = _RECORD.pack(JOURNAL_MAGIC, kind, sequence, steps[0], steps[1], payload_bytes, checksum)
    waiting = [memoryview(head + _CHECKSUM.pack(crc32c(head))), *(part for part in parts if part.nbytes)]
    while waiting:
        written = os.writev(handle, waiting[:_WRITEV_PARTS])
        while waiting and written >= waiting[0].nbytes:
            written -= waiting.pop(0).nbytes
        if written:
            waiting[0] = waiting[0][written:]
    return RECORD_BYTES + payload_bytes


def read_journal(handle: int) -> Journal:
    """Read and check every record; memory is sixteen bytes for each, and one piece.

    `EpisodeCorruptedError` only where not even the first record can be believed.
    """
    size = os.fstat(handle).st_size
    head, problem = _read_head(handle, 0, 0, size)
    if head is None or head.kind != RecordKind.BEGIN or head.payload_bytes > WSHARD_MAX_JSON_BYTES:
        raise EpisodeCorruptedError(f"this is not a journal, or its beginning is lost: {problem or 'no beginning'}")
    document, parts = parse_begin(_pread(handle, RECORD_BYTES, head.payload_bytes))
    step_bytes = sum(part.step_bytes for part in parts)
    at, sequence, steps, is_complete = RECORD_BYTES + head.payload_bytes, 1, 0, False
    offsets, counts = array("Q"), array("Q")
    while at < size and not is_complete:
        head, problem = _read_head(handle, at, sequence, size)
        if head is None:
            break
        problem = _misfit(head, steps, step_bytes)
        if problem is not None:
            break
        is_complete = head.kind == RecordKind.END
        if not is_complete:
            offsets.append(at + RECORD_BYTES)
            counts.append(head.step_count)
        at, sequence, steps = at + RECORD_BYTES + head.payload_bytes, sequence + 1, steps + head.step_count
    return Journal(document, parts, offsets, counts, steps, is_complete, at, size - at, problem)


def parse_begin(payload: bytes) -> tuple[dict[str, Any], tuple[ChannelSpec, ...]]:
    """What the first record says: its document, and the parts of a step."""
    document = decode_object(payload, "the beginning of the journal")
    return document, _parts(document)


def _read_head(handle: int, at: int, sequence: int, size: int) -> tuple[_Head | None, str | None]:
    """One record's header, when it and its payload are whole."""
    if size - at < RECORD_BYTES:
        return None, f"{size - at} bytes at {at} are less than a record"
    raw = _pread(handle, at, RECORD_BYTES)
    magic, *rest = _RECORD.unpack(raw[: _RECORD.size])
    head = _Head(*rest)
    if magic != JOURNAL_MAGIC or crc32c(raw[: _RECORD.size]) != _CHECKSUM.unpack(raw[_RECORD.size :])[0]:
        return None, f"the record at {at} has a damaged header"
    if head.sequence != sequence:
        return None, f"the record at {at} has the number {head.sequence} instead of {sequence}"
    if head.payload_bytes > min(WSHARD_MAX_RECORD_BYTES, size - at - RECORD_BYTES):
        return None, f"the record at {at} promises {head.payload_bytes} bytes that are not there"
    checksum, end = 0, at + RECORD_BYTES + head.payload_bytes
    for start in range(at + RECORD_BYTES, end, COPY_CHUNK_BYTES):
        checksum = crc32c(_pread(handle, start, min(COPY_CHUNK_BYTES, end - start)), checksum)
    if checksum != head.payload_checksum:
        return None, f"the record at {at} has a damaged payload"
    return head, None


def _misfit(head: _Head, steps: int, step_bytes: int) -> str | None:
    """Why a sound record does not follow from those before it."""
    if head.kind not in (RecordKind.STEPS, RecordKind.END):
        return f"a record of the kind {head.kind} stands among the steps"
    if head.first_step != steps:
        return f"a record begins at step {head.first_step} instead of {steps}"
    ending = head.kind == RecordKind.END
    if head.payload_bytes != head.step_count * step_bytes or ending == bool(head.step_count):
        return f"a record of {head.step_count} steps has {head.payload_bytes} bytes"
    return None


def _parts(document: dict[str, Any]) -> tuple[ChannelSpec, ...]:
    listed = document.get("parts")
    version = document.get("v")
    if isinstance(version, bool) or version != 1:
        raise EpisodeCorruptedError(f"the journal has the version {version!r}")
    if not isinstance(listed, list) or not isinstance(document.get("episode"), dict):
        raise EpisodeCorruptedError("the journal does not say what it records")
    if len(listed) > WSHARD_MAX_CHANNELS:
        raise EpisodeCorruptedError(f"the journal records {len(listed)} parts; the most is {WSHARD_MAX_CHANNELS}")
    if not all(isinstance(item, dict) for item in listed):
        raise EpisodeCorruptedError("the journal lists something that is not a part")
    return tuple(parse_channel(item) for item in listed)


def _pread(handle: int, offset: int, count: int) -> bytes:
    data = os.pread(handle, count, offset)
    while len(data) < count:
        more = os.pread(handle, count - len(data), offset + len(data))
        if not more:
            raise EpisodeCorruptedError(f"the journal shrank while it was read, at byte {offset + len(data)}")
        data += more
    return data
