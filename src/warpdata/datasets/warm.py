"""Blobs brought to this machine on purpose, before anybody needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from warpdata.errors import BadInputError
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import ProgressCounter
from warpdata.session import Session
from warpdata.storage.cache import CachedReader, Filled

__all__ = ["Warmed", "choose", "warm_blobs"]

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Warmed:
    """What was brought, what was here already, and what was left where it is for want of room."""

    blobs: int
    fetched_bytes: int
    present_bytes: int
    skipped_bytes: int


def choose(blobs: Iterable[Blob], max_bytes: int | None) -> tuple[list[Blob], int]:
    """Blobs in order, each once, until the next would exceed `max_bytes`; and the size of the rest. Pure."""
    chosen, taken, left = [], 0, 0
    for blob in dict.fromkeys(blobs):
        if left or (max_bytes is not None and taken + blob.byte_size > max_bytes):
            left += blob.byte_size
        else:
            chosen.append(blob)
            taken += blob.byte_size
    return chosen, left


def warm_blobs(session: Session, blobs: Sequence[Blob], tally: ProgressCounter) -> Warmed:
    """Have the blobs in the cache. On a local store they are here already."""
    if session.reader is session.writer:
        return Warmed(len(blobs), 0, sum(blob.byte_size for blob in blobs), 0)
    reader = session.media_reader
    if not isinstance(reader, CachedReader):
        raise BadInputError(f"mode {session.mode.value!r} brings nothing to this machine", hint="Use mode='auto'.")

    def fill(blob: Blob) -> Filled:
        how = reader.fill(blob, tally.add_bytes)
        if how is not Filled.FETCHED:
            tally.add_bytes(blob.byte_size)
        tally.finish_file()
        return how

    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="warp-warm")
    try:
        done = list(pool.map(fill, blobs))
    finally:
        pool.shutdown(cancel_futures=True)
    sizes = dict.fromkeys(Filled, 0)
    for blob, how in zip(blobs, done, strict=True):
        sizes[how] += blob.byte_size
    return Warmed(len(blobs), sizes[Filled.FETCHED], sizes[Filled.PRESENT], sizes[Filled.NO_ROOM])
