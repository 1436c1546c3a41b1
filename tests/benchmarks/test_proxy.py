"""If this fails, the benchmarks measure another latency than they claim, or miscount requests and bytes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from benchmarks.harness.proxy import S3Proxy

from warpdata.errors import NotFoundError
from warpdata.storage import open_store
from warpdata.testing import S3Endpoint

SIZE_BYTES = 3_000_000


def test_proxy_delays_paces_and_counts(s3_server: S3Endpoint, s3_url: str) -> None:
    """Requests are signed for the proxy's address, so the server would reject changed headers."""
    content = bytes(range(250)) * (SIZE_BYTES // 250)
    with S3Proxy(s3_server.endpoint_url, delay_s=0.15, bytes_per_s=SIZE_BYTES / 0.3) as proxy:
        store = open_store(s3_url, replace(s3_server, endpoint_url=proxy.endpoint_url).settings())
        store.create("present", content)
        proxy.take()

        start = time.perf_counter()
        assert store.read("present").data == content
        took_s = time.perf_counter() - start
        (exchange,) = proxy.take()
        assert (exchange.method, exchange.status, exchange.body_bytes) == ("GET", 200, SIZE_BYTES)
        assert took_s >= 0.4

        with pytest.raises(NotFoundError):
            store.read("absent")
        (exchange,) = proxy.take()
        assert exchange.status == 404
        assert not proxy.take()


def test_proxy_without_limits_only_counts(s3_server: S3Endpoint, s3_url: str) -> None:
    with S3Proxy(s3_server.endpoint_url) as proxy:
        store = open_store(s3_url, replace(s3_server, endpoint_url=proxy.endpoint_url).settings())
        store.create("counted", b"x" * 1000)
        proxy.take()
        assert store.read("counted").data == b"x" * 1000
        assert [exchange.body_bytes for exchange in proxy.take()] == [1000]
