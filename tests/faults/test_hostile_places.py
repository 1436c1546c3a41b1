"""If this fails, a read-only, full, forbidden, missing or silent store hangs its user or has an unclear error."""

from __future__ import annotations

import errno
import functools
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import rows
from warpdata.errors import (
    AccessDeniedError,
    AuthenticationError,
    DeniedError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from warpdata.settings import S3Settings, load_settings
from warpdata.testing import S3Endpoint


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files with byte ranges, which the standard handler does not."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        span = self.headers.get("Range")
        start, end = 0, len(data)
        if span:
            first, _, last = span.removeprefix("bytes=").partition("-")
            start, end = int(first), int(last) + 1 if last else len(data)
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{min(end, len(data)) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data[start:end])))
        self.send_header("ETag", f'"{len(data)}"')
        self.send_header("Last-Modified", self.date_time_string(0))
        self.end_headers()
        self.wfile.write(data[start:end])

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def http_root(tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(tmp_path / "store"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.block_on_close = False  # clients keep their connections open
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_plain_web_server_is_a_read_only_store(tmp_path: Path, http_root: str) -> None:
    local = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", local).add_table("main", rows(0, 100)).publish(label="v1")
    for address in ("a/b", "a/b@v1", f"a/b@{wd.dataset('a/b', store=local).version}"):
        dataset = wd.dataset(address, store=http_root)
        assert dataset.table().filter("n >= 98").to_arrow()["n"].to_pylist() == [98, 99]
    with pytest.raises(DeniedError, match="read-only"):
        wd.DatasetBuilder("a/b", http_root).add_table("main", rows(7)).publish()
    with pytest.raises(DeniedError):
        wd.dataset("a/b", store=http_root).snapshot("v2")
    assert wd.dataset("a/b", store=http_root).version == wd.dataset("a/b", store=local).version
    with pytest.raises(wd.errors.NotFoundError):
        wd.dataset("a/c", store=http_root)


def test_a_full_disk_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", store).add_table("main", rows(0)).publish()
    before = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())
    import os

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    builder = wd.DatasetBuilder("a/b", store).add_table("main", rows(100))
    builder.plan()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="no space left"):
        builder.publish()
    monkeypatch.undo()
    assert sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file()) == before
    assert wd.dataset("a/b", store=store).table().to_arrow()["n"].to_pylist() == [0, 1, 2, 3]


def test_missing_credentials_fail_at_once_with_a_next_step() -> None:
    began = time.monotonic()
    with pytest.raises(AuthenticationError, match="credentials not found") as raised:
        wd.dataset("a/b", store="s3://bucket/prefix")
    assert raised.value.hint is not None
    assert "AWS_PROFILE" in raised.value.hint
    assert time.monotonic() - began < 2


@pytest.mark.s3
def test_wrong_credentials_forbidden_writes_and_missing_buckets(s3_server: S3Endpoint, s3_url: str) -> None:
    good = s3_server.settings()
    wd.DatasetBuilder("a/b", s3_url, settings=good).add_table("main", rows(0)).publish()
    wrong = changed(good, s3=changed(good.s3, secret_access_key="wrong"))
    with pytest.raises(AuthenticationError, match="does not accept"):
        wd.dataset("a/b", store=s3_url, settings=wrong)
    with pytest.raises(ObjectNotFoundError, match="no bucket"):
        wd.dataset("a/b", store="s3://no-such-bucket/x", settings=good)
    readonly = s3_server.as_reader().settings()
    assert wd.dataset("a/b", store=s3_url, settings=readonly).table().count() == 4
    with pytest.raises(AccessDeniedError, match="forbids"):
        wd.DatasetBuilder("a/b", s3_url, settings=readonly).add_table("main", rows(5)).publish()


def test_an_endpoint_that_hangs_is_left_after_the_patience_set(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = changed(
            load_settings(),
            timeout_s=0.5,
            connect_timeout_s=0.5,
            max_retries=1,
            retry_timeout_s=2,
            s3=S3Settings(endpoint_url=endpoint, access_key_id="a", secret_access_key="b", allow_http=True),
        )
        began = time.monotonic()
        with pytest.raises(StoreTimeoutError, match="slow or hangs"):
            wd.dataset("a/b", store="s3://lake/x", settings=settings)
        with pytest.raises(StoreTimeoutError):
            wd.DatasetBuilder("a/b", "s3://lake/x", settings=settings).add_table("main", rows(0)).publish()
        assert time.monotonic() - began < 10


def test_an_endpoint_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    s3 = S3Settings(endpoint_url=f"http://127.0.0.1:{port}", access_key_id="a", secret_access_key="b", allow_http=True)
    settings = changed(load_settings(), max_retries=1, retry_timeout_s=1, s3=s3)
    with pytest.raises(StoreUnavailableError) as raised:
        wd.dataset("a/b", store="s3://lake/x", settings=settings)
    assert raised.value.hint is not None


def test_a_cache_that_cannot_be_written_steps_aside(tmp_path: Path, http_root: str) -> None:
    local = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", local).add_table("main", pa.table({"n": [1]})).publish()
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    settings = changed(load_settings(), cache_dir=blocked)
    assert wd.dataset("a/b", store=http_root, settings=settings).table().count() == 1
