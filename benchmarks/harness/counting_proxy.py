"""A reverse proxy on loopback that counts: which requests a client really sends, and what they bring.

Requests are passed on with their `Host` header as it came, so that signatures made for the proxy's
address still hold. Bodies are held in memory; it is for counting, and for comparing clients with one another
over a link that answers after `latency_s`, not for absolute times.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

__all__ = ["CountingProxy", "Exchange"]

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request as the server saw it, and the size of the body it was answered with."""

    method: str
    path: str
    status: int
    body_bytes: int


class CountingProxy:
    """Context manager; `endpoint_url` is where to send requests meant for `upstream_url`.

    Every answer comes `latency_s` later than it would.
    """

    def __init__(self, upstream_url: str, *, latency_s: float = 0.0) -> None:
        self._seen: list[Exchange] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(upstream_url, self._seen, latency_s))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="counting-proxy", daemon=True)
        self.endpoint_url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self) -> list[Exchange]:
        """What was seen since the last call."""
        taken = list(self._seen)
        self._seen.clear()
        return taken

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler_for(upstream_url: str, seen: list[Exchange], latency_s: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True  # or small answers wait for 40 ms, for no reason of the client's

        def setup(self) -> None:
            super().setup()
            self.upstream = HTTPConnection(urlsplit(upstream_url).netloc, timeout=30)

        def finish(self) -> None:
            self.upstream.close()
            super().finish()

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if latency_s:
                time.sleep(latency_s)
            self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                self.upstream.putheader(name, value)
            self.upstream.endheaders(body or None)
            reply = self.upstream.getresponse()
            data = reply.read()
            seen.append(Exchange(self.command, self.path, reply.status, len(data)))
            self.send_response_only(reply.status, reply.reason)
            for name, value in reply.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    return Handler
