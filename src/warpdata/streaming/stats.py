"""Statistics of a running stream: on the stream object, in the log, and as a live progress line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TextIO, TypeAlias, TypeVar

from warpdata.storage import IOStats

__all__ = ["COUNT_NUMBERS", "BatchCounts", "Clock", "StreamStats", "Telemetry"]

Clock: TypeAlias = Callable[[], float]
"""Monotonic seconds."""

_T = TypeVar("_T")
_LOG = logging.getLogger("warpdata.streaming")
_LOG_EVERY_S = 30.0
_LINE_EVERY_S = 0.2
_NO_IO = IOStats()
_IO_NAMES = tuple(known.name for known in fields(IOStats))


@dataclass(frozen=True, slots=True)
class StreamStats:
    """Totals since the stream was opened.

    `waiting_s` is the time that the consumer waited for data, `working_s` its time between batches. `bytes` are the
    bytes of the samples: media as stored, other columns in memory. `io` counts what the session of the dataset did in
    this process, and the sessions of worker processes for the batches that they sent.
    """

    batches: int = 0
    samples: int = 0
    substituted: int = 0
    bytes: int = 0
    waiting_s: float = 0.0
    working_s: float = 0.0
    queued: int = 0
    io: IOStats = field(default_factory=IOStats)

    @property
    def samples_per_s(self) -> float:
        return self._rate(self.samples)

    @property
    def bytes_per_s(self) -> float:
        return self._rate(self.bytes)

    @property
    def waiting_share(self) -> float:
        """Share of the time that the consumer waited for data."""
        return self._rate(self.waiting_s)

    def _rate(self, amount: float) -> float:
        spent = self.waiting_s + self.working_s
        return amount / spent if spent else 0.0

    def __str__(self) -> str:
        reads = self.io.hits + self.io.misses
        hits = f", {self.io.hits / reads:.0%} cache hits" if reads else ""
        return (
            f"{self.samples:,} samples, {self.samples_per_s:,.0f}/s, {self.bytes_per_s / 1e6:,.1f} MB/s, "
            f"{self.waiting_share:.0%} waiting, {self.queued} queued{hits}"
        )


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Counts of some batches, as worker processes report them."""

    samples: int = 0
    bytes: int = 0
    substituted: int = 0
    io: IOStats = _NO_IO

    @staticmethod
    def between(earlier: StreamStats, later: StreamStats) -> BatchCounts:
        """Return what a stream counted between two moments."""
        return BatchCounts(
            later.samples - earlier.samples,
            later.bytes - earlier.bytes,
            later.substituted - earlier.substituted,
            later.io.since(earlier.io),
        )

    @property
    def numbers(self) -> list[int]:
        """The counts as a list, for shared memory and queues."""
        return [self.samples, self.bytes, self.substituted, *_numbers(self.io)]

    @staticmethod
    def of(numbers: Sequence[int]) -> BatchCounts:
        """Return the counts of a list that `numbers` returned, or of the sum of several lists."""
        samples, size_bytes, substituted, *io = numbers
        return BatchCounts(samples, size_bytes, substituted, IOStats(*io))


COUNT_NUMBERS = 3 + len(_IO_NAMES)
"""Length of the list of `BatchCounts.numbers`."""


class Telemetry:
    """Collects the statistics of one stream, in the thread that consumes it."""

    def __init__(self, clock: Clock, io_stats: Callable[[], IOStats] = IOStats) -> None:
        self.clock = clock
        self._io_stats = io_stats
        self._io_before = io_stats()
        self._worker_io = IOStats()
        self._stats = StreamStats()
        self._returned_at: float | None = None
        self._logged_at: float | None = None
        self._written_at: float | None = None

    def __repr__(self) -> str:
        return f"Telemetry({self.stats})"

    @property
    def stats(self) -> StreamStats:
        return replace(self._stats, io=_sum_of(self._io_stats().since(self._io_before), self._worker_io))

    def wait_for(self, wait: Callable[[], _T], queued: int) -> _T:
        """Return `wait()`. Its duration counts as waiting, the time since the last batch as working."""
        began, now = self._returned_at, self.clock()
        result = wait()
        ended = self.clock()
        self._stats = replace(
            self._stats,
            waiting_s=self._stats.waiting_s + ended - now,
            working_s=self._stats.working_s + (0.0 if began is None else now - began),
            queued=queued,
        )
        return result

    def count_batch(self, counts: BatchCounts) -> None:
        """Count a batch that the consumer receives now, and log the statistics every half minute."""
        stats = self._stats
        self._stats = replace(
            stats,
            batches=stats.batches + 1,
            samples=stats.samples + counts.samples,
            bytes=stats.bytes + counts.bytes,
            substituted=stats.substituted + counts.substituted,
        )
        if counts.io is not _NO_IO:
            self._worker_io = _sum_of(self._worker_io, counts.io)
        self._returned_at = self.clock()
        if self._logged_at is None:
            self._logged_at = self._returned_at
        elif self._returned_at - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = self._returned_at
            _LOG.info("%s", self.stats)

    def write_line(self, file: TextIO, step: int, steps: int) -> None:
        """Rewrite the progress line, a few times a second. The line of the last step stays."""
        now = self.clock()
        if step < steps and self._written_at is not None and now - self._written_at < _LINE_EVERY_S:
            return
        self._written_at = now
        file.write(f"\r\x1b[K{step:,} of {steps:,} steps, {self.stats}" + ("\n" if step >= steps else ""))
        file.flush()


def _sum_of(one: IOStats, other: IOStats) -> IOStats:
    return IOStats(*map(sum, zip(_numbers(one), _numbers(other), strict=True)))


def _numbers(io: IOStats) -> list[int]:
    return [getattr(io, name) for name in _IO_NAMES]
