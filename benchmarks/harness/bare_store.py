"""Bare `obstore` access to the loopback server: the ceiling for anything that reads through it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from warpdata.testing import S3Endpoint

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["ByteRange", "open_bare_store", "put_files", "read_ranges", "upload_in_one_part"]

_MULTIPART_BYTES = 4 << 20

ByteRange: TypeAlias = tuple[str, int, int]
"""Key, start and end."""


def open_bare_store(s3: S3Endpoint, prefix: str = "") -> S3Store:
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


def read_ranges(store: S3Store, batches: Sequence[Sequence[ByteRange]], concurrency: int) -> int:
    """Read batch by batch with a bounded number of requests in flight, and return the number of bytes."""
    return asyncio.run(_read_all(store, batches, concurrency))


def put_files(store: S3Store, paths: Sequence[Path], concurrency: int) -> None:
    """Upload files under their names, with a bounded number of files at once. The library sends parts in parallel."""
    import obstore

    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(lambda path: obstore.put(store, path.name, path), paths))


def upload_in_one_part(s3: S3Endpoint) -> None:
    """Replace every large object of the bucket by a copy that was uploaded with a single put.

    The loopback server compresses some parts of multipart uploads, tars among them, and then decompresses a whole
    part for every range request. Real object stores do not, so no arm should pay for it.
    """
    import obstore

    store = open_bare_store(s3)
    for page in list(obstore.list(store)):
        for found in page:
            if found["size"] > _MULTIPART_BYTES:
                obstore.put(store, found["path"], obstore.get(store, found["path"]).bytes(), use_multipart=False)


async def _read_all(store: S3Store, batches: Sequence[Sequence[ByteRange]], concurrency: int) -> int:
    import obstore

    semaphore = asyncio.Semaphore(concurrency)

    async def read(wanted: ByteRange) -> bytes:
        key, start, end = wanted
        async with semaphore:
            return bytes(await obstore.get_range_async(store, key, start=start, end=end))

    total = 0
    for batch in batches:
        total += sum(map(len, await asyncio.gather(*map(read, batch))))
    return total
