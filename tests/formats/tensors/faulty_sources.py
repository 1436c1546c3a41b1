"""Sources that fail on command: a peer over real HTTP, a local file, and a store."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from warpdata.errors import StorageError
from warpdata.storage import ByteRange, LocalStore
from warpdata.storage.wrapper import ReaderWrapper
from warpdata.tensors import TensorSet

__all__ = ["FILE_FAULTS", "PEER_FAULTS", "STORE_FAULTS", "FaultyFile", "FaultyPeer", "FaultyReader"]

PEER_FAULTS = ("none", "close", "cut", "error", "lie", "short", "long", "garbage", "absent", "gone", "chunk")
FILE_FAULTS = ("none", "flip", "truncate", "delete", "zero")
STORE_FAULTS = ("none", "lie", "error", "short")


def flip(data: bytes, at: int) -> bytes:
    """Return the data with one bit changed."""
    out = bytearray(data)
    if out:
        out[at % len(out)] ^= 1 << at % 8
    return bytes(out)


class FaultyPeer:
    """A peer that speaks HTTP by hand. `fault` applies to requests for bytes, and may change at any time."""

    def __init__(self, art: TensorSet, *, stall_s: float = 8.0) -> None:
        self.fault = "none"
        self.requests = 0
        self.stall_s = stall_s
        leaves = b"".join(art.replica.leaves or ())
        self.files = {"index": art.index_bytes, "leaves": leaves, "extents": b"[[0,%d]]" % art.index.total_size}
        self._data = bytes(art.view().materialize(verify=False).region)
        peer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    while peer.answer(self.rfile, self.wfile):
                        pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, rfile: Any, wfile: Any) -> bool:
        """Answer one request. False: close the connection."""
        line = rfile.readline().decode()
        headers = {}
        while (header := rfile.readline().decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        if not line:
            return False
        what = line.split()[1].rpartition("/")[2]
        if what != "bytes":
            wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(self.files[what]) + self.files[what])
            return True
        self.requests += 1
        first, last = map(int, headers["range"].removeprefix("bytes=").split("-"))
        return self._answer_bytes(self._data[first : last + 1], wfile)

    def _answer_bytes(self, data: bytes, wfile: Any) -> bool:
        head = b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\n\r\n"
        match self.fault:
            case "close":
                return False
            case "cut":
                wfile.write(head % len(data) + data[: len(data) // 2])
                return False
            case "error" | "absent" | "gone":
                status = {"error": b"500 No", "absent": b"404 Not Found", "gone": b"410 Gone"}[self.fault]
                wfile.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\n\r\noops")
            case "short":
                wfile.write(head % (len(data) - 1) + data[:-1])
            case "long":
                wfile.write(head % (len(data) + 9) + data + b"too long!")
            case "garbage":
                wfile.write(b"\x00\xff garbage\r\n\r\n" + data[:100])
                return False
            case "chunk":
                wfile.write(b"HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n" + data[:100])
                return False
            case "stall":
                wfile.write(head % len(data) + data[:10])
                wfile.flush()
                time.sleep(self.stall_s)
                return False
            case "lie":
                wfile.write(head % len(data) + flip(data, len(data) // 3))
            case _:
                wfile.write(head % len(data) + data)
        return True


class FaultyFile:
    """A copy of a canonical file that can be damaged and repaired while it is open."""

    def __init__(self, path: Path, good: bytes, data_bytes: int) -> None:
        self.path = path
        self._good = good
        self._data_bytes = data_bytes
        path.write_bytes(good)

    def set(self, fault: str, at: int) -> None:
        """Damage the file in place, so that open descriptors see it."""
        with contextlib.suppress(FileNotFoundError), self.path.open("r+b") as file:
            file.truncate(len(self._good))
            file.write(self._good)
            if fault == "truncate":
                file.truncate(at % self._data_bytes)
            elif fault in ("flip", "zero"):
                file.seek(at % self._data_bytes)
                found = self._good[at % self._data_bytes]
                file.write(bytes([found ^ 255 if fault == "flip" else (found + 1) % 256]))
        if fault == "delete":
            self.path.unlink(missing_ok=True)


class FaultyReader(ReaderWrapper):
    """A store whose reads fail on command."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.fault = "none"

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        data = super().read_range(key, span)
        if self.fault == "error":
            raise StorageError("the store failed")
        if self.fault == "short":
            return data[:-1]
        return memoryview(flip(bytes(data), span.start + 7)) if self.fault == "lie" else data
