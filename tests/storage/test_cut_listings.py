"""If these fail, one cut reply to a listing ends a command, although the next try would succeed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from warpdata.errors import StorageError
from warpdata.settings import S3Settings, Settings
from warpdata.storage import Writer, open_store

Cut = Literal["connection", "text"]
REPLY = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>lake</Name><KeyCount>2</KeyCount>
<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>
<Contents><Key>a/k</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag><Size>3</Size>
<StorageClass>STANDARD</StorageClass></Contents>
<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes></ListBucketResult>"""


class CuttingServer(ThreadingHTTPServer):
    """Answers every listing. The first replies end in the middle, with the connection or as if complete."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cut: Cut = "connection"
        self.left_to_cut = 0
        self.asked = 0


class _Handler(BaseHTTPRequestHandler):
    server: CuttingServer

    def do_GET(self) -> None:
        self.server.asked += 1
        is_cut = self.server.left_to_cut > 0
        self.server.left_to_cut -= 1
        sent = REPLY[: len(REPLY) // 2] if is_cut else REPLY
        self.send_response(200)
        self.send_header("Content-Length", str(len(REPLY if self.server.cut == "connection" else sent)))
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Tests are quiet."""


@pytest.fixture
def server() -> Iterator[CuttingServer]:
    with CuttingServer() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def store(server: CuttingServer, tmp_path: Path) -> Writer:
    s3 = S3Settings(f"http://127.0.0.1:{server.server_port}", "us-east-1", "id", "secret", allow_http=True)
    return open_store("s3://lake", Settings("s3://lake", tmp_path, s3=s3, max_retries=3))


@pytest.mark.parametrize("cut", ["connection", "text"])
def test_a_cut_listing_is_asked_for_again(server: CuttingServer, store: Writer, cut: Cut) -> None:
    server.cut, server.left_to_cut = cut, 3
    assert [info.key for info in store.list_objects("a")] == ["a/k"]
    server.left_to_cut = 3
    assert store.list_folders("a") == ["b"]
    assert server.asked == 8


@pytest.mark.parametrize("cut", ["connection", "text"])
def test_a_listing_that_is_always_cut_is_a_typed_error(server: CuttingServer, store: Writer, cut: Cut) -> None:
    server.cut, server.left_to_cut = cut, 1000
    with pytest.raises(StorageError, match="list response"):
        list(store.list_objects("a"))
    assert server.asked == 4, "once, and three retries"
