"""Peers with media formats of their own: WebDataset, which streams tars, and Lance, which takes blobs by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.media.dataset import MediaFiles
from warpdata.testing import S3Endpoint

__all__ = ["lance_options", "open_lance", "read_lance", "stream_tars", "write_lance"]

_COLUMN = "blob"


def stream_tars(tars: Sequence[str]) -> int:
    """Read every sample of every tar in order and return the bytes. WebDataset fetches URLs with `curl`."""
    import webdataset

    samples = webdataset.WebDataset(list(tars), shardshuffle=False)
    return sum(len(sample["bin"]) for sample in samples)


def write_lance(media: MediaFiles, uri: str, options: Mapping[str, str] | None = None) -> None:
    """Write a row with a blob for each file, in the order of `media`."""
    import lance
    import pyarrow as pa

    schema = pa.schema([lance.blob_field(_COLUMN)])
    contents = ((media.directory / path).read_bytes() for path in media.paths)
    table = pa.table({_COLUMN: lance.blob_array(list(contents))}, schema=schema)
    lance.write_dataset(table, uri, storage_options=dict(options or {}), data_storage_version="2.2")


def open_lance(uri: str, options: Mapping[str, str] | None = None) -> Any:
    import lance

    return lance.dataset(uri, storage_options=dict(options or {}))


def read_lance(opened: Any, batches: Sequence[Sequence[int]]) -> int:
    """Read whole blobs by row, a batch per call, as its documentation recommends for training."""
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
