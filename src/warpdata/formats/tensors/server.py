"""Serving an artifact to other hosts: the other end of `peers`. For networks where everybody may read.

Only what is asked for by the hash of its index is answered, only bytes that are here, and nothing is ever
written. Implements "Peers" of docs/specs/tensors.md.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from warpdata.errors import WarpError
from warpdata.formats.tensors.coverage import check_coverage
from warpdata.formats.tensors.extents import merge_ranges
from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.plan import Contiguous, ViewPlan
from warpdata.formats.tensors.reads import ReadCost
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.targets import HostTarget
from warpdata.formats.tensors.tensor_set import Tensors
from warpdata.limits import MAX_PEER_RANGE_BYTES, PEER_TIMEOUT_S

__all__ = ["TensorServer", "serve_tensors"]

_BOTH_WAYS = 2
_RANGE = re.compile(r"bytes=(\d{1,16})-(\d{1,16})")


class TensorServer:
    """Serves until `close()`. Made by `serve_tensors`."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """What a peer is told."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop answering. Safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            # One that its other end has just closed can not be shut any more.
            with contextlib.suppress(OSError):
                connection.shutdown(_BOTH_WAYS)
        self._thread.join()


def serve_tensors(art: Tensors, *, host: str = "127.0.0.1", port: int = 0) -> TensorServer:
    """Let other hosts read an artifact, or the part of it that is here. Port 0 picks one that is free."""
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
    timeout = PEER_TIMEOUT_S
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
            ranges = merge_ranges((part.start, part.end) for part in self.served.extents.parts)
            self._answer(200, json.dumps(ranges).encode())
        elif what == "bytes":
            self._answer_range()
        else:
            self._answer(404, b"")

    def log_message(self, *_: Any) -> None:
        """Nothing: whoever serves decides what to write where."""

    def _answer_range(self) -> None:
        found = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, end = (int(found[1]), int(found[2]) + 1) if found else (0, 0)
        if not 0 <= start < end <= self.served.index.total_size or end - start > MAX_PEER_RANGE_BYTES:
            self._answer(416, b"")
            return
        try:
            self._answer(206, _read(self.served, start, end))
        except WarpError:
            self._answer(404, b"")

    def _answer(self, status: int, data: bytes | bytearray) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _read(replica: Replica, start: int, end: int) -> bytearray:
    run = Contiguous("", 0, start, end - start)
    check_coverage((run,), replica.extents, replica.index_multihash)
    out = bytearray(end - start)
    plan = ViewPlan(TensorIndex(()), (), (run,), (), end - start)
    replica.engine.fill(replica.work(plan, ReadCost()), HostTarget([(0, memoryview(out))]))
    return out
