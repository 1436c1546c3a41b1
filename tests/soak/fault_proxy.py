"""A reverse proxy that damages, cuts, repeats, refuses and loses exchanges with a real S3 server.

Faults are chosen at random by `rate`. A repeated request reaches the server twice, and the client sees the second
reply: this is how a client library that retries turns a successful create into "exists already".
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.harness.proxy import HttpReader, S3Proxy

__all__ = ["FAULTS", "READ_FAULTS", "FaultProxy"]

FAULTS = ("refuse", "error", "lose request", "lose reply", "repeat", "cut head", "cut body", "stall")
"""Faults of a network, or of a server that returns only what it stored."""
READ_FAULTS = (*FAULTS, "flip", "zero", "truncate")
"""The same, and faults of a server that returns other bytes than it was given."""

_STALL_S = 0.4
_REFUSAL = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_ERROR = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class FaultProxy(S3Proxy):
    """Injects one of `faults` into each exchange with probability `rate`."""

    def __init__(self, upstream_url: str, faults: Sequence[str] = FAULTS, *, rate: float = 0.0, seed: int = 0) -> None:
        super().__init__(upstream_url)
        self.faults = tuple(faults)
        self.rate = rate
        self.injected: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._upstream) as upstream:
            requests, responses = HttpReader(client), HttpReader(upstream)
            while (request := requests.head()) is not None:
                whole = request + b"".join(requests.body(request))
                fault = self._choose(request)
                if fault in ("refuse", "error"):
                    client.sendall(_REFUSAL if fault == "refuse" else _ERROR)
                    return
                if fault == "lose request":
                    return
                if fault == "stall":
                    time.sleep(_STALL_S)
                for _ in range(2 if fault == "repeat" else 1):
                    upstream.sendall(whole)
                    reply = _read_reply(request, responses)
                if reply is None or fault == "lose reply":
                    return
                head, body = _damage(*reply, fault, self._chance)
                client.sendall(head + body)
                if fault in ("cut head", "cut body", "truncate"):
                    return

    def _choose(self, request: bytes) -> str:
        with self._lock:
            if self._chance.random() >= self.rate:
                return ""
            fault = self._chance.choice(self.faults)
            if fault in ("flip", "zero", "truncate") and not request.startswith(b"GET"):
                return ""
            self.injected[fault] += 1
            return fault


def _read_reply(request: bytes, responses: HttpReader) -> tuple[bytes, bytes] | None:
    head = responses.head()
    while head is not None and head[9:12] == b"100":
        head = responses.head()
    if head is None:
        return None
    has_body = not request.startswith(b"HEAD") and head[9:12] not in (b"204", b"304")
    return head, b"".join(responses.body(head)) if has_body else b""


def _damage(head: bytes, body: bytes, fault: str, chance: random.Random) -> tuple[bytes, bytes]:
    if fault == "cut head":
        return head[: len(head) // 2], b""
    if fault == "cut body":
        return head, body[: chance.randrange(len(body) + 1)]
    is_data = head[9:12] in (b"200", b"206") and len(body) > 0
    if fault == "flip" and is_data:
        at = chance.randrange(len(body))
        return head, body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)]) + body[at + 1 :]
    if fault == "zero" and is_data:
        return head, bytes(len(body))
    if fault == "truncate" and is_data:
        return head, body[: len(body) // 2]
    return head, body
