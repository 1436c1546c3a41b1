"""The options that all ingests share: packing of raw files, and the report of what was found."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from warpdata.kinds.artifacts import ArtifactInput
from warpdata.primitives.outcomes import FieldOutcomes
from warpdata.publish import DatasetBuilder

__all__ = ["IngestReport", "OnReport", "Packing", "log_report"]

_LOG = logging.getLogger("warpdata.ingest")


@dataclass(frozen=True, slots=True)
class Packing:
    """Options of `DatasetBuilder.add_artifact`, which also checks them."""

    kind: str = "tar_shards"
    compression: str | None = None
    shard_bytes: int | None = None
    follow_links: bool = False

    def add(self, builder: DatasetBuilder, name: str, source: ArtifactInput) -> None:
        builder.add_artifact(
            name,
            source,
            self.kind,
            compression=self.compression,
            shard_bytes=self.shard_bytes,
            follow_links=self.follow_links,
        )


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The files that an ingest found.

    `ignored` counts skipped files by suffix. `undescribed` counts media files without a row of metadata. `fields` has
    the outcome of every column and split of a dataset of another library.
    """

    source: str
    rows: int
    members: int
    ignored: Mapping[str, int] = field(default_factory=dict)
    undescribed: int = 0
    fields: FieldOutcomes = field(default_factory=FieldOutcomes)


class OnReport(Protocol):
    """Takes the report of an ingest, before anything is published."""

    def __call__(self, report: IngestReport, /) -> None: ...


def log_report(report: IngestReport) -> None:
    """Write the report to the log `warpdata.ingest`. Skipped files are a warning."""
    _LOG.info("%s: %d rows, %d files", report.source, report.rows, report.members)
    if report.ignored:
        _LOG.warning("%s: skipped files of other types: %s", report.source, dict(report.ignored))
    if report.undescribed:
        _LOG.warning("%s: the metadata does not name %d files", report.source, report.undescribed)
    for outcome in (*report.fields.changed, *report.fields.lost):
        _LOG.warning("%s: %s: %s", report.source, outcome.field, outcome.how)
