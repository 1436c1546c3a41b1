"""A TCP proxy that limits the bandwidth, for tests of interrupted downloads."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 16 * 1024


class Throttle:
    """Forward connections to `host:port`. All responses together are limited to `bytes_per_s`."""

    def __init__(self, host: str, port: int, bytes_per_s: int) -> None:
        self._target = host, port
        self._bytes_per_s = bytes_per_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.forwarded_bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            for each in (self._listener, *self._open):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def wait_for(self, size_bytes: int, timeout_s: float = 30) -> None:
        """Wait until the responses have this size."""
        until = time.monotonic() + timeout_s
        while self.forwarded_bytes < size_bytes:
            assert time.monotonic() < until, f"only {self.forwarded_bytes} bytes received"
            time.sleep(0.01)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open += [client, server]
                threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_slow: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if is_slow:
                    with self._lock:
                        time.sleep(len(data) / self._bytes_per_s)
                        self.forwarded_bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
