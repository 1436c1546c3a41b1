"""If this fails, clients of a tensor server exhaust its memory, or read without the token."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from warpdata.errors import AuthenticationError, BadInputError, ObjectNotFoundError
from warpdata.formats.tensors.peer import PeerAccess, PeerSource
from warpdata.tensors import (
    ServerLimits,
    SourcePolicy,
    TensorServer,
    TensorSet,
    open_tensors,
    serve_tensors,
    write_tensors,
)

ARRAYS: dict[str, Any] = {"a": np.arange(400_000, dtype=np.float32), "b": np.arange(7)}


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.fixture
def art(tmp_path: Path) -> Iterator[TensorSet]:
    with write_tensors(tmp_path / "t", ARRAYS) as made:
        yield made


def connect(server: TensorServer) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=20)


def exchange(server: TensorServer, request: bytes) -> bytes:
    """Send bytes and return everything up to the end of the connection."""
    with connect(server) as client:
        client.sendall(request)
        found = b""
        with contextlib.suppress(ConnectionError):
            while more := client.recv(65536):
                found += more
    return found


def status_of(server: TensorServer, path: str, headers: dict[str, str]) -> int:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "::", "localhost"])
def test_ipv6_addresses_work_in_urls(art: TensorSet, host: str) -> None:
    with serve_tensors(art, host=host) as server:
        if host != "localhost":
            assert f"[{host}]" in server.url
        port = urlsplit(server.url).port
        urls = [server.url, f"http://[::1]:{port}", f"http://[::1]:{port}/"] if host == "::" else [server.url]
        for url in urls:
            with open_tensors(art.artifact_id, sources=SourcePolicy(peers=[url])) as far:
                np.testing.assert_array_equal(far["a"].numpy(), ARRAYS["a"])


@pytest.mark.parametrize("bad", ["http://[::1", "http://::1:80:90", "http://[zz]:1", "http://h:99999", "//h", ""])
def test_a_malformed_url_is_refused(bad: str) -> None:
    with pytest.raises(BadInputError):
        PeerSource(bad, "b" * 56)


def test_a_token_is_required_and_sent(art: TensorSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WARP_TENSORS_TOKEN", raising=False)
    with serve_tensors(art, token="s3cret~") as server:
        paths = [f"/tensors/{art.index_multihash}/{what}" for what in ("index", "leaves", "extents", "bytes")]
        for path in [*paths, "/", "/etc/passwd"]:
            for given in (None, "", "Bearer", "Bearer wrong", "Bearer s3cret", "s3cret~", "Basic s3cret~", "Bearer é"):
                headers = {"Range": "bytes=0-3"} if given is None else {"Range": "bytes=0-3", "Authorization": given}
                assert status_of(server, path, headers) == 401, (path, given)
            assert status_of(server, path, {"Authorization": "Bearer s3cret~"}) in (200, 404, 416)
        with pytest.raises(AuthenticationError, match="token") as caught:
            PeerSource(server.url, art.index_multihash).index_bytes()
        assert "WARP_TENSORS_TOKEN" in str(caught.value.hint)
        with pytest.raises(ObjectNotFoundError, match="token"):
            open_tensors(art.artifact_id, sources=SourcePolicy(peers=[server.url], token="wrong"))
        policy = SourcePolicy(peers=[server.url], token="s3cret~")
        assert "s3cret" not in repr(policy)
        with open_tensors(art.artifact_id, sources=policy) as far:
            np.testing.assert_array_equal(far["b"].numpy(), ARRAYS["b"])
        monkeypatch.setenv("WARP_TENSORS_TOKEN", "s3cret~")
        with open_tensors(art.artifact_id, sources=SourcePolicy(peers=[server.url])) as far:
            np.testing.assert_array_equal(far["b"].numpy(), ARRAYS["b"])
    for bad in ("", "two words", "line\nbreak", "é"):
        with pytest.raises(BadInputError) as refused:
            serve_tensors(art, token=bad)
        assert not bad or bad not in str(refused.value)
        if bad:
            with pytest.raises(BadInputError):
                PeerSource("http://x", "b" * 56, access=PeerAccess(bad))


def test_more_connections_than_allowed_are_refused(art: TensorSet) -> None:
    with serve_tensors(art, limits=ServerLimits(max_connections=3)) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(3)]
        deadline = time.monotonic() + 20
        while server.stats().connections < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert exchange(server, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 503 ")
        assert server.stats().refused == 1
        idle[0].close()
        while server.stats().connections == 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        with open_tensors(art.artifact_id, sources=SourcePolicy(peers=[server.url])) as far:
            np.testing.assert_array_equal(far["b"].numpy(), ARRAYS["b"])


def test_silent_and_slow_clients_are_disconnected(art: TensorSet) -> None:
    limits = ServerLimits(idle_timeout_s=1.5, header_timeout_s=0.3)
    with serve_tensors(art, limits=limits) as server:
        assert exchange(server, b"") == b"", "a client without a request is disconnected"
        assert exchange(server, b"GET /tensors").startswith(b"HTTP/1.1 408 ")
        with connect(server) as client:
            # One byte at a time never ends, if the time-out is about single bytes.
            client.settimeout(0.05)
            began, found = time.monotonic(), b""
            while not found and time.monotonic() - began < 20:
                with contextlib.suppress(TimeoutError, ConnectionError):
                    client.sendall(b"x")
                    found = client.recv(100)
            assert found.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, 431),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: 1\r\nA: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nConnection: close\r\n\r\n", 405),
        (b"GET / HTTP/1.0\r\n\r\n", 404),
        (b"\r\n\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"GET /tensors/\xff HTTP/1.1\r\n\r\n", 400),
        (bytes(range(256)) * 80, 431),
    ],
)
def test_malformed_requests_get_a_status(art: TensorSet, request_bytes: bytes, status: int) -> None:
    with serve_tensors(art, limits=ServerLimits(header_timeout_s=1)) as server:
        assert exchange(server, request_bytes).startswith(b"HTTP/1.1 %d " % status)
        assert exchange(server, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 404 ")


def test_a_client_that_leaves_is_not_an_error(
    art: TensorSet, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    with serve_tensors(art) as server:
        for _ in range(20):
            with connect(server) as client:
                request = f"GET /tensors/{art.index_multihash}/bytes HTTP/1.1\r\nRange: bytes=0-1599999\r\n\r\n"
                client.sendall(request.encode())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.recv(10)
        with open_tensors(art.artifact_id, sources=SourcePolicy(peers=[server.url])) as far:
            np.testing.assert_array_equal(far["a"].numpy(), ARRAYS["a"])
        assert server.stats().bytes_sent >= ARRAYS["a"].nbytes
    out = capfd.readouterr()
    assert (out.out, out.err, failures) == ("", "", [])


def test_an_address_that_cannot_be_used_is_bad_input(art: TensorSet) -> None:
    with serve_tensors(art) as server:
        taken = urlsplit(server.url).port
        for host, port in (("127.0.0.1", taken), ("no.such.host.invalid", 0), ("203.0.113.9", 0), ("127.0.0.1", 99999)):
            with pytest.raises(BadInputError, match="listen"):
                serve_tensors(art, host=host, port=int(port or 0))
    for bad in ({"max_connections": 0}, {"idle_timeout_s": 0}, {"header_timeout_s": -1}):
        with pytest.raises(BadInputError):
            ServerLimits(**bad)
