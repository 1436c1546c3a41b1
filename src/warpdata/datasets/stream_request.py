"""Streams over tables of a version: what they must know of the data, gathered from the manifest.

A stream is described by a `StreamRequest`, a plain value that can be pickled, so that worker processes
open the same stream for themselves. Streams need numpy, so the rest of this room comes here for them, and
only when somebody asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from warpdata.kinds.artifacts import Artifact
from warpdata.kinds.tables import Table
from warpdata.repository.catalog import VersionRef
from warpdata.session import VersionAddress
from warpdata.streaming import (
    Collate,
    Outside,
    RowKeywords,
    Shuffle,
    Stream,
    StreamOptions,
    TablePlan,
    TorchLoader,
    Traffic,
    choose_shuffle,
    mix_streams,
)

__all__ = [
    "Outside",
    "StreamAddress",
    "StreamRequest",
    "TorchLoader",
    "Traffic",
    "mix_streams",
    "open_stream",
]


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """Which rows of which table, and the options of the stream over them."""

    table: str
    columns: tuple[str, ...] | None
    filter: str | None
    options: StreamOptions

    @staticmethod
    def parse(table: str, keywords: RowKeywords, *, collate: Collate) -> StreamRequest:
        """Check the keyword arguments of `Dataset.stream`."""
        options = StreamOptions.parse(keywords, RowKeywords.__annotations__, collate=collate)
        columns = keywords.get("columns")
        return StreamRequest(table, None if columns is None else tuple(columns), keywords.get("filter"), options)

    def for_workers(self) -> StreamRequest:
        """Return the request as worker processes receive it."""
        return replace(self, options=self.options.for_workers())


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """A stream in words that a worker process understands."""

    where: VersionAddress
    request: StreamRequest


def open_stream(
    table: Table,
    resolved: VersionRef,
    bound: Mapping[str, Artifact],
    request: StreamRequest,
    outside: Outside,
) -> Stream:
    """Reads the schema. `bound` are the artifacts by column."""
    if request.filter is not None:
        table = table.filter(request.filter)
    if request.columns is not None:
        table = table.select(request.columns)
    shards = table.entry.shards
    row_bytes = shards.data_bytes / max(shards.row_count, 1)
    wanted = set(bound) if request.columns is None else set(bound) & set(request.columns)
    media = sum(bound[name].entry.shards.data_bytes / max(len(bound[name]), 1) for name in wanted)
    asked = request.options.shuffle
    shuffle = asked if isinstance(asked, Shuffle) else None
    if asked is True:
        shuffle = choose_shuffle(row_bytes + media, row_bytes, table.group_rows, shards)
    plan = TablePlan(
        resolved.dataset_id,
        resolved.version,
        table,
        row_bytes + media,
        row_bytes,
        shuffle,
        request.options.seed,
        on_selection=outside.on_selection,
    )
    return Stream(plan, request.options, outside)
