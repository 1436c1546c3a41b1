"""One HTTP/1.1 connection of a tensor server: requests in, replies out, with a bound on every wait and buffer.

`http.server` bounds neither the time for a header nor its size, so this module reads requests itself. It knows `GET`
and one range, and nothing of tensors. Implements the limits of "Peers" of docs/specs/tensors.md.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from warpdata.formats.tensors.source_health import SYSTEM_CLOCK, Clock
from warpdata.limits import MAX_PEER_HEADER_BYTES

__all__ = ["Connection", "Request", "refuse_connection"]

_RECEIVE_BYTES = 4096
_DRAIN_BYTES = 64 * 1024
_DRAIN_S = 0.5
_REPLY_HEADERS = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that a tensor server uses. Names of headers are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    keeps_open: bool


class _MalformedError(Exception):
    """The peer sent something else than an HTTP request, with the status to answer."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Connection:
    """Reads requests and sends replies. Any `OSError` means that the connection is over.

    `idle_s` bounds the wait for the next request and for a client that does not read. `header_s` bounds the time from
    the first byte of a request to its last.
    """

    def __init__(
        self, connection: socket.socket, *, idle_s: float, header_s: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._socket = connection
        self._clock = clock
        self._idle_s = idle_s
        self._header_s = header_s
        self._received = b""
        with suppress(OSError):  # a client that has left shows on the first read
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read_request(self) -> Request | None:
        """Return the next request; None if there is none and the connection should be closed."""
        try:
            head = self._read_head()
            return None if head is None else _parse(head)
        except _MalformedError as error:
            self.reply(error.status, keeps_open=False)
            self._drain()
            return None

    def reply(self, status: HTTPStatus, data: bytes = b"", *, keeps_open: bool, headers: str = "") -> None:
        """Send a short reply."""
        self.reply_pieces(status, [data], len(data), keeps_open=keeps_open, headers=headers)

    def reply_pieces(
        self,
        status: HTTPStatus,
        pieces: Iterable[bytes | memoryview],
        size_bytes: int,
        *,
        keeps_open: bool,
        headers: str = "",
    ) -> None:
        """Send a reply piece by piece, so that a slow client holds one piece in memory."""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: {size_bytes}\r\n{_REPLY_HEADERS}{headers}"
            f"Connection: {'keep-alive' if keeps_open else 'close'}\r\n\r\n"
        )
        self._socket.settimeout(self._idle_s)
        self._socket.sendall(head.encode("ascii"))
        for piece in pieces:
            _send(self._socket, memoryview(piece))

    def _drain(self) -> None:
        """Take a little of what the client still sends: closing at once would destroy the reply on its way."""
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.settimeout(_DRAIN_S)
        for _ in range(_DRAIN_BYTES // _RECEIVE_BYTES):
            if not self._socket.recv(_RECEIVE_BYTES):
                return

    def _read_head(self) -> bytes | None:
        """Return the bytes of a header, without the empty line at its end."""
        deadline = None if not self._received else self._clock() + self._header_s
        while True:
            self._received = self._received.lstrip(b"\r\n")
            head, separator, rest = self._received.partition(b"\r\n\r\n")
            if separator:
                self._received = rest
                return head
            if len(self._received) > MAX_PEER_HEADER_BYTES:
                raise _MalformedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            left = self._idle_s if deadline is None else deadline - self._clock()
            if left <= 0:
                raise _MalformedError(HTTPStatus.REQUEST_TIMEOUT)
            self._socket.settimeout(left)
            try:
                more = self._socket.recv(_RECEIVE_BYTES)
            except TimeoutError:
                if deadline is None:
                    return None
                raise _MalformedError(HTTPStatus.REQUEST_TIMEOUT) from None
            if not more:
                return None
            self._received += more
            deadline = deadline or self._clock() + self._header_s


def refuse_connection(connection: socket.socket) -> None:
    """Answer 503 without a wait, and close."""
    try:
        connection.settimeout(0)
        status = HTTPStatus.SERVICE_UNAVAILABLE
        connection.send(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
            "Connection: close\r\n\r\n".encode("ascii")
        )
    except OSError:  # the client has left, or does not read
        pass
    finally:
        connection.close()


def _send(connection: socket.socket, data: memoryview) -> None:
    """Send all bytes. The time-out is about silence: it begins again with every byte that the client takes."""
    while data:
        data = data[connection.send(data) :]


def _parse(head: bytes) -> Request:
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].isascii():
        raise _MalformedError(HTTPStatus.BAD_REQUEST)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip() or key in headers:
            raise _MalformedError(HTTPStatus.BAD_REQUEST)
        headers[key] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise _MalformedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)  # a request has no body
    keeps_open = words[2] != "HTTP/1.0" and headers.get("connection", "").lower() != "close"
    return Request(words[0], words[1], headers, keeps_open)
