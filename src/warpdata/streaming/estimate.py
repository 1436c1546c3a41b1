"""An estimate of what an epoch of a stream costs, before any of it is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from warpdata.limits import MEMBER_REQUEST_BYTES
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.order import BatchSchedule
from warpdata.streaming.shuffle_buffer import span_rows
from warpdata.streaming.source import SampleSource

__all__ = ["EpochEstimate"]

_WINDOWS_IN_MEMORY = 2


@dataclass(frozen=True, slots=True)
class EpochEstimate:
    """Counts of one epoch over all ranks. `requests` is an estimate for data that is not locally available.

    `is_exact` is False until the filter was applied: then counts are upper bounds. `mixing` is the share of all
    samples that a sample may change places with; 1.0 is a full shuffle. `memory_bytes` is the memory of one rank
    with full windows, cached rows and prefetched batches, and of requests in flight. `concurrency` requests are in
    flight now, and `threads` make batches; both follow the machine, and `concurrency` also the network.
    """

    is_exact: bool
    samples: int
    steps: int
    global_batch: int
    last_batch: int
    remainder: str
    sample_bytes: float
    epoch_bytes: float
    requests: int
    block_rows: int | None
    window_samples: int
    window_bytes: float
    windows: int
    mixing: float
    memory_bytes: float
    concurrency: int
    threads: int

    @staticmethod
    def of(source: SampleSource, options: StreamOptions, *, concurrency: int, threads: int) -> EpochEstimate:
        known, shuffle, sample_bytes = source.known_count, source.shuffle, source.sample_bytes
        count = source.max_samples if known is None else known
        schedule = BatchSchedule(count, options.batch_size, options.world_size, options.remainder)
        if shuffle is None:
            window = min(count, span_rows(count, sample_bytes))
        else:
            window = min(count, shuffle.block_rows * shuffle.window_blocks)
        block_bytes = MEMBER_REQUEST_BYTES if shuffle is None else shuffle.block_rows * source.media_bytes
        request_bytes = min(max(block_bytes, source.media_bytes, 1.0), max(MEMBER_REQUEST_BYTES, source.media_bytes))
        in_memory = _WINDOWS_IN_MEMORY * window / options.world_size + (options.prefetch + 1) * options.batch_size
        return EpochEstimate(
            is_exact=known is not None,
            samples=count,
            steps=len(schedule),
            global_batch=schedule.global_batch,
            last_batch=count % schedule.global_batch or min(count, schedule.global_batch),
            remainder=schedule.remainder,
            sample_bytes=sample_bytes,
            epoch_bytes=count * sample_bytes,
            requests=source.table_requests + ceil(count * source.media_bytes / request_bytes),
            block_rows=None if shuffle is None else shuffle.block_rows,
            window_samples=window,
            window_bytes=window * sample_bytes,
            windows=-(-count // window) if window else 0,
            mixing=0.0 if shuffle is None or not count else window / count,
            memory_bytes=in_memory * sample_bytes + source.cache_bytes + concurrency * request_bytes,
            concurrency=concurrency,
            threads=threads,
        )

    def __str__(self) -> str:
        about = "" if self.is_exact else "at most "
        lines = [
            f"{about}{self.samples:,} samples, {self.epoch_bytes / 1e6:,.1f} MB an epoch",
            f"about {self.requests:,} requests, {self.concurrency:,} at a time; {self.threads:,} threads",
            f"{about}{self.steps:,} steps of {self.global_batch:,} samples over all ranks",
            f"the last step has {self.last_batch:,}; remainder: {self.remainder}",
            f"up to {self.memory_bytes / 1e6:,.1f} MB of memory",
        ]
        if not self.is_exact:
            lines.insert(1, "the filter has not been applied yet")
        if self.block_rows is None:
            lines.append("not shuffled")
        else:
            lines.append(
                f"shuffled in {self.windows:,} windows of {self.window_samples:,} samples "
                f"({self.window_bytes / 1e6:,.1f} MB), blocks of {self.block_rows:,}; "
                f"each sample mixes with {self.mixing:.0%} of all"
            )
        return "\n".join(lines)
