"""If these fail, a store that asks for fewer requests is flooded with retries, or reads fail that could wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from benchmarks.harness.proxy import S3Proxy

from warpdata.errors import StoreUnavailableError
from warpdata.primitives.parallel import IO_POOL, REQUEST_LIMIT
from warpdata.storage import ByteRange, open_store
from warpdata.testing import S3Endpoint

pytestmark = pytest.mark.s3
DATA = bytes(range(250)) * 400
SPANS = [ByteRange(start, start + 500) for start in range(0, len(DATA), 500)]


@pytest.fixture(autouse=True)
def fresh_limit() -> Iterator[None]:
    REQUEST_LIMIT._reset()
    yield
    REQUEST_LIMIT._reset()


def test_reads_succeed_below_the_limit_of_the_store(s3_server: S3Endpoint, s3_url: str) -> None:
    """The proxy answers 503 to every request beyond 12 in flight. Reads begin with 32 at a time."""
    open_store(s3_url, s3_server.settings()).create("object", DATA)
    with S3Proxy(s3_server.endpoint_url, delay_s=0.01, max_in_flight=12) as proxy:
        store = open_store(s3_url, replace(s3_server, endpoint_url=proxy.endpoint_url).settings())
        slow_downs = REQUEST_LIMIT.slow_downs
        assert REQUEST_LIMIT.value == 32
        for _ in range(3):
            found = IO_POOL.map_all(lambda span: bytes(store.read_range("object", span)), SPANS)
            assert b"".join(found) == DATA
        answers = [exchange.status for exchange in proxy.take()]
    assert REQUEST_LIMIT.slow_downs > slow_downs
    assert REQUEST_LIMIT.value <= 16
    refused = answers.count(503)
    assert 0 < refused < len(answers) // 4, "most requests are not refused"
    assert answers[-len(SPANS) :].count(503) < len(SPANS) // 10, "and in the end hardly any"


def test_a_store_that_refuses_everything_is_unavailable(s3_server: S3Endpoint, s3_url: str) -> None:
    with S3Proxy(s3_server.endpoint_url, max_in_flight=0) as proxy:
        settings = replace(s3_server, endpoint_url=proxy.endpoint_url).settings(max_retries=2)
        store = open_store(s3_url, settings)
        with pytest.raises(StoreUnavailableError) as caught:
            store.read_range("object", ByteRange(0, 10))
        assert len(proxy.take()) == 3
        assert "WARP_IO_CONCURRENCY" in (caught.value.hint or "")


def test_small_objects_and_sizes_wait_too(s3_server: S3Endpoint, s3_url: str) -> None:
    direct = open_store(s3_url, s3_server.settings())
    direct.create("small", b"content")
    with S3Proxy(s3_server.endpoint_url, delay_s=0.02, max_in_flight=2) as proxy:
        store = open_store(s3_url, replace(s3_server, endpoint_url=proxy.endpoint_url).settings())
        found = IO_POOL.map_all(lambda _: (store.read("small").data, store.stat("small").size_bytes), range(12))
    assert set(found) == {(b"content", 7)}
