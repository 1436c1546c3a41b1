"""Protocols between a stream and its samples.

A `SampleSource` describes the samples: how many, in which order, how large. For one epoch it opens a reader that
returns them by position. Sources live beside the data they read: tables in `warpdata.datasets`, windows of episodes
in `warpdata.kinds.episodes`, mixtures in this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from warpdata.streaming.collate import Columns
from warpdata.streaming.order import Shuffle
from warpdata.streaming.shuffle_buffer import LoadExecutors, OwnedPositions, ShuffleBuffer
from warpdata.streaming.state import ConsumedSegment, StreamIdentity, TableIdentity

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "BatchReader",
    "OnSelectivity",
    "SampleLocation",
    "SampleReader",
    "SampleSource",
    "VersionedSource",
]

SampleLocation: TypeAlias = tuple[int, int]
"""Part of a mixture (else 0) and row of its table; for windows, episode and step."""

OnSelectivity: TypeAlias = Callable[[float], None]
"""Receives the share of rows that the filters keep, before any of these rows is read."""


class SampleReader(Protocol):
    """Samples of one epoch by position."""

    def columns(self, start: int, stop: int) -> Columns:
        """Return the samples at positions [start, stop), in order."""
        ...

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return the same samples as an Arrow table."""
        ...

    def advance(self, position: int) -> None:
        """Release samples before the position and prefetch later ones."""
        ...

    def close(self) -> None:
        """Wait until no thread works for this reader."""
        ...


@runtime_checkable
class BatchReader(Protocol):
    """Batches of one epoch, for sources that write samples directly into the arrays of a batch."""

    @property
    def batch_threads(self) -> int:
        """The number of threads that should make batches. Where making is copying, one is best."""
        ...

    def arrays(self, spans: Sequence[tuple[int, int]], turn: int) -> tuple[dict[str, NDArray[Any]], int]:
        """Return the samples at these positions, stacked by name, and how many replace samples that did not decode.

        `turn` counts the batches of this worker from 0.
        """
        ...

    def advance(self, position: int) -> None:
        """Release samples before the position and prefetch later ones."""
        ...

    def close(self) -> None:
        """Wait until no thread works for this reader."""
        ...


class SampleSource(Protocol):
    """Samples of a stream. Sizes are averages over all samples."""

    @property
    def identity(self) -> StreamIdentity: ...

    @property
    def known_count(self) -> int | None:
        """The number of samples, or None if only a scan can count them."""
        ...

    @property
    def max_samples(self) -> int:
        """Upper bound on the number of samples."""
        ...

    @property
    def sample_bytes(self) -> float:
        """Size of a sample, including its media."""
        ...

    @property
    def media_bytes(self) -> float:
        """Size of the media of a sample."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Memory for rows that stay decoded between windows."""
        ...

    @property
    def table_requests(self) -> int:
        """Estimated number of requests that read all rows once."""
        ...

    @property
    def shuffle(self) -> Shuffle | None: ...

    def open(self, epoch: int, owned: OwnedPositions, *, with_media: bool) -> SampleReader | BatchReader:
        """Open a reader for an epoch. It prefetches samples at the positions `owned` by this consumer."""
        ...

    def locate(self, start: int, stop: int, epoch: int) -> list[SampleLocation]:
        """Return the stored location of each sample at positions [start, stop)."""
        ...

    def position_of(self, location: SampleLocation, epoch: int) -> int:
        """Return the first position of a stored sample."""
        ...


@dataclass(frozen=True)
class VersionedSource(ABC):
    """A `SampleSource` over rows of one table. It can be mixed with others and rebased on another version.

    `row_bytes` is the size of a row, `sample_bytes` includes its media. `consumed` has the segments of the epoch that
    were consumed from earlier versions.
    """

    dataset_id: str
    version: str
    sample_bytes: float
    row_bytes: float
    shuffle: Shuffle | None
    seed: int
    consumed: tuple[ConsumedSegment, ...] = field(default=(), kw_only=True)

    @property
    @abstractmethod
    def media_bytes(self) -> float: ...

    @property
    @abstractmethod
    def identity(self) -> TableIdentity: ...

    @property
    @abstractmethod
    def known_count(self) -> int | None: ...

    @property
    @abstractmethod
    def max_samples(self) -> int: ...

    @property
    @abstractmethod
    def cache_bytes(self) -> int: ...

    @property
    @abstractmethod
    def table_requests(self) -> int: ...

    @property
    @abstractmethod
    def column_names(self) -> list[str]: ...

    @abstractmethod
    def open(self, epoch: int, owned: OwnedPositions, *, with_media: bool) -> SampleReader: ...

    @abstractmethod
    def shuffle_buffer(
        self, epoch: int, executors: LoadExecutors, owned: OwnedPositions, *, with_media: bool
    ) -> ShuffleBuffer:
        """Return the buffer of an epoch. The caller closes the executors."""

    @abstractmethod
    def locate(self, start: int, stop: int, epoch: int) -> list[SampleLocation]: ...

    @abstractmethod
    def position_of(self, location: SampleLocation, epoch: int) -> int: ...

    @abstractmethod
    def rebased(
        self, epoch: int, consumed: Sequence[ConsumedSegment], source_at: Callable[[str], VersionedSource]
    ) -> VersionedSource:
        """Return the rows of this version that no segment of the epoch has consumed, as a source.

        `source_at` returns the same source at another version.
        """
