"""Blobs into the store: once each, in parallel, safe to run again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from warpdata.errors import ObjectNotFoundError, StorageError, WriteUnknownError
from warpdata.formats.parquet import ParquetSource
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import Blob, Fingerprint, blob_key, fingerprint_file
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.publish.plan import PlannedFile, StagedFile
from warpdata.repository.catalog import Pause
from warpdata.storage import Reader, Writer, verify_blob

__all__ = [
    "drop_damaged",
    "ensure_file",
    "find_likely_present",
    "find_present",
    "fingerprint_all",
    "in_parallel",
    "upload_files",
]

_WORKERS = 4
_STAT_WORKERS = 16
_SAMPLE = 8
_TRIES = 6
_In = TypeVar("_In")
_Out = TypeVar("_Out")


def in_parallel(work: Callable[[_In], _Out], items: Iterable[_In], workers: int = _WORKERS) -> list[_Out]:
    """Results in order; the first failure stops what has not begun, and is raised.

    Threads take the next item themselves: a future for each of many small files would cost as much as its work.
    """
    listed = list(items)
    done: dict[int, _Out] = {}
    failed: dict[int, BaseException] = {}
    numbers = iter(range(len(listed)))
    turn = threading.Lock()

    def take_turns() -> None:
        while not failed:
            with turn:
                number = next(numbers, None)
            if number is None:
                return
            try:
                done[number] = work(listed[number])
            except BaseException as error:
                failed[number] = error
                raise

    with ThreadPoolExecutor(workers, thread_name_prefix="warp-publish") as pool:
        turns = [pool.submit(take_turns) for _ in range(min(workers, len(listed)))]
        try:
            wait(turns)
        except BaseException as error:
            failed[len(listed)] = error
            raise
    if failed:
        raise failed[min(failed)]
    return [done[number] for number in range(len(listed))]


def fingerprint_all(sources: Mapping[str, list[ParquetSource]], progress: Progress) -> dict[str, list[StagedFile]]:
    """Hash every file of every table, several at a time."""
    listed = [source for files in sources.values() for source in files]
    tally = ProgressCounter(progress, "hash", sum(source.path.stat().st_size for source in listed), len(listed))

    def stage(source: ParquetSource) -> StagedFile:
        staged = StagedFile(source, fingerprint_file(source.path, tally.add_bytes))
        tally.finish_file()
        return staged

    staged = iter(in_parallel(stage, listed))
    return {name: [next(staged) for _ in files] for name, files in sources.items()}


def find_likely_present(reader: Reader, blobs: Sequence[Blob]) -> set[str]:
    """As `find_present`, but where nothing suggests that small blobs are there, most are not asked for.

    An interrupted publish sent the first ones first, so these tell. A small blob that is there and was
    not asked for is sent once more and refused by its create-only put: wasted, never wrong.
    """
    small = [blob for blob in blobs if blob.byte_size <= SINGLE_PUT_BYTES]
    sample = {*small[:_SAMPLE], *small[:: max(1, len(small) // _SAMPLE)]}
    asked = [blob for blob in blobs if blob in sample or blob.byte_size > SINGLE_PUT_BYTES]
    found = find_present(reader, asked)
    if not any(blob.hash in found for blob in sample):
        return found
    return found | find_present(reader, [blob for blob in small if blob not in sample])


def find_present(reader: Reader, blobs: Sequence[Blob]) -> set[str]:
    """The hashes already stored with the right size."""

    def check(blob: Blob) -> bool:
        try:
            return reader.stat(blob_key(blob.hash)).size_bytes == blob.byte_size
        except ObjectNotFoundError:
            return False

    there = in_parallel(check, blobs, _STAT_WORKERS)
    return {blob.hash for blob, is_there in zip(blobs, there, strict=True) if is_there}


def upload_files(
    writer: Writer, files: Sequence[PlannedFile], staging: Path, tally: ProgressCounter, pause: Pause
) -> None:
    """Send what is missing. Shards that do not exist yet are packed into `staging`, and gone when sent."""

    def send(file: PlannedFile) -> None:
        if file.is_present:
            tally.add_bytes(file.fingerprint.blob.byte_size)
        else:
            with _on_disk(file, staging) as path:
                ensure_file(writer, path, file.fingerprint, tally, pause)
        tally.finish_file()

    in_parallel(send, files)


@contextmanager
def _on_disk(file: PlannedFile, staging: Path) -> Iterator[Path]:
    if file.recipe is None:
        yield file.path
        return
    packed = staging / f"{file.fingerprint.blob.hash}.shard"
    try:
        file.recipe.write(packed, file.fingerprint)
        yield packed
    finally:
        packed.unlink(missing_ok=True)


def ensure_file(writer: Writer, path: Path, fingerprint: Fingerprint, tally: ProgressCounter, pause: Pause) -> None:
    """The blob is in the store when this returns, or an error says why not."""
    blob = fingerprint.blob
    for attempt in range(_TRIES):
        try:
            writer.create_file(blob_key(blob.hash), path, fingerprint, tally.add_bytes)
            break
        except WriteUnknownError:
            if attempt == _TRIES - 1:
                raise
            pause(attempt)
    if blob.byte_size > SINGLE_PUT_BYTES:
        stored = writer.stat(blob_key(blob.hash)).size_bytes
        if stored != blob.byte_size:
            raise StorageError(f"{path} has {blob.byte_size} bytes, but the store holds {stored} under its name")


def drop_damaged(writer: Writer, blobs: Iterable[Blob]) -> set[str]:
    """Remove stored blobs that no longer hash to their name, so that they can be sent anew."""
    damaged = [blob for blob in blobs if verify_blob(writer, blob) is not None]
    for blob in damaged:
        writer.delete(blob_key(blob.hash))
    return {blob.hash for blob in damaged}
