"""A client that reads URLs over many kept connections, in a process of its own: `python -m benchmarks.service.load`.

It sends prepared requests from one thread and discards the bodies, so it takes little of the cores that it shares with
the server. Every answer must be 200 and as long as it says. The settings come as JSON on stdin.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from urllib.parse import urlsplit

__all__ = ["LoadResult", "run_load"]

_BUFFER = bytearray(1 << 20)
_VIEW = memoryview(_BUFFER)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a client has read, and the CPU time that it took itself."""

    requests: int
    seconds: float
    size_bytes: int
    client_cpu_s: float

    @property
    def seconds_per_request(self) -> float:
        return self.seconds / self.requests


def run_load(
    urls: Sequence[str], *, connections: int, seconds: float, headers: dict[str, str] | None = None
) -> LoadResult:
    """Read the URLs in turn, from a process of its own, for a number of seconds."""
    settings = {"urls": list(urls), "connections": connections, "seconds": seconds, "headers": headers or {}}
    command = [sys.executable, "-m", "benchmarks.service.load"]
    done = subprocess.run(command, input=json.dumps(settings), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return LoadResult(**json.loads(done.stdout))


class _Connection:
    """One connection: a request at a time, and how much of the answer is still to come."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = b""
        self._left = 0

    def receive(self) -> tuple[int, bool]:
        """Read what has arrived. Return its size, and whether the answer is complete."""
        size = self.socket.recv_into(_BUFFER)
        assert size, "the server closed a connection"
        if self._left:
            self._left -= size
        else:
            self._head += _VIEW[:size]
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return size, False
            assert b" 200 " in head[:16], self._head[:600]
            fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
            self._left = int(fields[b"content-length"]) - len(body)
            self._head = b""
        assert self._left >= 0, "an answer is longer than it says"
        return size, not self._left


def _load(urls: list[str], connections: int, seconds: float, headers: dict[str, str]) -> LoadResult:
    first = urlsplit(urls[0])
    assert first.hostname is not None
    assert first.port is not None
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    requests = cycle([_request(url, more) for url in urls])
    opened = {}
    poll = select.epoll()
    for _ in range(connections):
        one = _Connection((first.hostname, first.port))
        opened[one.socket.fileno()] = one
        poll.register(one.socket, select.EPOLLIN)
    began, cpu = time.perf_counter(), time.process_time()
    for one in opened.values():
        one.socket.sendall(next(requests))
    count, total, end = 0, 0, began + seconds
    while time.perf_counter() < end:
        for number, _ in poll.poll(1):
            one = opened[number]
            size, is_complete = one.receive()
            total += size
            if is_complete:
                count += 1
                one.socket.sendall(next(requests))
    return LoadResult(count, time.perf_counter() - began, total, time.process_time() - cpu)


def _request(url: str, headers: str) -> bytes:
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\n{headers}\r\n".encode()


if __name__ == "__main__":
    found = _load(**json.load(sys.stdin))
    json.dump({name: getattr(found, name) for name in LoadResult.__slots__}, sys.stdout)
