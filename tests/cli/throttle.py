"""A door to a server that lets bytes through slowly, for tests of what happens meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE = 16 * 1024


class Throttle:
    """Passes connections on to `host:port`. What comes back is slowed to `bytes_per_s` in all."""

    def __init__(self, host: str, port: int, bytes_per_s: int) -> None:
        self._target = host, port
        self._bytes_per_s = bytes_per_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self.passed_bytes = 0

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

    def wait_for(self, size_bytes: int, patience_s: float = 30) -> None:
        """Until so many bytes have come back."""
        until = time.monotonic() + patience_s
        while self.passed_bytes < size_bytes:
            assert time.monotonic() < until, f"only {self.passed_bytes} bytes came"
            time.sleep(0.01)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                theirs, _ = self._listener.accept()
                ours = socket.create_connection(self._target)
                with self._lock:
                    self._open += [theirs, ours]
                threading.Thread(target=self._pass, args=(theirs, ours, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(ours, theirs, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_slow: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_PIECE):
                if is_slow:
                    with self._lock:
                        time.sleep(len(data) / self._bytes_per_s)
                        self.passed_bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
