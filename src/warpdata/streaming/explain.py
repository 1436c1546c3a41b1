"""What an epoch of a stream takes, told before any of it is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from warpdata.limits import MEMBER_REQUEST_BYTES, STREAM_KEPT_BYTES, STREAM_SPAN_BYTES
from warpdata.streaming.batching import Steps
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.sources import Plan

__all__ = ["Explanation"]

_WINDOWS_HELD = 2


@dataclass(frozen=True, slots=True)
class Explanation:
    """Counts are of an epoch over all ranks; `requests` is an estimate, for data that is not on this machine.

    `is_exact` is False as long as a filter was not applied: then the counts are those without it.
    `mixing` is the share of all samples that a sample may change places with: 1.0 is a full shuffle.
    `memory_bytes` is what one rank holds when its windows, kept rows and prepared batches are full.
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

    @staticmethod
    def of(plan: Plan, options: StreamOptions) -> Explanation:
        known, shuffle, sample_bytes = plan.known_count, plan.shuffle, plan.sample_bytes
        count = plan.most_samples if known is None else known
        steps = Steps(count, options.batch_size, options.world_size, options.remainder)
        if shuffle is None:
            window = min(count, max(1, int(STREAM_SPAN_BYTES / max(sample_bytes, 1.0))))
        else:
            window = min(count, shuffle.block_rows * shuffle.window_blocks)
        block_bytes = MEMBER_REQUEST_BYTES if shuffle is None else shuffle.block_rows * plan.media_bytes
        request_bytes = min(max(block_bytes, plan.media_bytes, 1.0), max(MEMBER_REQUEST_BYTES, plan.media_bytes))
        held = _WINDOWS_HELD * window / options.world_size + (options.prefetch + 1) * options.batch_size
        return Explanation(
            is_exact=known is not None,
            samples=count,
            steps=len(steps),
            global_batch=steps.global_batch,
            last_batch=count % steps.global_batch or min(count, steps.global_batch),
            remainder=steps.remainder,
            sample_bytes=sample_bytes,
            epoch_bytes=count * sample_bytes,
            requests=plan.table_requests + ceil(count * plan.media_bytes / request_bytes),
            block_rows=None if shuffle is None else shuffle.block_rows,
            window_samples=window,
            window_bytes=window * sample_bytes,
            windows=-(-count // window) if window else 0,
            mixing=0.0 if shuffle is None or not count else window / count,
            memory_bytes=held * sample_bytes + min(STREAM_KEPT_BYTES, plan.table_bytes),
        )

    def __str__(self) -> str:
        about = "" if self.is_exact else "at most "
        lines = [
            f"{about}{self.samples:,} samples, {self.epoch_bytes / 1e6:,.1f} MB an epoch",
            f"about {self.requests:,} requests for it",
            f"{about}{self.steps:,} steps of {self.global_batch:,} samples over all ranks",
            f"the last step has {self.last_batch:,}; remainder: {self.remainder}",
            f"up to {self.memory_bytes / 1e6:,.1f} MB of memory",
        ]
        if not self.is_exact:
            lines.insert(1, "how many the filter keeps is known when its columns have been read")
        if self.block_rows is None:
            lines.append("in the order of the table")
        else:
            lines.append(
                f"shuffled in {self.windows:,} windows of {self.window_samples:,} samples "
                f"({self.window_bytes / 1e6:,.1f} MB), blocks of {self.block_rows:,}; "
                f"a sample changes places with {self.mixing:.0%} of all"
            )
        return "\n".join(lines)
