"""Another host that serves an artifact, as a source: ranges of canonical bytes over HTTP, by hash.

A peer is asked for an artifact by the multihash of its index, so it can not answer with another one. Index and
leaf hashes are checked against the names they were asked by; bytes are checked by whoever reads with `verify`.
Implements "Peers" of docs/specs/tensors.md.
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
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
    TensorsCorruptedError,
)
from warpdata.formats.tensors.extents import merge_ranges
from warpdata.formats.tensors.hashing import multihash
from warpdata.formats.tensors.sources import Stored
from warpdata.limits import MAX_PEER_EXTENTS_BYTES, MAX_TENSOR_INDEX_BYTES, PEER_CONNECTIONS, PEER_TIMEOUT_S

__all__ = ["PeerSource"]


class PeerSource(Stored):
    """One artifact at one peer. Connections are kept until `close()`. Safe to share between threads."""

    concurrency = PEER_CONNECTIONS

    def __init__(self, url: str, index_multihash: str, *, timeout_s: float = PEER_TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise BadInputError(f"{url!r} is not the address of a peer", hint="http://host:port")
        self.url = url.rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = f"{parts.path.rstrip('/')}/tensors/{index_multihash}"
        self._index_multihash = index_multihash
        self._timeout_s = timeout_s
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def index_bytes(self) -> bytes:
        data = self._get("index", limit=MAX_TENSOR_INDEX_BYTES)
        if multihash(hashlib.sha256(data).digest()) != self._index_multihash:
            raise TensorsCorruptedError(f"{self.url} answered with another index than {self._index_multihash}")
        return data

    def leaves(self) -> tuple[bytes, ...] | None:
        """As the peer says; not checked here. `None` if it knows none."""
        data = self._get("leaves", limit=MAX_TENSOR_INDEX_BYTES)
        return tuple(data[at : at + 32] for at in range(0, len(data), 32)) or None

    def ranges(self) -> list[tuple[int, int]]:
        """Which canonical bytes the peer has."""
        try:
            told = json.loads(self._get("extents", limit=MAX_PEER_EXTENTS_BYTES))
            return merge_ranges((int(start), int(end)) for start, end in told if 0 <= int(start) < int(end))
        except (ValueError, TypeError, RecursionError) as error:
            raise TensorsCorruptedError(f"{self.url} does not say which bytes it has: {error}") from error

    def read_range(self, start: int, end: int) -> bytes:
        data = self._get("bytes", limit=end - start, span=(start, end))
        if len(data) != end - start:
            raise StorageError(f"{self.url} gave {len(data)} bytes for the range {start}…{end}")
        return data

    def close(self) -> None:
        """Safe to call twice, and to read again afterwards."""
        _close_all(self._idle)

    def _get(self, what: str, *, limit: int, span: tuple[int, int] | None = None) -> bytes:
        headers = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        kept = len(self._idle)
        while True:
            connection = self._connection()
            try:
                connection.request("GET", f"{self._path}/{what}", headers=headers)
                reply = connection.getresponse()
                data = reply.read(limit + 1)
                whole = reply.isclosed() or not reply.read(1)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # A connection that was kept may have been closed by the other side meanwhile.
                kept -= 1
                if kept < 0 or isinstance(error, TimeoutError):
                    self._fail(error)
                continue
            break
        if len(data) > limit or not whole:
            connection.close()
            raise StorageError(f"{self.url} gave more than {limit} bytes for {what}")
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
        raise StoreUnavailableError(f"{self.url} can not be reached: {error}") from error


def _close_all(connections: deque[http.client.HTTPConnection]) -> None:
    while connections:
        connections.popleft().close()
