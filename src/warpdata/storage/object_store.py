"""A store in an object store: S3, GCS, Azure, memory, and read-only HTTP, all through `obstore`.

The library retries reads, with back-off and jitter. A conditional create is not safe to retry blindly, so its
outcomes are distinguished here: made, present before, certainly not sent, unknown. Implements "Object stores" of
docs/specs/store.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import (
    CorruptError,
    DeniedError,
    ErrorKind,
    LimitExceededError,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedError,
    WarpError,
    WriteUnknownError,
)
from warpdata.limits import (
    COALESCE_GAP_BYTES,
    MAX_SMALL_OBJECT_BYTES,
    MIB,
    MULTIPART_MAX_PARTS,
    SINGLE_PUT_BYTES,
    STREAM_CHUNK_BYTES,
)
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.ranges import ByteRange, coalesce, split_reply
from warpdata.storage.error_mapping import explain, is_surely_unsent, was_retried
from warpdata.storage.types import GetResult, ObjectInfo, check_key
from warpdata.storage.verified_read import read_verified_chunks

if TYPE_CHECKING:
    from obstore import Bytes as Buffer
    from obstore.store import ObjectStore as Backend

__all__ = ["ObjectStore"]

_MULTIPART_PART_BYTES = 8 * MIB
_STREAM_REQUEST_BYTES = 32 * MIB
_PARALLEL_RANGES = 8


class ObjectStore:
    """Implements `Writer`; `read_only` backends refuse every write with `DeniedError`."""

    def __init__(self, url: str, backend: Backend, *, read_only: bool = False, can_sign: bool = False) -> None:
        self._url = url
        self._backend = backend
        self._read_only = read_only
        self._can_sign = can_sign

    @property
    def url(self) -> str:
        return self._url

    def local_path(self, key: str) -> Path | None:
        check_key(key)
        return None

    def read(self, key: str) -> GetResult:
        fetched = self._fetch(key, {})
        assert fetched is not None, "an unconditional read cannot be 'not modified'"
        return fetched

    def read_if_changed(self, key: str, etag: str) -> GetResult | None:
        return self._fetch(key, {"if_none_match": etag})

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self.read_ranges(key, [span])[0]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        requests = coalesce(spans, gap_bytes)
        if not requests:
            return [memoryview(b"") for _ in spans]
        with self._translated(key):
            replies = self._send(check_key(key), [request.span for request in requests])
        for request, reply in zip(requests, replies, strict=True):
            if len(reply) != request.span.size_bytes:
                raise CorruptError(
                    f"{self._url} returned {len(reply)} bytes for bytes "
                    f"{request.span.start}…{request.span.end} of {key!r}"
                )
        return split_reply(spans, requests, [memoryview(reply) for reply in replies])

    def _send(self, key: str, spans: Sequence[ByteRange]) -> list[Buffer]:
        """Return one reply for each range. The ranges ascend and do not touch.

        The library merges ranges within its own gap, which equals our default. Closer ranges are therefore requested
        one by one, in parallel.
        """
        import obstore

        def get(span: ByteRange) -> Buffer:
            return obstore.get_range(self._backend, key, start=span.start, end=span.end)

        if len(spans) == 1:
            return [get(spans[0])]
        if all(after.start - before.end > COALESCE_GAP_BYTES for before, after in pairwise(spans)):
            starts, ends = [span.start for span in spans], [span.end for span in spans]
            return list(obstore.get_ranges(self._backend, key, starts=starts, ends=ends))
        return IO_POOL.map_all(get, spans, limit=_PARALLEL_RANGES)

    def stream(self, key: str) -> Iterator[memoryview]:
        """Yield chunks of several requests: a single one for a large object would exceed the request time-out."""
        import obstore

        with self._translated(key):
            reply = obstore.get(self._backend, check_key(key))
            size, tag, sent = reply.meta["size"], reply.meta["e_tag"], 0
            while True:
                begun = sent
                for chunk in reply.stream(min_chunk_size=STREAM_CHUNK_BYTES):
                    yield memoryview(chunk)
                    sent += len(chunk)
                    if sent - begun >= _STREAM_REQUEST_BYTES:
                        break
                if sent >= size:
                    return
                if sent == begun:
                    raise CorruptError(f"{key!r} in {self._url} ends at byte {sent} of {size}")
                options: dict[str, Any] = {"range": (sent, min(sent + _STREAM_REQUEST_BYTES, size))}
                if tag is not None:
                    options["if_match"] = tag
                reply = obstore.get(self._backend, key, options=options)  # type: ignore[arg-type]

    def stat(self, key: str) -> ObjectInfo:
        import obstore

        with self._translated(key):
            meta = obstore.head(self._backend, check_key(key))
        return ObjectInfo(key, meta["size"], meta["e_tag"], meta["last_modified"])

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        import obstore

        found: list[ObjectInfo] = []
        with self._translated(prefix):
            for page in obstore.list(self._backend, check_key(prefix) if prefix else None):
                found.extend(ObjectInfo(meta["path"], meta["size"], meta["e_tag"]) for meta in page)
        yield from sorted(found, key=lambda info: info.key)

    def list_folders(self, prefix: str) -> list[str]:
        import obstore

        with self._translated(prefix):
            listing = obstore.list_with_delimiter(self._backend, check_key(prefix) if prefix else None)
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in listing["common_prefixes"])

    def is_local(self, key: str) -> bool:
        return False

    def expect_size(self, key: str, size_bytes: int) -> None:
        """Ignore the size: nothing here is cached by size."""

    def invalidate(self, key: str) -> bool:
        check_key(key)
        return False

    def signed_url(self, key: str, expires_s: int) -> str:
        if not self._can_sign:
            raise UnsupportedError(f"{self._url} cannot sign a URL for {key!r}")
        import obstore

        backend: Any = self._backend
        with self._translated(key):
            return obstore.sign(backend, "GET", check_key(key), timedelta(seconds=expires_s))

    def create(self, key: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError as Exists

        with self._writing(key):
            try:
                obstore.put(self._backend, check_key(key), data, mode="create", use_multipart=False)
            except Exists:
                return False
        return True

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        size = fingerprint.blob.byte_size
        if size <= SINGLE_PUT_BYTES:
            return self.create(key, b"".join(read_verified_chunks(path, fingerprint, SINGLE_PUT_BYTES, on_bytes)))
        import obstore

        part = max(_MULTIPART_PART_BYTES, -(-size // MULTIPART_MAX_PARTS))
        with self._writing(key):
            obstore.put(
                self._backend,
                check_key(key),
                read_verified_chunks(path, fingerprint, part, on_bytes),
                chunk_size=part,
                max_concurrency=4,
            )
        return True

    def replace(self, key: str, data: bytes) -> None:
        import obstore

        with self._writing(key):
            obstore.put(self._backend, check_key(key), data, use_multipart=False)

    def delete(self, key: str) -> None:
        import obstore

        with self._writing(key):
            obstore.delete(self._backend, check_key(key))

    def _fetch(self, key: str, options: dict[str, Any]) -> GetResult | None:
        import obstore
        from obstore.exceptions import NotModifiedError

        with self._translated(key):
            try:
                reply = obstore.get(self._backend, check_key(key), options=options or None)  # type: ignore[arg-type]
            except NotModifiedError:
                return None
            size = reply.meta["size"]
            if size > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {size} bytes, too many to read whole")
            return GetResult(bytes(reply.bytes()), reply.meta["e_tag"])

    @contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        """Translate errors as `_translated` does. A failure that may hide a success becomes `WriteUnknownError`.

        A refusal is an answer only to the first attempt: an earlier one may have succeeded and lost its reply.
        """
        if self._read_only:
            raise DeniedError(
                f"{self._url} is read-only; {key!r} was not written",
                kind=ErrorKind.READ_ONLY_STORE,
                hint="Publish to the directory or bucket behind it.",
            )
        try:
            with self._translated(key):
                yield
        except (StorageError, DeniedError, NotFoundError) as error:
            is_answer = not isinstance(error, StorageError) and not was_retried(error.__cause__)
            if is_answer or is_surely_unsent(error.__cause__):
                raise
            raise WriteUnknownError(f"no reply to the write of {key!r}: {error.message}") from error

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """Turn the library's exceptions into typed errors, for any backend."""
        from obstore.exceptions import BaseError

        check_fork_safe(self._url)
        try:
            yield
        except WarpError:
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise explain(error, key, self._url) from error
            raise ObjectNotFoundError(f"{key!r} is not in {self._url}") from error
        except BaseError as error:
            raise explain(error, key, self._url) from error


# The library has threads of its own. A child that is forked after they have started does not have them, and its
# first request would never end.
_is_used = False
_is_orphaned = False


def check_fork_safe(url: str) -> None:
    """Raise `UnsupportedError` in a process that was forked after the library was used. Called before each request."""
    global _is_used  # noqa: PLW0603 - one flag for the process
    if _is_orphaned:
        raise UnsupportedError(
            f"{url} cannot be read in a process that was forked after the parent had used an object store",
            hint="Start processes with 'forkserver' or 'spawn': DataLoader(..., multiprocessing_context='forkserver').",
        )
    _is_used = True


def _after_fork() -> None:
    global _is_orphaned  # noqa: PLW0603
    _is_orphaned = _is_used


register_after_fork(_after_fork)
