"""Reverse proxies on loopback that add the latency and the bandwidth of a real object store.

A server without latency rewards the wrong design, such as one request per sample. A proxy forwards a request
after `delay_s` and paces the bodies of a connection to `bytes_per_s`, in both directions. It forwards bytes
unchanged, headers included, so that signatures made for the proxy's address stay valid. `S3Proxy` also counts requests
and bytes, and may answer SlowDown to requests beyond a number in flight.
`CloudProxy` runs in several processes that share a port, so that it is not the limit itself.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

__all__ = ["CloudProxy", "Exchange", "HttpReader", "S3Proxy"]

_CHUNK_BYTES = 128 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_BODILESS = {204, 304}
_CONNECTIONS_PER_PROCESS = 16
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


@dataclass(slots=True)
class Exchange:
    """A request and the number of body bytes sent in response; `body_bytes` grows during the transfer."""

    method: str
    path: str
    status: int
    body_bytes: int = 0


class S3Proxy:
    """Context manager; clients send requests for `upstream_url` to `endpoint_url`."""

    def __init__(
        self,
        upstream_url: str,
        *,
        delay_s: float = 0.0,
        bytes_per_s: float = math.inf,
        max_in_flight: int | None = None,
        shared_port: int = 0,
    ) -> None:
        """Listen on a free port, or on `shared_port`, which other processes may share.

        With `max_in_flight`, requests beyond that number are refused.
        """
        self.max_in_flight = max_in_flight
        self._in_flight = 0
        self._lock = threading.Lock()
        self.delay_s = delay_s
        self.bytes_per_s = bytes_per_s
        upstream = urlsplit(upstream_url)
        self._upstream = (upstream.hostname or "127.0.0.1", upstream.port or 80)
        self._exchanges: list[Exchange] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", shared_port), backlog=256, reuse_port=bool(shared_port))
        self._thread = threading.Thread(target=self._accept, name="s3-proxy", daemon=True)
        self.endpoint_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def take(self) -> list[Exchange]:
        """Return the exchanges since the last call. An unfinished response counts the bytes sent so far."""
        taken = self._exchanges[:]
        del self._exchanges[: len(taken)]
        return [Exchange(each.method, each.path, each.status, each.body_bytes) for each in taken]

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
        """Serve one connection until either side closes it."""
        self._open.add(client)
        with client, contextlib.suppress(OSError), socket.create_connection(self._upstream) as upstream:
            for side in (client, upstream):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            requests, responses = HttpReader(client), HttpReader(upstream)
            while (request := requests.head()) is not None:
                with self._counted() as is_refused:
                    time.sleep(self.delay_s)
                    if is_refused:
                        self._refuse(request, requests, client)
                        continue
                    upstream.sendall(request)
                    for piece in self._paced(requests.body(request)):
                        upstream.sendall(piece)
                    if not self._respond(request, responses, client):
                        break
        self._open.discard(client)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[bool]:
        """Count a request in flight. Yield True if it is one too many."""
        with self._lock:
            self._in_flight += 1
            is_refused = self.max_in_flight is not None and self._in_flight > self.max_in_flight
        try:
            yield is_refused
        finally:
            with self._lock:
                self._in_flight -= 1

    def _refuse(self, request: bytes, requests: HttpReader, client: socket.socket) -> None:
        for _ in requests.body(request):
            pass
        method, path, _ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        self._exchanges.append(Exchange(method, path, 503))
        client.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n\r\n%b" % (len(_SLOW_DOWN), _SLOW_DOWN))

    def _paced(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces of one body, no faster than the bandwidth allows."""
        start, sent_bytes = time.perf_counter(), 0
        for piece in pieces:
            ahead_s = sent_bytes / self.bytes_per_s - (time.perf_counter() - start)
            if ahead_s > 0:
                time.sleep(ahead_s)
            sent_bytes += len(piece)
            yield piece

    def _respond(self, request: bytes, responses: HttpReader, client: socket.socket) -> bool:
        method, path, _ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        head = responses.head()
        while head is not None and head[9:12] == b"100":
            client.sendall(head)
            head = responses.head()
        if head is None:
            return False
        exchange = Exchange(method, path, int(head[9:12]))
        self._exchanges.append(exchange)
        client.sendall(head)
        if method != "HEAD" and exchange.status not in _BODILESS:
            for piece in self._paced(responses.body(head)):
                exchange.body_bytes += len(piece)  # before sending: the client may look as soon as it has the body
                client.sendall(piece)
        return True


class CloudProxy:
    """Context manager: as many proxy processes as `connections` need, on one port."""

    def __init__(self, upstream_url: str, *, delay_s: float, bytes_per_s: float, connections: int = 128) -> None:
        self._upstream_url = upstream_url
        self._pace = (delay_s, bytes_per_s)
        self._count = -(-connections // _CONNECTIONS_PER_PROCESS)
        self._processes: list[subprocess.Popen[bytes]] = []
        # Reserves the port. It does not listen, so the kernel gives it no connection.
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self._port: int = self._reserved.getsockname()[1]
        self.endpoint_url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        arguments = [self._upstream_url, str(self._port), *map(str, self._pace)]
        command = [sys.executable, "-m", "benchmarks.harness.proxy", *arguments]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(self._count)
        ]
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("a proxy process did not start")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        self._reserved.close()


def _serve_shared(upstream_url: str, port: int, delay_s: float, bytes_per_s: float) -> None:
    """Run one process of a `CloudProxy` until its standard input closes."""
    with S3Proxy(upstream_url, delay_s=delay_s, bytes_per_s=bytes_per_s, shared_port=port):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()


class HttpReader:
    """Splits the bytes of a socket into heads and bodies, unchanged."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._buffer = b""

    def head(self) -> bytes | None:
        """Return the bytes up to and including the empty line, or None at the end of the connection."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            received = self._source.recv(_CHUNK_BYTES)
            if not received or len(self._buffer) > _MAX_HEAD_BYTES:
                return None
            self._buffer += received
        head, self._buffer = self._buffer[: end + 4], self._buffer[end + 4 :]
        return head

    def body(self, head: bytes) -> Iterator[bytes]:
        if _CHUNKED.search(head):
            yield from self._chunks()
            return
        length = _LENGTH.search(head)
        yield from self._exactly(int(length[1]) if length else 0)

    def _exactly(self, remaining_bytes: int) -> Iterator[bytes]:
        while remaining_bytes > 0:
            piece, self._buffer = self._buffer[:remaining_bytes], self._buffer[remaining_bytes:]
            piece = piece or self._source.recv(min(remaining_bytes, _CHUNK_BYTES))
            if not piece:
                raise ConnectionError("the connection closed in the middle of a body")
            remaining_bytes -= len(piece)
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
        while (end := self._buffer.find(b"\r\n")) < 0:
            received = self._source.recv(_CHUNK_BYTES)
            if not received:
                raise ConnectionError("the connection closed in the middle of a line")
            self._buffer += received
        line, self._buffer = self._buffer[: end + 2], self._buffer[end + 2 :]
        return line


if __name__ == "__main__":
    _serve_shared(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
