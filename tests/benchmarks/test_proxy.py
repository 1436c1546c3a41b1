"""If this fails, the benchmarks measure another distance than they say, or count what was not sent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from benchmarks.harness.proxy import LatencyProxy

from warpdata.errors import NotFoundError
from warpdata.store import open_store
from warpdata.testing import S3Endpoint

SIZE = 3_000_000


def test_what_passes_is_late_slow_and_counted(s3_server: S3Endpoint, s3_url: str, tmp_path: Path) -> None:
    """Signed for the proxy's address, so a changed head would be refused."""
    content = bytes(range(250)) * (SIZE // 250)
    with LatencyProxy(s3_server.endpoint_url, delay_s=0.15, bytes_per_s=SIZE / 0.3) as proxy:
        far = S3Endpoint(
            proxy.endpoint_url,
            s3_server.bucket,
            s3_server.access_key_id,
            s3_server.secret_access_key,
            str(tmp_path),
        )
        store = open_store(s3_url, far.settings())
        store.create("there", content)
        proxy.take()

        begun = time.perf_counter()
        assert store.read("there").data == content
        took_s = time.perf_counter() - begun
        (seen,) = proxy.take()
        assert (seen.method, seen.status, seen.body_bytes) == ("GET", 200, SIZE)
        assert took_s >= 0.4

        with pytest.raises(NotFoundError):
            store.read("not-there")
        (seen,) = proxy.take()
        assert seen.status == 404
        assert not proxy.take()
