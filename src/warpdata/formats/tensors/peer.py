"""The client of a peer: another host that serves canonical bytes of an artifact over HTTP.

Requests name the multihash of the index, and the index is checked against it. Bytes are verified only by reads with
`verify`. Implements "Peers" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from warpdata.errors import (
    AuthenticationError,
    BadInputError,
    CorruptError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from warpdata.formats.tensors.hashing import multihash
from warpdata.limits import MAX_PEER_EXTENTS_BYTES, MAX_TENSOR_INDEX_BYTES, MAX_TENSOR_SPACE_BYTES
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.ranges import ByteRange, RangeSet
from warpdata.primitives.strict_json import decode_json
from warpdata.settings import peer_token

__all__ = ["TIMEOUT_S", "PeerAccess", "PeerSource", "check_token"]

TIMEOUT_S = 30.0
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/=]{1,1024}")
_CONNECTIONS = 16
_BUSY = 503
_BUSY_WAITS_S = (0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """The token for peers, by default that of WARP_TENSORS_TOKEN, and the longest silence of a peer."""

    token: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise BadInputError(f"timeout_s={self.timeout_s!r} is not a positive number of seconds")


class PeerSource:
    """One artifact at one peer. Idle connections stay open until `close()`. Safe to share between threads."""

    concurrency = _CONNECTIONS

    def __init__(
        self, url: str, index_multihash: str, *, access: PeerAccess | None = None, path: str | None = None
    ) -> None:
        """`path` is that of the ByteSpace below `/tensors/`, by default the index multihash."""
        access = access or PeerAccess()
        self._secure, self._host, self._port, root = _parse_url(url)
        self.url = url.rstrip("/")
        self._path = f"{root}/tensors/{path or index_multihash}"
        self._index_multihash = index_multihash
        self._timeout_s = access.timeout_s
        token = access.token or peer_token()
        self._headers = {"Authorization": f"Bearer {check_token(token)}"} if token else {}
        self.size_bytes = 0
        """The end of the last byte that the peer has, once `ranges` was called."""
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, self._idle)
        register_after_fork(self.close)

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
        spans = decode_json(self._get("extents", limit=MAX_PEER_EXTENTS_BYTES), f"the list of extents of {self.url}")
        if not isinstance(spans, list) or not all(map(_is_range, spans)):
            raise CorruptError(f"{self.url} sent a list of extents that has other values than ranges")
        found = list(RangeSet((start, end) for start, end in spans))
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
        headers = dict(self._headers)
        if span is not None:
            headers["Range"] = f"bytes={span[0]}-{span[1] - 1}"
        idle = len(self._idle)
        busy = 0
        while True:
            connection = self._connection()
            try:
                connection.request("GET", f"{self._path}/{what}", headers=headers)
                reply = connection.getresponse()
                data = reply.read(limit + 1)
                is_complete = reply.isclosed() or not reply.read(1)
            except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a malformed chunk
                connection.close()
                # The server may have closed an idle connection, so each of them may fail once.
                idle -= 1
                if idle < 0 or isinstance(error, TimeoutError):
                    self._fail(error)
                continue
            if reply.status == _BUSY and busy < len(_BUSY_WAITS_S):
                # The server has too many clients. A short wait is enough if they only read a little.
                connection.close()
                threading.Event().wait(_BUSY_WAITS_S[busy])
                busy += 1
                continue
            break
        if len(data) > limit or not is_complete:
            connection.close()
            raise StorageError(f"{self.url} sent more than {limit} bytes for {what}")
        self._idle.append(connection)
        if reply.status in (401, 403):
            hint = "Pass SourcePolicy(token=…) or set WARP_TENSORS_TOKEN."
            raise AuthenticationError(f"{self.url} answered {reply.status}: the token is missing or wrong", hint=hint)
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
            raise StoreTimeoutError(f"{self.url} was silent for {self._timeout_s} s") from error
        raise StoreUnavailableError(f"{self.url} cannot be reached: {error}") from error


def _is_range(value: object) -> bool:
    if not isinstance(value, list) or [type(number) for number in value] != [int, int]:
        return False
    return bool(0 <= value[0] < value[1] <= MAX_TENSOR_SPACE_BYTES)


def check_token(token: str) -> str:
    """Return a token that can be sent in a header. `BadInputError` for any other; the message does not show it."""
    if not _TOKEN.fullmatch(token):
        raise BadInputError("the token of the tensor server has characters other than letters, digits and -._~+/=")
    return token


def _parse_url(url: str) -> tuple[bool, str, int | None, str]:
    """Return (is https, host, port, path). A host may be an IPv6 address in brackets."""
    hint = "Write http://host:port, or http://[::1]:port for IPv6."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError) as error:
        raise BadInputError(f"{url!r} is not the URL of a peer: {error}", hint=hint) from error
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise BadInputError(f"{url!r} is not the URL of a peer", hint=hint)
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


def _close_all(connections: deque[http.client.HTTPConnection]) -> None:
    while connections:
        connections.popleft().close()
