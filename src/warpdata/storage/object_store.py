"""A store in an object store: S3, GCS, Azure, memory, and read-only HTTP, all through `obstore`.

Reads are retried here, with back-off and jitter, so that a server can lower the number of requests of the process.
Writes are retried by the library. A conditional create is not safe to retry blindly, so its outcomes are
distinguished: made, present before, certainly not sent, unknown. Implements "Object stores" of docs/specs/store.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
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
from warpdata.primitives.adaptive_limit import AdaptiveSize
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.primitives.parallel import IO_POOL, READ_MEMORY, REQUEST_LIMIT, request_slots
from warpdata.primitives.ranges import ByteRange, coalesce, split_range, split_reply
from warpdata.primitives.redaction import redact, redact_exception
from warpdata.storage.content_type import SNIFFED_BYTES, content_type
from warpdata.storage.error_mapping import explain, is_surely_unsent, was_retried
from warpdata.storage.retries import RetryPolicy
from warpdata.storage.types import GetResult, ObjectInfo, check_expiry, check_key
from warpdata.storage.verified_read import read_verified_chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from obstore import Attributes, Bytes, ObjectMeta
    from obstore.store import ObjectStore as Backend

__all__ = ["ObjectStore"]

_MULTIPART_PART_BYTES = 8 * MIB
_STREAM_REQUEST_BYTES = 32 * MIB
_MIN_PART_BYTES, _MAX_PART_BYTES = 1 * MIB, 8 * MIB
_DELETED_KEYS = 1000
"""Object stores delete this many objects by one request."""


class ObjectStore:
    """Implements `Writer`; `read_only` backends refuse every write with `DeniedError`."""

    def __init__(
        self,
        url: str,
        backend: Backend,
        *,
        read_only: bool = False,
        can_sign: bool = False,
        reads: Backend | None = None,
        retries: RetryPolicy | None = None,
    ) -> None:
        """`reads` is a client that does not retry, for requests that are retried here; without it, `backend`."""
        self._url = redact(url)
        self._backend = backend
        self._reads = reads or backend
        self._read_only = read_only
        self._can_sign = can_sign
        self._retries = retries or RetryPolicy()
        self._part_size = AdaptiveSize(_MAX_PART_BYTES, _MIN_PART_BYTES, _MAX_PART_BYTES)
        """Ranges are requested in parts up to this size, because a connection has less bandwidth than the network."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

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
        part_bytes = self._part_size.value
        requests = coalesce(spans, gap_bytes, max_bytes=part_bytes)
        if not requests:
            return [memoryview(b"") for _ in spans]
        with self._translated(key):
            replies = self._send(check_key(key), [request.span for request in requests], part_bytes)
        return split_reply(spans, requests, replies)

    def _send(self, key: str, spans: Sequence[ByteRange], part_bytes: int) -> list[memoryview]:
        """Return one reply for each range, fetched in parallel. Large ranges are fetched in parts."""
        if all(span.size_bytes <= part_bytes for span in spans):
            if len(spans) == 1:
                return [self._get(key, spans[0])]
            return IO_POOL.map_all(lambda span: self._get(key, span), spans)
        import numpy as np  # allocates without filling, and copies without the interpreter lock

        wholes = [np.empty(span.size_bytes, np.uint8) for span in spans]
        parts = [
            (part, whole[part.start - span.start : part.end - span.start])
            for span, whole in zip(spans, wholes, strict=True)
            for part in split_range(span, part_bytes)
        ]

        def fill(part: tuple[ByteRange, NDArray[np.uint8]]) -> None:
            np.copyto(part[1], np.frombuffer(self._get(key, part[0]), np.uint8))

        IO_POOL.map_all(fill, parts)
        return [whole.data for whole in wholes]

    def _get(self, key: str, span: ByteRange) -> memoryview:
        """Send one request, within the budgets of the process."""
        import obstore

        size = span.size_bytes

        def send() -> Bytes:
            REQUEST_LIMIT.acquire()
            try:
                READ_MEMORY.acquire(size)
                try:
                    if size < self._part_size.value:
                        return obstore.get_range(self._reads, key, start=span.start, end=span.end)
                    with self._part_size.measuring(size):
                        return obstore.get_range(self._reads, key, start=span.start, end=span.end)
                finally:
                    READ_MEMORY.release(size)
            finally:
                REQUEST_LIMIT.release()

        reply = memoryview(self._retries.call(send))
        REQUEST_LIMIT.record(len(reply), is_saturated=REQUEST_LIMIT.is_saturated or IO_POOL.has_backlog)
        if len(reply) != size:
            raise CorruptError(f"{self._url} returned {len(reply)} bytes for bytes {span.start}…{span.end} of {key!r}")
        return reply

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
            meta = self._retries.call(lambda: obstore.head(self._reads, check_key(key)))
        return _info(meta)

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        import obstore

        def list_all() -> list[ObjectInfo]:
            found: list[ObjectInfo] = []
            for page in obstore.list(self._reads, check_key(prefix) if prefix else None):
                found.extend(_info(meta) for meta in page)
                if max_count is not None and len(found) >= max_count:
                    break
            return found

        with self._translated(prefix):
            listed = self._retries.call(list_all)
        yield from sorted(listed, key=lambda info: info.key)[:max_count]

    def list_folders(self, prefix: str) -> list[str]:
        import obstore

        with self._translated(prefix):
            listing = self._retries.call(
                lambda: obstore.list_with_delimiter(self._reads, check_key(prefix) if prefix else None)
            )
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in listing["common_prefixes"])

    def is_local(self, key: str) -> bool:
        return False

    def expect_size(self, key: str, size_bytes: int) -> None:
        """Ignore the size: nothing here is cached by size."""

    def invalidate(self, key: str) -> bool:
        check_key(key)
        return False

    def signed_url(self, key: str, expires_s: int) -> str:
        expires_s = check_expiry(expires_s)
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
                obstore.put(
                    self._backend,
                    check_key(key),
                    data,
                    attributes=_attributes(key, data),
                    mode="create",
                    use_multipart=False,
                )
            except Exists:
                return False
        return True

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        if fingerprint.blob.byte_size <= SINGLE_PUT_BYTES:
            return self.create(key, b"".join(read_verified_chunks(path, fingerprint, SINGLE_PUT_BYTES, on_bytes)))
        self._put_large(key, path, fingerprint, on_bytes)
        return True

    def replace_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> None:
        if fingerprint.blob.byte_size <= SINGLE_PUT_BYTES:
            self.replace(key, b"".join(read_verified_chunks(path, fingerprint, SINGLE_PUT_BYTES, on_bytes)))
        else:
            self._put_large(key, path, fingerprint, on_bytes)

    def _put_large(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes) -> None:
        """Overwrite by a multipart upload, which has no create-only condition."""
        import obstore

        size = fingerprint.blob.byte_size
        part = max(_MULTIPART_PART_BYTES, -(-size // MULTIPART_MAX_PARTS))
        # The library sends parts in threads of its own. The first of them has the place of this thread.
        most = min(-(-size // part), request_slots(part))
        with self._writing(key), IO_POOL.lend(most - 1) as lent:
            obstore.put(
                self._backend,
                check_key(key),
                read_verified_chunks(path, fingerprint, part, on_bytes),
                attributes=_attributes(key, _read_head(path)),
                chunk_size=part,
                max_concurrency=lent + 1,
            )

    def replace(self, key: str, data: bytes) -> None:
        import obstore

        with self._writing(key):
            obstore.put(self._backend, check_key(key), data, attributes=_attributes(key, data), use_multipart=False)

    def delete(self, key: str) -> None:
        import obstore

        with self._writing(key):
            obstore.delete(self._backend, check_key(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove the keys by batch requests of up to 1,000, where the store has them."""
        import obstore

        for start in range(0, len(keys), _DELETED_KEYS):
            batch = [check_key(key) for key in keys[start : start + _DELETED_KEYS]]
            with self._writing(batch[0]), suppress(FileNotFoundError):
                obstore.delete(self._backend, batch)

    def remove_abandoned(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        """Return zeros: the library cannot list multipart uploads. A lifecycle rule of the bucket removes them."""
        return 0, 0

    def _fetch(self, key: str, options: dict[str, Any]) -> GetResult | None:
        import obstore
        from obstore.exceptions import NotModifiedError

        def send() -> GetResult:
            reply = obstore.get(self._reads, check_key(key), options=options or None)  # type: ignore[arg-type]
            size = reply.meta["size"]
            if size > MAX_SMALL_OBJECT_BYTES:
                raise LimitExceededError(f"{key!r} has {size} bytes, too many to read whole")
            return GetResult(bytes(reply.bytes()), reply.meta["e_tag"])

        with self._translated(key):
            try:
                return self._retries.call(send)
            except NotModifiedError:
                return None

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
            redact_exception(error)
            if "NoSuchBucket" in str(error):
                raise explain(error, key, self._url) from error
            raise ObjectNotFoundError(f"{key!r} is not in {self._url}") from error
        except BaseError as error:
            redact_exception(error)
            raise explain(error, key, self._url) from error


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])


def _attributes(key: str, data: bytes) -> Attributes:
    return {"Content-Type": content_type(key, data[:SNIFFED_BYTES])}


def _read_head(path: Path) -> bytes:
    """Return the first bytes; none if the file cannot be read, which the upload reports."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(SNIFFED_BYTES)
    return b""


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
