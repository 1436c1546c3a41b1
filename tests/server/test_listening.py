"""If this fails, a client that never ends its headers takes the memory of the service."""

from __future__ import annotations

import socket

import pytest

from tests.server.s3.conftest import listening
from warpdata.limits import MAX_HTTP_HEAD_BYTES
from warpdata.server.listening import BoundedProtocol


async def answer(scope: dict[str, object], receive: object, send: object) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]


def ask(address: str, request: bytes) -> bytes:
    """Send a request until the server closes the connection, and return what it answered."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        try:
            connection.sendall(request)
            return connection.recv(65536)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("part", [b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"GET /"])
def test_a_head_without_an_end_closes_the_connection(part: bytes) -> None:
    with listening(answer, http=BoundedProtocol) as address:
        assert ask(address, part + b"a" * 40 * MAX_HTTP_HEAD_BYTES) == b""
        assert b"200" in ask(address, b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 60_000 + b"\r\n\r\n")


def test_each_request_of_a_connection_has_a_bound_of_its_own() -> None:
    large = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 60_000 + b"\r\n\r\n"
    with listening(answer, http=BoundedProtocol) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            for _ in range(4):
                connection.sendall(large)
                assert b"200" in connection.recv(65536)
