"""Streams for training: one order for every rank, exact resume, a shuffle buffer that bounds memory.

Streams read from a `SampleSource` and know neither tables nor catalogs. docs/specs/streaming.md is the normative text.
"""

from warpdata.streaming.collate import Columns, text_errors
from warpdata.streaming.estimate import EpochEstimate
from warpdata.streaming.mixture import MixedSource, Mixture, Stop
from warpdata.streaming.options import (
    Collate,
    ImageResize,
    OnError,
    RowKeywords,
    StreamKeywords,
    StreamOptions,
    Transform,
    resolve_rank,
)
from warpdata.streaming.order import BatchSchedule, Order, Remainder, Shuffle
from warpdata.streaming.shuffle_buffer import LoadedRows, LoadExecutors, OwnedPositions, PendingBytes, ShuffleBuffer
from warpdata.streaming.source import (
    BatchReader,
    OnSelectivity,
    SampleLocation,
    SampleReader,
    SampleSource,
    VersionedSource,
)
from warpdata.streaming.state import (
    ConsumedSegment,
    MixedIdentity,
    RebasedIdentity,
    StreamIdentity,
    StreamState,
    TableIdentity,
    VersionIdentity,
)
from warpdata.streaming.stats import Clock, StreamStats, Telemetry
from warpdata.streaming.stream import Stream, StreamContext, max_batch_threads, mix_streams
from warpdata.streaming.torch import OpenStream, TorchLoader
from warpdata.streaming.torch_samples import samples_of

__all__ = [
    "BatchReader",
    "BatchSchedule",
    "Clock",
    "Collate",
    "Columns",
    "ConsumedSegment",
    "EpochEstimate",
    "ImageResize",
    "LoadExecutors",
    "LoadedRows",
    "MixedIdentity",
    "MixedSource",
    "Mixture",
    "OnError",
    "OnSelectivity",
    "OpenStream",
    "Order",
    "OwnedPositions",
    "PendingBytes",
    "RebasedIdentity",
    "Remainder",
    "RowKeywords",
    "SampleLocation",
    "SampleReader",
    "SampleSource",
    "Shuffle",
    "ShuffleBuffer",
    "Stop",
    "Stream",
    "StreamContext",
    "StreamIdentity",
    "StreamKeywords",
    "StreamOptions",
    "StreamState",
    "StreamStats",
    "TableIdentity",
    "Telemetry",
    "TorchLoader",
    "Transform",
    "VersionIdentity",
    "VersionedSource",
    "max_batch_threads",
    "mix_streams",
    "resolve_rank",
    "samples_of",
    "text_errors",
]
