"""What an ingest found on disk, told to whoever wants to know before anything is published."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["IngestReport", "OnReport", "log_report"]

_LOG = logging.getLogger("warpdata.ingest")


@dataclass(frozen=True, slots=True)
class IngestReport:
    """`ignored` counts files left out, by the ending of their name; `undescribed` media have no row of metadata."""

    source: str
    rows: int
    members: int
    ignored: Mapping[str, int] = field(default_factory=dict)
    undescribed: int = 0


class OnReport(Protocol):
    """Takes the report of an ingest, before anything is published."""

    def __call__(self, report: IngestReport, /) -> None: ...


def log_report(report: IngestReport) -> None:
    """Write it to the log `warpdata.ingest`, files that were left out as a warning."""
    _LOG.info("%s: %d rows, %d files", report.source, report.rows, report.members)
    if report.ignored:
        _LOG.warning("%s: files of other types were left out: %s", report.source, dict(report.ignored))
    if report.undescribed:
        _LOG.warning("%s: the metadata does not name %d files", report.source, report.undescribed)
