"""What a user asks of a stream, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TextIO, TypeAlias, get_args

from warpdata.errors import BadInputError
from warpdata.limits import (
    STREAM_BLOCK_BYTES,
    STREAM_KEPT_BYTES,
    STREAM_LEAST_BLOCKS,
    STREAM_MAX_BLOCK_ROWS,
    STREAM_MOST_WINDOW_BYTES,
    STREAM_OPENING_BLOCKS,
    STREAM_WINDOW_BYTES,
)
from warpdata.repository.manifest import ShardList
from warpdata.settings import detect_rank
from warpdata.streaming.batching import Remainder, Steps
from warpdata.streaming.order import Shuffle

__all__ = ["Collate", "OnError", "Sample", "StreamOptions", "Transform", "choose_shuffle", "resolve_rank"]

Sample: TypeAlias = Mapping[str, Any]
Transform: TypeAlias = Callable[[dict[str, Any]], Sample]
"""Given one sample as a dict, returns what the batch shall hold of it."""

Collate: TypeAlias = Literal["dict", "numpy", "torch", "jax", "arrow"]
OnError: TypeAlias = Literal["raise", "substitute"]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """`batch_size` is per rank. `prefetch` is how many batches are prepared ahead."""

    batch_size: int = 256
    rank: int = 0
    world_size: int = 1
    remainder: Remainder = "partial"
    prefetch: int = 4
    decode: bool = True
    transform: Transform | None = None
    collate: Collate = "numpy"
    on_error: OnError = "raise"
    worker: int = 0
    workers: int = 1
    """Of several workers of one rank, this one makes every so-manieth batch."""
    progress: TextIO | None = None
    """Where to write a live line."""

    def __post_init__(self) -> None:
        Steps(0, self.batch_size, self.world_size, self.remainder)
        if not 0 <= self.rank < self.world_size:
            raise BadInputError(f"rank {self.rank} is not within {self.world_size}")
        for name, value, known in (("collate", self.collate, Collate), ("on_error", self.on_error, OnError)):
            if value not in get_args(known):
                raise BadInputError(f"{name}={value!r} is not known", hint=f"Use {', '.join(get_args(known))}.")
        if isinstance(self.prefetch, bool) or not isinstance(self.prefetch, int) or self.prefetch < 0:
            raise BadInputError(f"prefetch={self.prefetch!r} is not a count", hint="Use 'auto' or a number.")
        if self.collate == "arrow" and (self.transform is not None):
            raise BadInputError("transform changes samples, and collate='arrow' hands out rows as they are")

    def for_workers(self) -> StreamOptions:
        """As they are sent to other processes, which write no live line."""
        return replace(self, progress=None)

    @property
    def wants_media(self) -> bool:
        """Whether what references lead to is needed to make a batch."""
        return self.decode and self.collate != "arrow"


def resolve_rank(shard: tuple[int, int] | str | None) -> tuple[int, int]:
    """`(rank, world_size)`; "auto" asks the launcher's environment."""
    if shard is None:
        return 0, 1
    if isinstance(shard, str):
        if shard != "auto":
            raise BadInputError(f"shard={shard!r} is neither 'auto' nor (rank, world_size)")
        return detect_rank()
    rank, world_size = shard
    return rank, world_size


def choose_shuffle(sample_bytes: float, row_bytes: float, group_rows: Callable[[], int], shards: ShardList) -> Shuffle:
    """Blocks large enough to be worth a request, windows that fit into memory.

    `sample_bytes` is what a sample takes with its media, `row_bytes` without. A table too large to be kept
    in memory is shuffled by row groups, as less can not be read; of a small one, blocks are no longer than
    shards, so that the first window needs few of them. Only the former asks for `group_rows`, which takes a read.
    """
    rows = int(min(max(STREAM_BLOCK_BYTES / max(sample_bytes, 1.0), 1), STREAM_MAX_BLOCK_ROWS))
    if shards.row_count * row_bytes > STREAM_KEPT_BYTES:
        rows = max(rows, group_rows())
    else:
        rows = max(1, min(rows, shards.row_count // max(shards.shard_count, 1)))
    block_bytes = max(rows * sample_bytes, 1.0)
    least = min(STREAM_LEAST_BLOCKS, int(STREAM_MOST_WINDOW_BYTES / block_bytes))
    blocks = max(1, least, int(STREAM_WINDOW_BYTES / block_bytes))
    blocks = min(blocks, -(-max(shards.row_count, 1) // rows))
    return Shuffle(rows, blocks, STREAM_OPENING_BLOCKS if blocks > STREAM_OPENING_BLOCKS else 0)
