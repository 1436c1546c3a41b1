"""If these fail, people chase the wrong cause, wait for ever, or a write that landed is said not to have.

Against real servers, and against small ones that misbehave in one exact way.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from warpdata.errors import (
    AccessDeniedError,
    AuthenticationError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
    WriteUnknownError,
)
from warpdata.limits import SINGLE_PUT_BYTES
from warpdata.primitives.hashing import fingerprint_file
from warpdata.settings import S3Settings, Settings
from warpdata.storage import Writer, open_store
from warpdata.testing import S3Endpoint
from warpdata.testing.store_suite import LISTS, READS, WRITES

# Who are you?


@pytest.mark.s3
@pytest.mark.parametrize("wrong", ["secret", "key id"])
def test_wrong_credentials_and_missing_permissions_differ(s3_server: S3Endpoint, s3_url: str, wrong: str) -> None:
    if wrong == "secret":
        endpoint = replace(s3_server, secret_access_key="not-the-secret")
    else:
        endpoint = replace(s3_server, access_key_id="NOTTHEKEY")
    stranger = open_store(s3_url, endpoint.settings())
    for act in (READS["read"], READS["read_ranges"], READS["stream"], *LISTS.values(), *WRITES.values()):
        with pytest.raises(AuthenticationError) as caught:
            act(stranger, "k")
        assert caught.value.hint
        assert endpoint.secret_access_key not in str(caught.value)


@pytest.mark.s3
def test_a_reader_may_read_and_not_write(s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    open_store(s3_url, s3_server.settings()).create("k", b"for all to see")
    reader = open_store(s3_url, s3_server.as_reader().settings())
    assert reader.read("k").data == b"for all to see"
    assert [info.key for info in reader.list_objects("")] == ["k"]
    for act in WRITES.values():
        with pytest.raises(AccessDeniedError) as caught:
            act(reader, "new")
        assert caught.value.hint
    source = tmp_path / "source"
    for size in (10, SINGLE_PUT_BYTES + 1):
        source.write_bytes(b"x" * size)
        with pytest.raises(AccessDeniedError):
            reader.create_file("new", source, fingerprint_file(source))


@pytest.mark.s3
def test_a_missing_bucket_and_a_missing_object_differ(s3_server: S3Endpoint) -> None:
    lost = open_store("s3://no-such-bucket-anywhere/root", s3_server.settings())
    for act in (READS["read"], READS["read_range"], READS["stream"], *LISTS.values()):
        with pytest.raises(ObjectNotFoundError, match="no bucket") as caught:
            act(lost, "k")
        assert caught.value.hint


# Unreachable servers


def test_a_refused_connection_is_unavailable() -> None:
    store = _open(_closed_port(), max_retries=0)
    for act in (*READS.values(), *LISTS.values()):
        with pytest.raises(StoreUnavailableError) as caught:
            act(store, "k")
        assert caught.value.hint


def test_a_write_that_could_not_be_sent_is_not_unknown() -> None:
    store = _open(_closed_port(), max_retries=0)
    for act in WRITES.values():
        with pytest.raises(StoreUnavailableError):
            act(store, "k")


def test_an_unknown_host_is_unavailable() -> None:
    store = open_store("s3://bucket/root", _settings("http://no-such-host.invalid:9", max_retries=0))
    with pytest.raises(StoreUnavailableError):
        store.read("k")


@pytest.mark.parametrize("name", [*READS, *LISTS])
def test_a_read_from_a_server_that_hangs_ends_in_time(name: str) -> None:
    act = {**READS, **LISTS}[name]
    with _hanging_server() as port:
        begun = time.monotonic()
        with pytest.raises(StoreTimeoutError) as caught:
            act(_open(port, timeout_s=0.3, max_retries=1), "k")
        assert time.monotonic() - begun < 3
        assert caught.value.hint


@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_server_that_hangs_is_unknown_in_time(name: str) -> None:
    with _hanging_server() as port:
        begun = time.monotonic()
        with pytest.raises(WriteUnknownError, match="'k'"):
            WRITES[name](_open(port, timeout_s=0.3, max_retries=1), "k")
        assert time.monotonic() - begun < 3


# Did it land? Each server here reads the whole request and then plays a list of answers, one a connection.

Answer = Callable[[socket.socket], None]


def _reply(status: str, body: bytes = b"") -> Answer:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", 'ETag: "tag"', "Connection: close", "", "")
    head = "\r\n".join(lines).encode()
    return lambda connection: connection.sendall(head + body)


def _hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


OK = _reply("200 OK")
DENIED = _reply("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")
BUSY = _reply("503 Slow Down")
EXISTS = _reply("412 Precondition Failed")
NO_BUCKET = _reply("404 Not Found", b"<Error><Code>NoSuchBucket</Code></Error>")


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([_reset], id="reset"),
        pytest.param([_hang_up, _hang_up], id="closed"),
        pytest.param([BUSY, BUSY], id="busy"),
        pytest.param([_reply("500 Oops"), _reply("500 Oops")], id="broken"),
        pytest.param([_reply("400 Bad Request")], id="not understood"),
        pytest.param([_hang_up, DENIED], id="closed, then denied"),
        pytest.param([_hang_up, NO_BUCKET], id="closed, then no bucket"),
    ],
)
def test_a_create_that_may_have_landed_is_unknown(answers: Sequence[Answer]) -> None:
    with _playing_server(answers) as (port, heard):
        with pytest.raises(WriteUnknownError):
            _open(port, max_retries=1).create("k", b"data")
        assert all(request.startswith(b"PUT /bucket/root/k ") for request in heard)
        assert all(b"if-none-match: *" in request.lower() for request in heard), "each try is create-only"
        assert len(heard) == len(answers)


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        pytest.param([OK], True, id="made"),
        pytest.param([BUSY, OK], True, id="made at the second try"),
        pytest.param([EXISTS], False, id="already there"),
        pytest.param([_hang_up, EXISTS], False, id="there, perhaps by the first try"),
    ],
)
def test_an_answered_create_is_known(answers: Sequence[Answer], made: bool) -> None:
    with _playing_server(answers) as (port, _):
        assert _open(port, max_retries=1).create("k", b"data") is made


@pytest.mark.parametrize(("answer", "kind"), [(DENIED, AccessDeniedError), (NO_BUCKET, ObjectNotFoundError)])
def test_a_refusal_of_the_first_try_is_final(answer: Answer, kind: type[Exception]) -> None:
    with _playing_server([answer]) as (port, heard):
        with pytest.raises(kind):
            _open(port, max_retries=1).create("k", b"data")
        assert len(heard) == 1


@pytest.mark.parametrize("answers", [[BUSY, BUSY], [_hang_up, _hang_up], [_reset, _reset]])
def test_a_read_that_keeps_failing_is_unavailable(answers: Sequence[Answer]) -> None:
    with _playing_server(answers) as (port, _), pytest.raises(StoreUnavailableError):
        _open(port, max_retries=1).read("k")


def test_an_unexpected_reply_is_a_plain_storage_error() -> None:
    with _playing_server([_reply("418 I'm a teapot")]) as (port, _):
        with pytest.raises(StorageError, match="418") as caught:
            _open(port, max_retries=0).read("k")
        assert type(caught.value) is StorageError


def _settings(endpoint: str, *, timeout_s: float = 5.0, max_retries: int) -> Settings:
    s3 = S3Settings(endpoint_url=endpoint, access_key_id="key", secret_access_key="secret", allow_http=True)
    return Settings(
        store_url="s3://bucket/root",
        cache_dir=Path("unused"),
        timeout_s=timeout_s,
        max_retries=max_retries,
        retry_timeout_s=5.0,
        s3=s3,
    )


def _open(port: int, *, timeout_s: float = 5.0, max_retries: int) -> Writer:
    settings = _settings(f"http://127.0.0.1:{port}", timeout_s=timeout_s, max_retries=max_retries)
    return open_store(settings.store_url, settings)


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _hanging_server() -> Iterator[int]:
    """Accept connections and never reply."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@contextmanager
def _playing_server(answers: Sequence[Answer]) -> Iterator[tuple[int, list[bytes]]]:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)

        def play() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    heard.append(_hear(connection))
                    answer(connection)

        thread = threading.Thread(target=play)
        with ExitStack() as stack:
            thread.start()
            stack.callback(thread.join)
            yield listener.getsockname()[1], heard


def _hear(connection: socket.socket) -> bytes:
    """One request, body included, so that a server that then fails has surely got it."""
    connection.settimeout(5)
    request = b""
    while b"\r\n\r\n" not in request:
        request += connection.recv(65536)
    head, _, body = request.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head
