"""The client of a peer: another host that serves canonical bytes of an artifact over HTTP.

Requests name the multihash of the index, and the index is checked against it. Bytes are verified only by reads with
`verify`. Implements "Peers" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import weakref
from collections import deque
from typing import NoReturn
from urllib.parse import urlsplit

from warpdata.errors import (
    BadInputError,
    CorruptError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from warpdata.formats.tensors.hashing import multihash
from warpdata.limits import MAX_PEER_EXTENTS_BYTES, MAX_TENSOR_INDEX_BYTES
from warpdata.primitives.ranges import ByteRange, RangeSet

__all__ = ["TIMEOUT_S", "PeerSource"]

TIMEOUT_S = 30.0
_CONNECTIONS = 16


class PeerSource:
    """One artifact at one peer. Idle connections stay open until `close()`. Safe to share between threads."""

    concurrency = _CONNECTIONS

    def __init__(self, url: str, index_multihash: str, *, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise BadInputError(f"{url!r} is not the URL of a peer", hint="Write http://host:port.")
        self.url = url.rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = f"{parts.path.rstrip('/')}/tensors/{index_multihash}"
        self._index_multihash = index_multihash
        self._timeout_s = timeout_s
        self.size_bytes = 0
        """The end of the last byte that the peer has, once `ranges` was called."""
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def __repr__(self) -> str:
        return f"PeerSource({self.url!r}, {self._index_multihash!r})"

    def index_bytes(self) -> bytes:
        data = self._get("index", limit=MAX_TENSOR_INDEX_BYTES)
        if multihash(hashlib.sha256(data).digest()) != self._index_multihash:
            raise CorruptError(f"{self.url} sent another index than {self._index_multihash}")
        return data

    def leaves(self) -> tuple[bytes, ...] | None:
        """Return the leaf digests of the peer, not verified; None if it has none."""
        data = self._get("leaves", limit=MAX_TENSOR_INDEX_BYTES)
        return tuple(data[at : at + 32] for at in range(0, len(data), 32)) or None

    def ranges(self) -> list[ByteRange]:
        """Return the canonical bytes that the peer has."""
        try:
            spans = json.loads(self._get("extents", limit=MAX_PEER_EXTENTS_BYTES))
            found = list(RangeSet((int(start), int(end)) for start, end in spans if 0 <= int(start) < int(end)))
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptError(f"{self.url} sent no valid list of extents: {error}") from error
        self.size_bytes = found[-1].end if found else 0
        return found

    def read_range(self, start: int, end: int) -> memoryview:
        data = self._get("bytes", limit=end - start, span=(start, end))
        if len(data) != end - start:
            raise StorageError(f"{self.url} sent {len(data)} bytes for the range {start}…{end}")
        return memoryview(data)

    def close(self) -> None:
        """Close idle connections. Safe to call twice; a later read opens new ones."""
        _close_all(self._idle)

    def _get(self, what: str, *, limit: int, span: tuple[int, int] | None = None) -> bytes:
        headers = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        idle = len(self._idle)
        while True:
            connection = self._connection()
            try:
                connection.request("GET", f"{self._path}/{what}", headers=headers)
                reply = connection.getresponse()
                data = reply.read(limit + 1)
                is_complete = reply.isclosed() or not reply.read(1)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # The server may have closed an idle connection, so each of them may fail once.
                idle -= 1
                if idle < 0 or isinstance(error, TimeoutError):
                    self._fail(error)
                continue
            break
        if len(data) > limit or not is_complete:
            connection.close()
            raise StorageError(f"{self.url} sent more than {limit} bytes for {what}")
        self._idle.append(connection)
        if reply.status == 404:
            raise ObjectNotFoundError(f"{self.url} has no {what} of {self._index_multihash}")
        if reply.status != (200 if span is None else 206):
            raise StorageError(f"{self.url} answered {reply.status} to a request for {what}")
        return data

    def _connection(self) -> http.client.HTTPConnection:
        try:
            return self._idle.pop()
        except IndexError:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            return kind(self._host, self._port, timeout=self._timeout_s)

    def _fail(self, error: Exception) -> NoReturn:
        if isinstance(error, TimeoutError):
            raise StoreTimeoutError(f"{self.url} did not answer within {self._timeout_s} s") from error
        raise StoreUnavailableError(f"{self.url} cannot be reached: {error}") from error


def _close_all(connections: deque[http.client.HTTPConnection]) -> None:
    while connections:
        connections.popleft().close()
