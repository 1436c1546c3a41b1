"""How a stream is doing: samples, waiting, working, queue. Numbers on the object, and a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from warpdata.streaming.options import StreamOptions
from warpdata.streaming.samples import Made

__all__ = ["Clock", "Figures", "Telemetry"]

Clock: TypeAlias = Callable[[], float]
"""Seconds, from any beginning, never going back."""

_T = TypeVar("_T")
_LOG = logging.getLogger("warpdata.streaming")
_LOG_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Figures:
    """`waiting_s` is what the consumer stood still for data, `working_s` what it did between batches."""

    batches: int
    samples: int
    substituted: int
    waiting_s: float
    working_s: float
    queued: int

    @property
    def samples_per_s(self) -> float:
        spent = self.waiting_s + self.working_s
        return self.samples / spent if spent else 0.0


class Telemetry:
    """Counts for one stream, in the thread that consumes it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._figures = Figures(0, 0, 0, 0.0, 0.0, 0)
        self._handed_at: float | None = None
        self._logged_at: float | None = None

    @property
    def figures(self) -> Figures:
        return self._figures

    def waited_for(self, future: Future[_T], queued: int) -> _T:
        """The result of the future; the time until it is there counts as waiting, the time before as working."""
        began, now = self._handed_at, self.clock()
        result = future.result()
        ended = self.clock()
        figures = self._figures
        self._figures = Figures(
            figures.batches,
            figures.samples,
            figures.substituted,
            figures.waiting_s + ended - now,
            figures.working_s + (0.0 if began is None else now - began),
            queued,
        )
        return result

    def handed_out(self, made: Made, options: StreamOptions) -> None:
        figures = self._figures
        self._figures = Figures(
            figures.batches + 1,
            figures.samples + made.size,
            figures.substituted + made.substituted,
            figures.waiting_s,
            figures.working_s,
            figures.queued,
        )
        self._handed_at = self.clock()
        if self._logged_at is None:
            self._logged_at = self._handed_at
        elif self._handed_at - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = self._handed_at
            _LOG.info("rank %d: %s, %.0f samples/s", options.rank, self._figures, self._figures.samples_per_s)
