"""What a dataset has for training: streams of its tables, for Python and for PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from warpdata.datasets.stream_request import StreamRequest
    from warpdata.streaming import Collate, OpenStream, RowKeywords, Stream, TorchLoader

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
    def open_stream(self, request: StreamRequest) -> Stream:
        """Open the stream of a checked request."""

    @abstractmethod
    def reopening(self, request: StreamRequest) -> OpenStream:
        """Return a function that opens the stream later, perhaps in another process."""

    def stream(
        self, table: str | None = None, *, collate: Collate = "numpy", **keywords: Unpack[RowKeywords]
    ) -> Stream:
        """Stream batches for training: the same global order on any number of ranks, with exact resume.

        `columns` and an SQL `filter` select from the table. `batch_size` is per rank, and `shard` is
        `(rank, world_size)` or "auto". `remainder` says what happens to samples left over at the end of an epoch:
        split evenly ("partial"), filled up ("pad") or left out ("drop"). References are read and decoded unless
        `decode` is False; `on_error="substitute"` replaces samples that cannot be decoded. `transform` receives
        each sample as a dict. `progress` writes a live line to a file, or to standard error.
        """
        from warpdata.datasets.stream_request import StreamRequest  # needs NumPy

        return self.open_stream(StreamRequest.parse(table or self.main_table(), keywords, collate=collate))

    def to_torch(
        self,
        table: str | None = None,
        *,
        num_workers: int = 0,
        pin_memory: bool = False,
        **keywords: Unpack[RowKeywords],
    ) -> TorchLoader:
        """Stream batches of tensors from worker processes of a PyTorch loader. `shard` is "auto" by default."""
        from warpdata.datasets.stream_request import StreamRequest, TorchLoader

        keywords.setdefault("shard", "auto")
        request = StreamRequest.parse(table or self.main_table(), keywords, collate="torch")
        stream, reopen = self.open_stream(request), self.reopening(request.for_workers())
        return TorchLoader(stream, reopen, num_workers, pin_memory=pin_memory, may_fork=self.is_local)
