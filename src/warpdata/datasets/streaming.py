"""Streams over the tables of a version, from a request to an open stream.

A `StreamRequest` is a plain value that can be pickled, so that worker processes open the same stream. Streams need
NumPy; `Dataset` therefore imports this module when a stream is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from warpdata.datasets.artifacts import open_for_stream
from warpdata.datasets.dataset import Dataset, open_dataset
from warpdata.datasets.ref_columns import RefColumns
from warpdata.datasets.table_source import open_table_source
from warpdata.errors import BadInputError, UnsupportedError
from warpdata.formats.media import check_image_device
from warpdata.kinds.artifacts import resolve_resize
from warpdata.kinds.tables import Table, check_column_names
from warpdata.query import Filter, clauses_of
from warpdata.repository.catalog import Address
from warpdata.repository.rows import RowSelection
from warpdata.session import VersionAddress
from warpdata.streaming import (
    Collate,
    OpenStream,
    RowKeywords,
    Stream,
    StreamContext,
    StreamKeywords,
    StreamOptions,
    TorchLoader,
    mix_streams,
)

__all__ = ["StreamRequest", "TorchLoader", "iter_batches", "mix_streams", "open_stream", "reopen_later"]


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The rows of a table to stream, and the options of the stream."""

    table: str
    columns: tuple[str, ...] | None
    filters: tuple[str | Filter, ...]
    options: StreamOptions
    rows: RowSelection | None = None
    """The rows that a given table is restricted to; None for all."""
    returns_bytes: bool = False
    """Return the bytes of references, without decoding them."""

    @staticmethod
    def parse(dataset: Dataset, table: str | Table | None, keywords: RowKeywords, *, collate: Collate) -> StreamRequest:
        """Check the arguments of `Dataset.stream`. A given `Table` brings its columns, filters and rows."""
        options = StreamOptions.parse(keywords, RowKeywords.__annotations__, collate=collate)
        columns = keywords.get("columns")
        names, given = None if columns is None else check_column_names(columns), keywords.get("filter")
        if not isinstance(table, Table):
            if given is None or clauses_of(given).are_per_row:
                return StreamRequest(table or dataset.main_table(), names, () if given is None else (given,), options)
            table = dataset.table(table)
        if table.entry != dataset.manifest.tables.get(table.name):
            raise BadInputError(
                f"table {table.name!r} is not of this version of {dataset.id}",
                hint="Take it from the same dataset object: ds.stream(ds.sample(…)).",
            )
        if given is not None:
            table = table.filter(given)
        names = table.columns if names is None else names
        return StreamRequest(table.name, names, tuple(each.source for each in table.filters), options, table.rows)

    def decoding_on(self, image_device: str | None) -> StreamRequest:
        """Return the request of a loader that decodes JPEGs on a device; None for the threads or workers."""
        if image_device is None:
            return self
        return replace(self, options=self.options.decoding_on(check_image_device(image_device)))


def open_stream(dataset: Dataset, request: StreamRequest) -> Stream:
    """Open a stream. Reads at most the schema of the table, and with `shuffle=True` a footer."""
    is_part = bool(request.filters) or request.rows is not None
    bound, on_selectivity = open_for_stream(dataset, request.table, request.columns, is_part=is_part)
    if request.returns_bytes:
        bound = {column: (artifact, "file") for column, (artifact, _) in bound.items()}
    table = replace(
        dataset.table(request.table), schema_transform=RefColumns(bound) if bound else None, rows=request.rows
    )
    table.check_row_counts()
    for each in request.filters:
        table = table.filter(each)
    if request.columns is not None:
        table = table.select(request.columns)
    names: Collection[str] = bound if request.columns is None else request.columns
    images = [name for name in names if name in bound and bound[name][1] == "image"]
    options = replace(request.options, resize=resolve_resize(request.options.resize, images))
    if options.image_device is not None:
        options = replace(options, encoded_images=tuple(images))
    artifacts = {column: artifact for column, (artifact, _) in bound.items()}
    source = open_table_source(table, (dataset.id, dataset.version), artifacts, options, on_selectivity)

    def at_version(version: str) -> Stream:
        if request.rows is not None and version != dataset.version:
            raise UnsupportedError(
                "a stream over a sample cannot go on with another version",
                hint="Take a sample of the other version, or stream with a filter.",
            )
        return open_stream(open_dataset(dataset.session, Address(dataset.id, version)), request)

    session = dataset.session
    context = StreamContext(session.timer, session.counters.snapshot, at_version, session.settings.media_memory_bytes)
    return Stream(source, options, context)


def iter_batches(
    dataset: Dataset, condition: str | Filter | None, keywords: StreamKeywords
) -> Iterator[dict[str, Any]]:
    """Yield the batches of one epoch of the main table, with the bytes of references."""
    rows = cast("RowKeywords", {**keywords, "filter": condition})
    request = replace(StreamRequest.parse(dataset, None, rows, collate="numpy"), returns_bytes=True)
    return iter(open_stream(dataset, request))


def reopen_later(dataset: Dataset, request: StreamRequest) -> OpenStream:
    """Return a function that opens the stream in another process. Can be pickled."""
    request = replace(request, options=request.options.for_workers())
    return _StreamAddress(VersionAddress.of(dataset.session, dataset.version_ref), request)


@dataclass(frozen=True, slots=True)
class _StreamAddress:
    """A stream of a version. A call opens it, perhaps at another version."""

    address: VersionAddress
    request: StreamRequest

    def __call__(self, version: str | None = None) -> Stream:
        session, ref = self.address.open(version)
        return open_stream(Dataset(session, ref, session.catalog.manifest(ref)), self.request)
