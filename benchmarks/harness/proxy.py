"""A reverse proxy on loopback as far away as a real object store: each request waits, each connection is slow.

A server without latency rewards the wrong design, such as one request for every sample. Here a request is
passed on only after `delay_s`, and a connection's answers are paced to `bytes_per_s`. Bytes are passed on as they
come, heads included, so signatures made for the proxy's address still hold.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from benchmarks.harness.counting_proxy import Exchange

__all__ = ["LatencyProxy"]

_CHUNK_BYTES = 128 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_BODILESS = {204, 304}


class LatencyProxy:
    """Context manager; `endpoint_url` is where to send requests meant for `upstream_url`."""

    def __init__(self, upstream_url: str, delay_s: float = 0.02, bytes_per_s: float = 60e6) -> None:
        self.delay_s = delay_s
        self.bytes_per_s = bytes_per_s
        upstream = urlsplit(upstream_url)
        self._upstream = (upstream.hostname or "127.0.0.1", upstream.port or 80)
        self._seen: list[_Answer] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._thread = threading.Thread(target=self._accept, name="latency-proxy", daemon=True)
        self.endpoint_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def take(self) -> list[Exchange]:
        """What was seen since the last call. An answer that is still being sent counts with what went out so far."""
        taken = self._seen[:]
        del self._seen[: len(taken)]
        return [Exchange(answer.method, answer.path, answer.status, answer.sent_bytes) for answer in taken]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for opened in (self._listener, *list(self._open)):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """One connection, until either side ends it."""
        self._open.add(client)
        with client, contextlib.suppress(OSError), socket.create_connection(self._upstream) as upstream:
            for side in (client, upstream):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            from_client, from_upstream = _Inflow(client), _Inflow(upstream)
            while (request := from_client.head()) is not None:
                time.sleep(self.delay_s)
                upstream.sendall(request)
                for piece in from_client.body(request):
                    upstream.sendall(piece)
                if not self._answer(request, from_upstream, client):
                    break
        self._open.discard(client)

    def _answer(self, request: bytes, upstream: _Inflow, client: socket.socket) -> bool:
        method, path, _ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        head = upstream.head()
        while head is not None and head[9:12] == b"100":
            client.sendall(head)
            head = upstream.head()
        if head is None:
            return False
        status = int(head[9:12])
        answer = _Answer(method, path, status)
        self._seen.append(answer)
        client.sendall(head)
        begun = time.perf_counter()
        if method != "HEAD" and status not in _BODILESS:
            for piece in upstream.body(head):
                ahead_s = answer.sent_bytes / self.bytes_per_s - (time.perf_counter() - begun)
                if ahead_s > 0:
                    time.sleep(ahead_s)
                answer.sent_bytes += len(piece)
                client.sendall(piece)
        return True


@dataclass(slots=True)
class _Answer:
    """Grows while it is sent, so that a client that has all of it finds it counted."""

    method: str
    path: str
    status: int
    sent_bytes: int = 0


class _Inflow:
    """What comes in on a socket, cut into heads and bodies; bytes stay as they are."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._held = b""

    def head(self) -> bytes | None:
        """Up to and with the empty line; None where the other side has ended."""
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            came = self._source.recv(_CHUNK_BYTES)
            if not came or len(self._held) > _MAX_HEAD_BYTES:
                return None
            self._held += came
        head, self._held = self._held[: end + 4], self._held[end + 4 :]
        return head

    def body(self, head: bytes) -> Iterator[bytes]:
        if _CHUNKED.search(head):
            yield from self._chunks()
            return
        length = _LENGTH.search(head)
        yield from self._exactly(int(length[1]) if length else 0)

    def _exactly(self, left: int) -> Iterator[bytes]:
        while left > 0:
            piece, self._held = self._held[:left], self._held[left:]
            piece = piece or self._source.recv(min(left, _CHUNK_BYTES))
            if not piece:
                raise ConnectionError("cut off")
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        size = 1
        while size:
            line = self._line()
            size = int(line.split(b";")[0], 16)
            yield line
            yield from self._exactly(size)
            yield self._line()

    def _line(self) -> bytes:
        while (end := self._held.find(b"\r\n")) < 0:
            came = self._source.recv(_CHUNK_BYTES)
            if not came:
                raise ConnectionError("cut off")
            self._held += came
        line, self._held = self._held[: end + 2], self._held[end + 2 :]
        return line
