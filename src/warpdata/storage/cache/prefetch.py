"""Fills that somebody asked for and waits for. Here trouble is an error, unlike in the background.

Implements "Warming" of docs/specs/cache.md.
"""

from __future__ import annotations

from threading import Event

from warpdata.errors import StorageError, StoreTimeoutError
from warpdata.limits import CACHE_POLL_S, CACHE_WARM_PATIENCE_S
from warpdata.primitives.hashing import Blob, OnBytes
from warpdata.storage.cache.blob_cache import BlobCache, Refusal
from warpdata.storage.cache.blob_state import Filled, Outcome
from warpdata.storage.cache.fetcher import Filler
from warpdata.storage.cache.policy import FILL_EAGERLY

__all__ = ["fill_now"]

_TICK_S = 0.1


def fill_now(filler: Filler, cache: BlobCache, blob: Blob, on_bytes: OnBytes) -> Filled:
    """Have the blob in the cache; raises what was in the way."""
    tries = int(CACHE_WARM_PATIENCE_S / CACHE_POLL_S)
    pause, seen = Event(), None
    while tries > 0:
        if cache.is_entry(blob.hash):
            return Filled.PRESENT
        outcome = _fill_here(filler, cache, blob, on_bytes)
        if outcome is not Refusal.BUSY:
            return _settled(outcome, cache)
        pause.wait(CACHE_POLL_S)
        now = cache.progress_elsewhere(blob.hash)
        if now is None:
            _displace(cache, blob)
        tries = tries - 1 if now == seen else int(CACHE_WARM_PATIENCE_S / CACHE_POLL_S)
        seen = now
    raise StoreTimeoutError(
        f"another process is filling blob {blob.hash} and does not get on", hint="Try again when it has ended."
    )


def _displace(cache: BlobCache, blob: Blob) -> None:
    """Nobody need wait for a part that takes only what somebody happens to read."""
    try:
        cache.displace(blob.hash)
    except OSError as error:
        raise StorageError(f"the cache in {cache.folder} can not be used: {error.strerror or error}") from error


def _fill_here(filler: Filler, cache: BlobCache, blob: Blob, on_bytes: OnBytes) -> Outcome:
    """Fill by our own threads; how that ended."""
    cache.take_heart()
    with filler.board.lock:
        record = filler.board.watch(blob.hash, FILL_EAGERLY)
        record.size_bytes = record.size_bytes or blob.byte_size
        filler.board.enqueue(record, FILL_EAGERLY, wants_all=True)
        record.waiters += 1
    told = 0
    try:
        while True:
            with filler.board.lock:
                if record.outcome is None and not filler.board.is_closed:
                    # Asked for again, because somebody may have distrusted what was fetched so far.
                    filler.board.enqueue(record, FILL_EAGERLY, wants_all=True)
                    filler.crew.wake()
                    record.changed.wait(_TICK_S)
                part, outcome, is_closed = record.part, record.outcome, filler.board.is_closed
            there = blob.byte_size if outcome is Filled.FETCHED else part.covered_bytes if part is not None else told
            if there > told:
                on_bytes(there - told)
                told = there
            if outcome is not None:
                return outcome
            if is_closed:
                return StorageError(f"the reader was closed before blob {blob.hash} was there")
    finally:
        with filler.board.lock:
            record.waiters -= 1


def _settled(outcome: Outcome, cache: BlobCache) -> Filled:
    if isinstance(outcome, BaseException):
        raise outcome
    if isinstance(outcome, Filled):
        return outcome
    if outcome is Refusal.PRESENT:
        return Filled.PRESENT
    if outcome is Refusal.RESTING:
        raise StorageError(f"the cache in {cache.folder} could not be written a moment ago")
    return Filled.NO_ROOM
