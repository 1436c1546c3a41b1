"""How a stream is doing: samples, bytes, waiting, working, queue. On the object, in the log, and as a live line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TextIO, TypeAlias, TypeVar

__all__ = ["Clock", "Figures", "Telemetry", "Traffic"]

Clock: TypeAlias = Callable[[], float]
"""Seconds, from any beginning, never going back."""

_T = TypeVar("_T")
_LOG = logging.getLogger("warpdata.streaming")
_LOG_EVERY_S = 30.0
_LINE_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a connection asked the store for, and what the cache spared it. All zero where everything is near."""

    requests: int = 0
    bytes_fetched: int = 0
    cache_hits: int = 0
    cache_misses: int = 0

    def since(self, earlier: Traffic) -> Traffic:
        return Traffic(
            self.requests - earlier.requests,
            self.bytes_fetched - earlier.bytes_fetched,
            self.cache_hits - earlier.cache_hits,
            self.cache_misses - earlier.cache_misses,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """`waiting_s` is what the consumer stood still for data, `working_s` what it did between batches.

    `bytes` are those of the samples: their media as stored, their other columns in memory. `traffic` is that of
    the dataset's connection in this process since the stream was opened; worker processes have their own.
    """

    batches: int = 0
    samples: int = 0
    substituted: int = 0
    bytes: int = 0
    waiting_s: float = 0.0
    working_s: float = 0.0
    queued: int = 0
    traffic: Traffic = Traffic()

    @property
    def samples_per_s(self) -> float:
        return self._rate(self.samples)

    @property
    def bytes_per_s(self) -> float:
        return self._rate(self.bytes)

    @property
    def waiting_share(self) -> float:
        """Of the time, how much was spent waiting for data."""
        return self._rate(self.waiting_s)

    def _rate(self, amount: float) -> float:
        spent = self.waiting_s + self.working_s
        return amount / spent if spent else 0.0

    def __str__(self) -> str:
        asked = self.traffic.cache_hits + self.traffic.cache_misses
        hits = f", {self.traffic.cache_hits / asked:.0%} cache hits" if asked else ""
        return (
            f"{self.samples:,} samples, {self.samples_per_s:,.0f}/s, {self.bytes_per_s / 1e6:,.1f} MB/s, "
            f"{self.waiting_share:.0%} waiting, {self.queued} queued{hits}"
        )


class Telemetry:
    """Counts for one stream, in the thread that consumes it."""

    def __init__(self, clock: Clock, traffic: Callable[[], Traffic] = Traffic) -> None:
        self.clock = clock
        self._traffic = traffic
        self._traffic_before = traffic()
        self._figures = Figures()
        self._handed_at: float | None = None
        self._logged_at: float | None = None
        self._written_at: float | None = None

    @property
    def figures(self) -> Figures:
        return replace(self._figures, traffic=self._traffic().since(self._traffic_before))

    def waited_for(self, wait: Callable[[], _T], queued: int) -> _T:
        """What `wait` returns; the time until it does counts as waiting, the time before as working."""
        began, now = self._handed_at, self.clock()
        result = wait()
        ended = self.clock()
        self._figures = replace(
            self._figures,
            waiting_s=self._figures.waiting_s + ended - now,
            working_s=self._figures.working_s + (0.0 if began is None else now - began),
            queued=queued,
        )
        return result

    def handed_out(self, samples: int, size_bytes: int = 0, substituted: int = 0) -> None:
        figures = self._figures
        self._figures = replace(
            figures,
            batches=figures.batches + 1,
            samples=figures.samples + samples,
            bytes=figures.bytes + size_bytes,
            substituted=figures.substituted + substituted,
        )
        self._handed_at = self.clock()
        if self._logged_at is None:
            self._logged_at = self._handed_at
        elif self._handed_at - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = self._handed_at
            _LOG.info("%s", self.figures)

    def show(self, line: TextIO, step: int, steps: int) -> None:
        """Write the live line anew, a few times a second; after the last step it stays."""
        now = self.clock()
        if step < steps and self._written_at is not None and now - self._written_at < _LINE_EVERY_S:
            return
        self._written_at = now
        line.write(f"\r\x1b[K{step:,} of {steps:,} steps, {self.figures}" + ("\n" if step >= steps else ""))
        line.flush()
