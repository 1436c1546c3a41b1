"""What a dataset has for training: streams of its tables, for Python and for PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from warpdata.datasets.stream_request import StreamRequest
    from warpdata.streaming import (
        Collate,
        OnError,
        OpenStream,
        Remainder,
        Shuffle,
        Stream,
        StreamOptions,
        TorchLoader,
        Transform,
    )

__all__ = ["Streams"]


class Streams(ABC):
    """The part of a dataset that makes streams; how one is opened is the dataset's matter."""

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether its store is a folder of this machine."""

    @abstractmethod
    def main_table(self) -> str:
        """The table that is meant where none is named."""

    @abstractmethod
    def open_stream(self, request: StreamRequest, options: StreamOptions) -> Stream:
        """As `stream`, from values that were checked."""

    @abstractmethod
    def reopening(self, request: StreamRequest, options: StreamOptions) -> OpenStream:
        """As `open_stream`, but later, and perhaps in another process."""

    def stream(
        self,
        table: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        batch_size: int = 256,
        shuffle: bool | Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | str | None = None,
        remainder: Remainder = "partial",
        prefetch: int | str = "auto",
        decode: bool = True,
        transform: Transform | None = None,
        collate: Collate = "numpy",
        on_error: OnError = "raise",
        progress: bool | TextIO = False,
    ) -> Stream:
        """Batches for training: the same global order on any number of ranks, and exact resume.

        `batch_size` is per rank. `shard` is `(rank, world_size)` or "auto". What is left over at the end of an
        epoch is split evenly ("partial"), filled up ("pad") or left out ("drop"). References are read and
        decoded, then `transform` is given each sample as a dict. `progress` writes a live line to a file, or to
        standard error.
        """
        from warpdata.datasets.stream_request import (  # needs numpy
            StreamOptions,
            batches_ahead,
            live_line,
            resolve_rank,
        )

        rank, world_size = resolve_rank(shard)
        request = self._request(table, columns, filter, shuffle, seed)
        options = StreamOptions(
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
            prefetch=batches_ahead(prefetch),
            decode=decode,
            transform=transform,
            collate=collate,
            on_error=on_error,
            progress=live_line(progress),
        )
        return self.open_stream(request, options)

    def to_torch(
        self,
        table: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        batch_size: int = 256,
        shuffle: bool | Shuffle = False,
        seed: int = 0,
        shard: tuple[int, int] | str | None = "auto",
        remainder: Remainder = "partial",
        decode: bool = True,
        transform: Transform | None = None,
        on_error: OnError = "raise",
        progress: bool | TextIO = False,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> TorchLoader:
        """A stream as a loader for PyTorch, with batches of tensors made in worker processes."""
        from warpdata.datasets.stream_request import TorchLoader

        stream = self.stream(
            table,
            columns=columns,
            filter=filter,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            remainder=remainder,
            decode=decode,
            transform=transform,
            collate="torch",
            on_error=on_error,
            progress=progress,
        )
        request = self._request(table, columns, filter, shuffle, seed)
        reopen = self.reopening(request, stream.options.for_workers())
        return TorchLoader(stream, reopen, num_workers, pin_memory=pin_memory, may_fork=self.is_local)

    def _request(
        self,
        table: str | None,
        columns: Sequence[str] | None,
        condition: str | None,
        shuffle: bool | Shuffle,
        seed: int,
    ) -> StreamRequest:
        from warpdata.datasets.stream_request import StreamRequest

        wanted = None if columns is None else tuple(columns)
        return StreamRequest(table or self.main_table(), wanted, condition, shuffle, seed)
