"""Streams for training: one order for every rank, exact resume, windows that bound memory.

Handed tables and what is known of them; knows nothing of catalogs. docs/specs/streaming.md is the
normative text.
"""

from warpdata.streaming.batching import Remainder, Steps
from warpdata.streaming.explain import Explanation
from warpdata.streaming.mixed import MixedPlan
from warpdata.streaming.mixture import Mixture, Stop
from warpdata.streaming.options import (
    Collate,
    OnError,
    RowKeywords,
    StreamKeywords,
    StreamOptions,
    Transform,
    choose_shuffle,
    resolve_rank,
)
from warpdata.streaming.order import Order, Shuffle
from warpdata.streaming.shuffle_buffer import Mine
from warpdata.streaming.sources import ArrayFeed, Feed, OnSelection, Place, Plan, TablePlan
from warpdata.streaming.state import Identity, MixedIdentity, TableIdentity, Token, VersionIdentity
from warpdata.streaming.stream import Outside, Stream, mix_streams
from warpdata.streaming.telemetry import Clock, Figures, Traffic
from warpdata.streaming.torch import OpenStream, TorchLoader

__all__ = [
    "ArrayFeed",
    "Clock",
    "Collate",
    "Explanation",
    "Feed",
    "Figures",
    "Identity",
    "Mine",
    "MixedIdentity",
    "MixedPlan",
    "Mixture",
    "OnError",
    "OnSelection",
    "OpenStream",
    "Order",
    "Outside",
    "Place",
    "Plan",
    "Remainder",
    "RowKeywords",
    "Shuffle",
    "Steps",
    "Stop",
    "Stream",
    "StreamKeywords",
    "StreamOptions",
    "TableIdentity",
    "TablePlan",
    "Token",
    "TorchLoader",
    "Traffic",
    "Transform",
    "VersionIdentity",
    "choose_shuffle",
    "mix_streams",
    "resolve_rank",
]
