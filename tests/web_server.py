"""A plain web server over a directory, with injectable faults and a log of requests."""

from __future__ import annotations

import mimetypes
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

SLOW_PIECE_BYTES = 300_000
DAMAGED_FROM_BYTES = 100_000


@contextmanager
def serving(root: Path) -> Iterator[WebServer]:
    """Serve `root` under `/lake` until the block ends."""
    with WebServer(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class WebServer(ThreadingHTTPServer):
    """Serves a directory, ranges and tags included. `fault` makes it misbehave."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.fault = ""
        self.required_query = ""
        """Requests without this query are refused, as with a signed URL."""
        self.requests: list[str] = []
        self.fetched: list[tuple[str, str | None]] = []
        """The path and the range of each request."""
        self.sent_bytes = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/lake"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news here."""


class _Handler(BaseHTTPRequestHandler):
    server: WebServer

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""

    def _answer(self) -> None:
        self.server.requests.append(self.command)
        self.server.fetched.append((self.path, self.headers.get("Range")))
        location, _, query = self.path.partition("?")
        if query != self.server.required_query:
            return self._send(403, b"", {})
        path = self.server.root / unquote(location.removeprefix("/lake/"))
        fault = self.server.fault
        if fault == "down" or (fault == "down once" and len(self.server.requests) == 1):
            return self._send(503, b"", {})
        if not path.is_file():
            return self._send(404, b"", {})
        data = path.read_bytes()
        if fault == "damaged" and len(data) > DAMAGED_FROM_BYTES:
            data = data[:-2000] + bytes([data[-2000] ^ 1]) + data[-1999:]
        tag = f'"{path.stat().st_mtime_ns:x}"'
        headers = {} if fault == "no tags" else {"ETag": tag}
        # Browsers run nothing that is not said to be a script.
        headers["Content-Type"] = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        if self.headers.get("If-None-Match") == tag:
            return self._send(304, b"", headers)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if wanted is None or fault == "no ranges":
            return self._send(200, data, headers)
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        if start >= len(data):
            return self._send(416, b"", headers)
        part = data[start : end - 1] if fault == "short" else data[start:end]
        return self._send(206, part, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.server.fault == "cut":
            body = body[: len(body) // 2]
        for start in range(0, len(body), SLOW_PIECE_BYTES):
            time.sleep(0.1 if self.server.fault == "slow" else 0)
            self.wfile.write(body[start : start + SLOW_PIECE_BYTES])
            self.server.sent_bytes += len(body[start : start + SLOW_PIECE_BYTES])
