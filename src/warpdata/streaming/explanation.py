"""What an epoch of a stream takes, told before any of it is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.streaming.feeds import Plan
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.steps import Steps

__all__ = ["Explanation"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """`mixing` is the share of all samples that a sample may change places with: 1.0 is a full shuffle."""

    plan_hash: str
    samples: int
    steps: int
    global_batch: int
    last_batch: int
    remainder: str
    sample_bytes: float
    epoch_bytes: float
    block_rows: int | None
    window_samples: int
    window_bytes: float
    windows: int
    mixing: float

    @staticmethod
    def of(plan: Plan, steps: Steps, options: StreamOptions) -> Explanation:
        identity, sample_bytes, shuffle = plan.identity, plan.sample_bytes, plan.shuffle
        count = identity.sample_count
        window = options.batch_size if shuffle is None else min(count, shuffle.block_rows * shuffle.window_blocks)
        return Explanation(
            plan_hash=identity.plan_hash,
            samples=count,
            steps=len(steps),
            global_batch=steps.global_batch,
            last_batch=count % steps.global_batch or min(count, steps.global_batch),
            remainder=steps.remainder,
            sample_bytes=sample_bytes,
            epoch_bytes=count * sample_bytes,
            block_rows=None if shuffle is None else shuffle.block_rows,
            window_samples=window,
            window_bytes=window * sample_bytes,
            windows=-(-count // window) if window else 0,
            mixing=0.0 if shuffle is None or not count else window / count,
        )

    def __str__(self) -> str:
        lines = [
            f"{self.samples:,} samples, {self.epoch_bytes / 1e6:,.1f} MB an epoch",
            f"{self.steps:,} steps of {self.global_batch:,} samples over all ranks",
            f"the last step has {self.last_batch:,}; remainder: {self.remainder}",
        ]
        if self.block_rows is None:
            lines.append("in the order of the table")
        else:
            lines.append(
                f"shuffled in {self.windows:,} windows of {self.window_samples:,} samples "
                f"({self.window_bytes / 1e6:,.1f} MB), blocks of {self.block_rows:,}; "
                f"a sample changes places with {self.mixing:.0%} of all"
            )
        return "\n".join(lines)
