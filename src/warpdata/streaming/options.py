"""Keyword arguments of streams, checked once.

`StreamKeywords` types them for every function that returns a stream, through `**keywords: Unpack[StreamKeywords]`.
`StreamOptions.parse` checks them and fills in the defaults, which are written nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TextIO, TypeAlias, TypedDict, get_args

from warpdata.errors import BadInputError
from warpdata.primitives.arguments import check_keywords
from warpdata.primitives.suggest import suggest
from warpdata.query import Filter
from warpdata.settings import detect_rank
from warpdata.streaming.order import BatchSchedule, Remainder, Shuffle

__all__ = [
    "Collate",
    "ImageResize",
    "OnError",
    "RowKeywords",
    "Sample",
    "StreamKeywords",
    "StreamOptions",
    "Transform",
    "resolve_rank",
]

Sample: TypeAlias = Mapping[str, Any]
Transform: TypeAlias = Callable[[dict[str, Any]], Sample]
"""Takes one sample as a dict and returns the sample that goes into the batch."""

Collate: TypeAlias = Literal["dict", "numpy", "torch", "jax", "arrow"]
OnError: TypeAlias = Literal["raise", "substitute"]

ImageResize: TypeAlias = tuple[int, int] | int | Mapping[str, tuple[int, int] | int]
"""Height and width of images, or the length of their shorter side; for all image columns, or for each."""


class StreamKeywords(TypedDict, total=False):
    """Keyword arguments of every stream. `StreamOptions` documents them and holds the defaults."""

    batch_size: int
    shuffle: bool | Shuffle
    seed: int
    shard: tuple[int, int] | str | None
    remainder: Remainder
    prefetch: int | str
    transform: Transform | None
    progress: bool | TextIO


class RowKeywords(StreamKeywords, total=False):
    """Keyword arguments of streams over the rows of a table."""

    columns: Sequence[str] | str | None
    filter: str | Filter | None
    decode: bool
    resize: ImageResize | None
    on_error: OnError


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Checked options of a stream. A plain value, so that worker processes can receive it.

    `batch_size` is per rank. `prefetch` is the number of batches prepared ahead of the consumer.
    """

    batch_size: int = 256
    shuffle: bool | Shuffle = False
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    remainder: Remainder = "partial"
    prefetch: int = 4
    decode: bool = True
    resize: ImageResize | None = None
    """In an open stream, a mapping from each resized column to its size."""
    image_device: str | None = None
    """The device on which the consumer of the batches decodes JPEGs; None: they are decoded where batches are made."""
    encoded_images: tuple[str, ...] = ()
    """In an open stream, the columns whose JPEGs stay encoded for that device."""
    transform: Transform | None = None
    collate: Collate = "numpy"
    on_error: OnError = "raise"
    worker: int = 0
    workers: int = 1
    """Worker `w` of `n` makes the batches `w`, `w + n`, `w + 2n`, … of its rank."""
    progress: TextIO | None = None
    """The file that receives a live progress line."""

    @staticmethod
    def parse(
        keywords: Mapping[str, Any],
        known: Collection[str] = StreamKeywords.__annotations__,
        *,
        collate: Collate = "numpy",
    ) -> StreamOptions:
        """Check the keyword arguments of a call. `known` names those that the call accepts.

        `TypeError` for an unknown name, as Python raises it. `columns` and `filter` are left to the caller.
        """
        for name in keywords:
            if name not in known:
                raise TypeError(f"unexpected keyword argument {name!r}. {suggest(name, known, label='Known')}")
        check_keywords("stream", keywords, RowKeywords)
        given = {name: value for name, value in keywords.items() if name not in ("columns", "filter")}
        given["rank"], given["world_size"] = resolve_rank(given.pop("shard", None))
        prefetch = given.pop("prefetch", "auto")
        if prefetch != "auto":
            given["prefetch"] = prefetch
        progress = given.pop("progress", False)
        given["progress"] = (sys.stderr if progress else None) if isinstance(progress, bool) else progress
        return StreamOptions(**given, collate=collate)

    def __post_init__(self) -> None:
        if isinstance(self.batch_size, bool) or not hasattr(self.batch_size, "__index__"):
            hint = "Use a positive integer. A table is named by its keyword: table=…"
            raise BadInputError(f"batch_size={self.batch_size!r} is not a count", hint=hint)
        BatchSchedule(0, self.batch_size, self.world_size, self.remainder)
        if not 0 <= self.rank < self.world_size:
            raise BadInputError(f"rank {self.rank} is not within {self.world_size}")
        if not isinstance(self.shuffle, bool | Shuffle):
            raise BadInputError(f"shuffle={self.shuffle!r} is neither a bool nor a Shuffle")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise BadInputError(f"seed={self.seed!r} is not an integer")
        for name, value, known in (("collate", self.collate, Collate), ("on_error", self.on_error, OnError)):
            if not isinstance(value, str) or value not in get_args(known):
                raise BadInputError(f"{name}={value!r} is not known", hint=f"Use {', '.join(get_args(known))}.")
        if isinstance(self.prefetch, bool) or not isinstance(self.prefetch, int) or self.prefetch < 0:
            raise BadInputError(f"prefetch={self.prefetch!r} is neither 'auto' nor a count")
        if self.collate == "arrow" and self.transform is not None:
            raise BadInputError("transform needs samples, and collate='arrow' returns rows", hint="Drop one of them.")
        if self.resize and not self.wants_media:
            raise BadInputError(
                f"resize={self.resize!r} needs decoded images, and this stream returns references",
                hint="Drop resize, decode=False or collate='arrow'.",
            )

    def for_workers(self) -> StreamOptions:
        """Return the options for worker processes, which write no progress line."""
        return replace(self, progress=None)

    def decoding_on(self, image_device: str) -> StreamOptions:
        """Return the options of a stream whose consumer decodes JPEGs. `BadInputError` if the stream needs pixels."""
        for name, value, plain in (
            ("transform", self.transform, None),
            ("decode", self.decode, True),
            ("on_error", self.on_error, "raise"),
        ):
            if value != plain:
                raise BadInputError(
                    f"{name}={value!r} needs the pixels of an image before the device has decoded it",
                    hint=f"Drop {name} or image_device.",
                )
        return replace(self, image_device=image_device)

    @property
    def wants_media(self) -> bool:
        """A batch holds the content of references, not the references."""
        return self.decode and self.collate != "arrow"


def resolve_rank(shard: tuple[int, int] | str | None) -> tuple[int, int]:
    """Return `(rank, world_size)`. "auto" reads the launcher's environment."""
    if shard is None:
        return 0, 1
    if isinstance(shard, str):
        if shard != "auto":
            raise BadInputError(f"shard={shard!r} is neither 'auto' nor (rank, world_size)")
        return detect_rank()
    rank, world_size = shard
    return rank, world_size
