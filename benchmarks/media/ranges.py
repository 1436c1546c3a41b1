"""Bare `obstore` range reads: what is left when everything else is taken away. Many at once, nothing verified."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from warpdata.testing import S3Endpoint

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["Range", "bare_store", "put_in_one_piece", "read_ranges"]

_MULTIPART_BYTES = 4 << 20

Range = tuple[str, int, int]
"""The key, where the bytes begin, and where they end."""


def bare_store(s3: S3Endpoint, prefix: str = "") -> S3Store:
    from obstore.store import S3Store

    return S3Store(
        s3.bucket,
        prefix=prefix or None,
        config={
            "endpoint": s3.endpoint_url,
            "access_key_id": s3.access_key_id,
            "secret_access_key": s3.secret_access_key,
            "region": "us-east-1",
        },
        client_options={"allow_http": True},
    )


def read_ranges(store: S3Store, batches: Sequence[Sequence[Range]], at_once: int) -> int:
    """Batch by batch, with at most so many requests on their way. How many bytes came."""
    return asyncio.run(_read_all(store, batches, at_once))


def put_in_one_piece(s3: S3Endpoint) -> None:
    """Store every large object of the bucket anew, with a single put.

    The loopback server compresses some parts of multipart uploads, tars among them, and then unpacks a
    whole part for every range that is asked of it. Buckets elsewhere do not; nobody should be measured by it.
    """
    import obstore

    store = bare_store(s3)
    for page in list(obstore.list(store)):
        for found in page:
            if found["size"] > _MULTIPART_BYTES:
                obstore.put(store, found["path"], obstore.get(store, found["path"]).bytes(), use_multipart=False)


async def _read_all(store: S3Store, batches: Sequence[Sequence[Range]], at_once: int) -> int:
    import obstore

    gate = asyncio.Semaphore(at_once)

    async def read(wanted: Range) -> bytes:
        key, start, end = wanted
        async with gate:
            return bytes(await obstore.get_range_async(store, key, start=start, end=end))

    total = 0
    for batch in batches:
        total += sum(map(len, await asyncio.gather(*map(read, batch))))
    return total
