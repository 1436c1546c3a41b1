"""An HTTP server that lets other hosts read an artifact. For hosts that share a network, or a token.

The server answers requests for one artifact, with bytes that are available locally, and never writes. Connections,
waits and the memory of each connection have bounds. Implements "Peers" of docs/specs/tensors.md.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

from warpdata.errors import BadInputError, WarpError
from warpdata.formats.tensors.extents import check_coverage
from warpdata.formats.tensors.hashing import leaf_size, multihash, tree_root
from warpdata.formats.tensors.peer import TIMEOUT_S, check_token
from warpdata.formats.tensors.peer_connection import Connection, Request, refuse_connection
from warpdata.formats.tensors.plan import Contiguous
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.tensor_set import TensorSet
from warpdata.limits import MAX_PEER_RANGE_BYTES
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.ranges import RangeSet

__all__ = ["ServerLimits", "ServerStats", "TensorServer", "serve_tensors"]

_RANGE = re.compile(r"bytes=(\d{1,16})-(\d{1,16})")
_PIECE_BYTES = 256 * 1024
_BACKLOG = 128
_MAX_PORT = 65535
_ACCEPT_POLL_S = 0.2
_CLOSE_S = 0.5


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of a server. More connections than `max_connections` are answered with 503.

    A connection is closed after `idle_timeout_s` without a request, or without a byte that the client takes. A
    request must be complete within `header_timeout_s`.
    """

    max_connections: int = 128
    idle_timeout_s: float = TIMEOUT_S
    header_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.max_connections < 1 or not self.idle_timeout_s > 0 or not self.header_timeout_s > 0:
            raise BadInputError(f"{self!r} is not valid: every limit is positive")


@dataclass(frozen=True, slots=True)
class ServerStats:
    """Counts of a server: open connections, and requests, sent bytes and refused connections since it began."""

    connections: int
    requests: int
    bytes_sent: int
    refused: int


class TensorServer:
    """A running server, made by `serve_tensors`. It serves until `close()`."""

    def __init__(
        self, listener: socket.socket, spaces: Mapping[str, Replica], token: str | None, limits: ServerLimits
    ) -> None:
        """`spaces` are the ByteSpaces by their path below `/tensors/`."""
        self._listener = listener
        # Encoded once, so that clients which do not read share the memory.
        self._spaces = {path: (replica, _answers(replica)) for path, replica in spaces.items()}
        self._token = None if token is None else token.encode()
        self._limits = limits
        self._lock = threading.Lock()
        self._has_ended = threading.Condition(self._lock)
        self._connections: set[socket.socket] = set()
        self._requests = self._bytes_sent = self._refused = 0
        self._is_closing = threading.Event()
        self._listing = json.dumps([_describe(path, replica) for path, replica in spaces.items()]).encode()
        host, port = listener.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        """The URL for `SourcePolicy(peers=…)`."""
        self._thread = _start_thread(self._accept, "warp-tensor-server")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"TensorServer({self.url!r}, {self.stats()})"

    def stats(self) -> ServerStats:
        with self._lock:
            return ServerStats(len(self._connections), self._requests, self._bytes_sent, self._refused)

    def close(self) -> None:
        """Stop the server and close its connections. Safe to call twice."""
        self._is_closing.set()
        with contextlib.suppress(OSError):  # wakes `accept`, where the system supports it
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            waiting = list(self._connections)
        for connection in waiting:
            with contextlib.suppress(OSError):  # the client may have closed the connection already
                connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._has_ended.wait_for(lambda: not self._connections, _CLOSE_S)

    def _accept(self) -> None:
        self._listener.settimeout(_ACCEPT_POLL_S)
        while not self._is_closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # too many open files, or the client has left: others may still be served
                self._is_closing.wait(_ACCEPT_POLL_S)
                continue
            with self._lock:
                is_full = len(self._connections) >= self._limits.max_connections
                self._refused += is_full
            if is_full:
                refuse_connection(connection)
            else:
                self._start(connection)

    def _start(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            _start_thread(lambda: self._serve(connection), "warp-tensor-client")
        except RuntimeError:  # the system has no more threads
            with self._lock:
                self._connections.remove(connection)
                self._refused += 1
            refuse_connection(connection)

    def _serve(self, connection: socket.socket) -> None:
        limits = self._limits
        client = Connection(connection, idle_s=limits.idle_timeout_s, header_s=limits.header_timeout_s)
        try:
            while not self._is_closing.is_set():
                request = client.read_request()
                if request is None or not self._answer(client, request):
                    break
        except OSError:
            pass  # the client has left, or does not read
        finally:
            connection.close()
            with self._lock:
                self._connections.discard(connection)
                self._has_ended.notify_all()

    def _answer(self, client: Connection, request: Request) -> bool:
        """Answer one request. False: close the connection."""
        with self._lock:
            self._requests += 1
        keeps_open = request.keeps_open
        if not self._is_authorized(request):
            client.reply(HTTPStatus.UNAUTHORIZED, keeps_open=keeps_open, headers="WWW-Authenticate: Bearer\r\n")
        elif request.method != "GET":
            client.reply(HTTPStatus.METHOD_NOT_ALLOWED, keeps_open=keeps_open, headers="Allow: GET\r\n")
        else:
            keeps_open = self._answer_path(client, request)
        return keeps_open

    def _is_authorized(self, request: Request) -> bool:
        if self._token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Compare in constant time, so that the time of an answer says nothing of the token.
        return hmac.compare_digest(given.strip().encode("latin-1"), self._token) and scheme.lower() == "bearer"

    def _answer_path(self, client: Connection, request: Request) -> bool:
        space, _, what = request.path.removeprefix("/tensors/").rpartition("/")
        found = self._spaces.get(space) if request.path.startswith("/tensors/") else None
        if found is not None and what == "bytes":
            return self._answer_range(client, request, found[0])
        data = found[1].get(what) if found is not None else None
        if request.path == "/tensors":
            data = self._listing
        status = HTTPStatus.NOT_FOUND if data is None else HTTPStatus.OK
        client.reply_pieces(status, _cut(data or b""), len(data or b""), keeps_open=request.keeps_open)
        return request.keeps_open

    def _answer_range(self, client: Connection, request: Request, replica: Replica) -> bool:
        found = _RANGE.fullmatch(request.headers.get("range", ""))
        start, end = (int(found[1]), int(found[2]) + 1) if found else (0, 0)
        if not 0 <= start < end <= replica.index.total_size or end - start > MAX_PEER_RANGE_BYTES:
            client.reply(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, keeps_open=request.keeps_open)
            return request.keeps_open
        pieces = _read_pieces(replica, start, end)
        try:
            check_coverage([Contiguous("", 0, start, end - start)], replica.extents, replica.space)
            first = next(pieces)
        except WarpError:
            client.reply(HTTPStatus.NOT_FOUND, keeps_open=request.keeps_open)
            return request.keeps_open
        headers = f"Content-Range: bytes {start}-{end - 1}/{replica.index.total_size}\r\n"
        status = HTTPStatus.PARTIAL_CONTENT
        try:
            sent = self._counted(first, pieces)
            client.reply_pieces(status, sent, end - start, keeps_open=request.keeps_open, headers=headers)
        except WarpError:
            return False  # the reply stays short, so the client knows that it failed
        return request.keeps_open

    def _counted(self, first: memoryview, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        yield first
        size = len(first)
        del first
        for piece in pieces:
            yield piece
            size += len(piece)
            del piece
        with self._lock:
            self._bytes_sent += size


@check_arguments
def serve_tensors(
    art: TensorSet,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    views: Sequence[TensorSet] = (),
    limits: ServerLimits | None = None,
) -> TensorServer:
    """Serve an artifact, or the part of it that is locally available. Port 0 picks a free port.

    With a `token`, clients must send it. `host` is a name, an IPv4 or an IPv6 address. `views` are view
    files of this artifact, which `TensorSet.save_view` writes. Close the server before the artifacts.
    """
    checked = None if token is None else check_token(token)
    spaces = {art.index_multihash: art.replica}
    for kept in views:
        record = kept.replica.view
        if record is None or record.artifact_index != art.index_multihash:
            raise BadInputError(f"{kept!r} is not a view file of {art.index_multihash}")
        spaces[f"{art.index_multihash}/views/{record.space_id}"] = kept.replica
    return TensorServer(_listen(host, port), spaces, checked, limits or ServerLimits())


def _answers(replica: Replica) -> dict[str, bytes]:
    """Return the answers about a ByteSpace, by the last part of their path."""
    ranges = RangeSet((part.start, part.end) for part in replica.extents.parts)
    return {
        "index": replica.index_bytes,
        "leaves": b"".join(replica.leaves or ()),
        "extents": json.dumps(list(ranges), default=int).encode(),
    }


def _describe(path: str, replica: Replica) -> dict[str, object]:
    leaves = replica.leaves
    return {
        "path": path,
        "space_kind": replica.space.kind,
        "space_id": replica.space.id,
        "size_bytes": replica.index.total_size,
        "data_multihash": None if leaves is None else multihash(tree_root(leaves)),
    }


def _listen(host: str, port: int) -> socket.socket:
    if not isinstance(port, int) or not 0 <= port <= _MAX_PORT:
        raise BadInputError(f"a server cannot listen on port {port!r}; expected 0 to {_MAX_PORT}")
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except (OSError, TypeError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInputError(
            f"a server cannot listen on {host!r}, port {port}: {reason}",
            hint="Choose an address of this machine and a free port, or port 0.",
        ) from error


def _read_pieces(replica: Replica, start: int, end: int) -> Iterator[memoryview]:
    """Yield a range piece by piece. A verified read needs whole leaves, so its pieces end where leaves end."""
    size = max(_PIECE_BYTES, leaf_size(replica.index.total_size)) if replica.verifies else _PIECE_BYTES
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield replica.read_bytes(start, stop)
        start = stop


def _cut(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES))


def _start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
