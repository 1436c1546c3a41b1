"""Peers with media formats of their own: WebDataset, which streams tars, and Lance, which takes blobs by row.

Both are optional; what is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.media.dataset import Media
from warpdata.testing import S3Endpoint

__all__ = ["has_lance", "has_webdataset", "lance_bytes", "lance_options", "open_lance", "streamed_bytes", "write_lance"]

_COLUMN = "blob"


def has_webdataset() -> bool:
    return find_spec("webdataset") is not None


def has_lance() -> bool:
    return find_spec("lance") is not None


def streamed_bytes(tars: Sequence[str]) -> int:
    """Every sample of every tar, front to back. URLs are fetched as WebDataset does it, by `curl`."""
    import webdataset

    samples = webdataset.WebDataset(list(tars), shardshuffle=False)
    return sum(len(sample["bin"]) for sample in samples)


def write_lance(media: Media, uri: str, options: Mapping[str, str] | None = None) -> None:
    """A row with a blob for each file, in the order of `media`."""
    import lance
    import pyarrow as pa

    schema = pa.schema([lance.blob_field(_COLUMN)])
    contents = ((media.folder / path).read_bytes() for path in media.paths)
    table = pa.table({_COLUMN: lance.blob_array(list(contents))}, schema=schema)
    lance.write_dataset(table, uri, storage_options=dict(options or {}), data_storage_version="2.2")


def open_lance(uri: str, options: Mapping[str, str] | None = None) -> Any:
    import lance

    return lance.dataset(uri, storage_options=dict(options or {}))


def lance_bytes(opened: Any, batches: Sequence[Sequence[int]]) -> int:
    """Whole blobs by row, a batch in one call, in the way its documentation recommends for training."""
    total = 0
    for batch in batches:
        total += sum(len(content) for _, content in opened.read_blobs(_COLUMN, indices=list(batch)))
    return total


def lance_options(s3: S3Endpoint) -> dict[str, str]:
    return {
        "aws_access_key_id": s3.access_key_id,
        "aws_secret_access_key": s3.secret_access_key,
        "aws_region": "us-east-1",
        "aws_endpoint": s3.endpoint_url,
        "allow_http": "true",
    }
