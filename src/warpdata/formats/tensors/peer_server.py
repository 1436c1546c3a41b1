"""An HTTP server that lets other hosts read an artifact. For networks where every host may read.

The server answers requests for one artifact, with bytes that are available locally, and never writes. Implements
"Peers" of docs/specs/tensors.md.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from warpdata.errors import WarpError
from warpdata.formats.tensors.peer import TIMEOUT_S
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.tensor_set import TensorSet
from warpdata.limits import MAX_PEER_RANGE_BYTES
from warpdata.primitives.ranges import RangeSet

__all__ = ["TensorServer", "serve_tensors"]

_SHUT_BOTH = 2  # socket.SHUT_RDWR
_RANGE = re.compile(r"bytes=(\d{1,16})-(\d{1,16})")


class TensorServer:
    """A running server, made by `serve_tensors`. It serves until `close()`."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TensorServer({self.url!r})"

    @property
    def url(self) -> str:
        """The URL for `SourcePolicy(peers=…)`."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop the server and close its connections. Safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            # The client may have closed the connection already.
            with contextlib.suppress(OSError):
                connection.shutdown(_SHUT_BOTH)
        self._thread.join()


def serve_tensors(art: TensorSet, *, host: str = "127.0.0.1", port: int = 0) -> TensorServer:
    """Serve an artifact, or the part of it that is locally available. Port 0 picks a free port."""
    replica = art.replica

    class Handler(_Handler):
        served = replica

    return TensorServer(_Server((host, port), Handler))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self.connections: set[Any] = set()
        super().__init__(*arguments)


class _Handler(BaseHTTPRequestHandler):
    served: Replica
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        prefix = f"/tensors/{self.served.index_multihash}/"
        what = self.path.removeprefix(prefix) if self.path.startswith(prefix) else ""
        if what == "index":
            self._answer(200, self.served.index_bytes)
        elif what == "leaves":
            self._answer(200, b"".join(self.served.leaves or ()))
        elif what == "extents":
            ranges = RangeSet((part.start, part.end) for part in self.served.extents.parts)
            self._answer(200, json.dumps(list(ranges)).encode())
        elif what == "bytes":
            self._answer_range()
        else:
            self._answer(404, b"")

    def log_message(self, *_: Any) -> None:
        """Log nothing: a library leaves logs to its caller."""

    def _answer_range(self) -> None:
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, end = (int(found[1]), int(found[2]) + 1) if found else (0, 0)
        if not 0 <= start < end <= self.served.index.total_size or end - start > MAX_PEER_RANGE_BYTES:
            self._answer(416, b"")
            return
        try:
            self._answer(206, self.served.read_bytes(start, end))
        except WarpError:
            self._answer(404, b"")

    def _answer(self, status: int, data: bytes | memoryview) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
