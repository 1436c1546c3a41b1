"""Streams over tables of a version: what they must know of the data, gathered from the manifest.

A stream is described by a `StreamRequest`, a plain value that can be pickled, so that worker processes
open the same stream for themselves. Streams need numpy, so the rest of this room comes here for them, and
only when somebody asks for one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO, TypedDict

from warpdata.errors import BadInputError
from warpdata.kinds.artifacts import Artifact
from warpdata.kinds.tables import Table
from warpdata.limits import STREAM_PREFETCH_BATCHES
from warpdata.repository.catalog import VersionRef
from warpdata.session import VersionAddress
from warpdata.streaming import (
    Collate,
    OnError,
    Outside,
    Remainder,
    Shuffle,
    Stream,
    StreamOptions,
    TablePlan,
    TorchLoader,
    Traffic,
    Transform,
    choose_shuffle,
    mix_streams,
    resolve_rank,
)

__all__ = [
    "Outside",
    "StreamAddress",
    "StreamKeywords",
    "StreamOptions",
    "StreamRequest",
    "TorchLoader",
    "Traffic",
    "batches_ahead",
    "live_line",
    "mix_streams",
    "open_stream",
    "resolve_rank",
]


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """Which rows, and in what order."""

    table: str
    columns: tuple[str, ...] | None
    filter: str | None
    shuffle: bool | Shuffle
    seed: int

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise BadInputError(f"seed={self.seed!r} is not an integer")


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """A stream in words that a worker process understands."""

    where: VersionAddress
    request: StreamRequest
    options: StreamOptions


def open_stream(
    table: Table,
    resolved: VersionRef,
    bound: Mapping[str, Artifact],
    request: StreamRequest,
    options: StreamOptions,
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
    shuffle = None if request.shuffle is False else request.shuffle
    if shuffle is True:
        shuffle = choose_shuffle(row_bytes + media, row_bytes, table.group_rows, shards)
    plan = TablePlan(
        resolved.dataset_id,
        resolved.version,
        table,
        row_bytes + media,
        row_bytes,
        shuffle,
        request.seed,
        on_selection=outside.on_selection,
    )
    return Stream(plan, options, outside)


class StreamKeywords(TypedDict, total=False):
    """What `Dataset.stream` takes by name."""

    columns: Sequence[str] | None
    filter: str | None
    batch_size: int
    shuffle: bool | Shuffle
    seed: int
    shard: tuple[int, int] | str | None
    remainder: Remainder
    prefetch: int | str
    decode: bool
    transform: Transform | None
    collate: Collate
    on_error: OnError
    progress: bool | TextIO


def live_line(progress: bool | TextIO) -> TextIO | None:
    """Where a live line goes."""
    if isinstance(progress, bool):
        return sys.stderr if progress else None
    return progress


def batches_ahead(prefetch: int | str) -> int:
    """How many batches to prepare ahead."""
    if prefetch == "auto":
        return STREAM_PREFETCH_BATCHES
    if isinstance(prefetch, bool) or not isinstance(prefetch, int):
        raise BadInputError(f"prefetch={prefetch!r} is neither 'auto' nor a count")
    return prefetch
