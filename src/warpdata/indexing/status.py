"""The state of the indexes of a version: the rows that they cover, and the segments that are of no use any more."""

from __future__ import annotations

from dataclasses import dataclass, field

from warpdata.errors import CorruptError, ManifestCorruptedError, ObjectNotFoundError, UnsupportedError
from warpdata.kinds import VersionContext
from warpdata.kinds.indexes import INDEXES, OpenedIndex, Parameters, place_sources
from warpdata.repository.manifest import Payload

__all__ = ["IndexStatus", "index_statuses"]


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index of a version. Filters scan the rows that it does not cover.

    `stale_sources` of its `sources` are files that the version no longer has. `problem` says why the index has no
    effect, if it has none.
    """

    name: str
    kind: str
    table: str
    column: str
    parameters: Parameters
    segments: int
    size_bytes: int
    rows: int
    covered_rows: int
    sources: int
    stale_sources: int
    problem: str | None = field(default=None)


def index_statuses(version: VersionContext) -> list[IndexStatus]:
    """Describe all indexes of a version, by name. Reads their directories and the pages of the shard lists."""
    return [_status(version, name, payload) for name, payload in sorted(version.manifest.indexes.items())]


def _status(version: VersionContext, name: str, payload: Payload) -> IndexStatus:
    info = INDEXES.describe(name, payload)
    size_bytes = info.size_bytes + (payload.index.byte_size if payload.index is not None else 0)
    table = version.manifest.tables.get(info.table)
    rows = 0 if table is None else table.shards.row_count
    covered = sources = stale = 0
    parameters: Parameters = {}
    problem = f"there is no table {info.table!r}" if table is None else None
    try:
        index = INDEXES.open(version, name)
        parameters = index.entry.parameters
        covered, sources, stale = _coverage(version, index)
    except (CorruptError, ManifestCorruptedError, ObjectNotFoundError, UnsupportedError) as error:
        problem = error.message
    return IndexStatus(
        name, info.kind, info.table, info.column, parameters, info.segments, size_bytes, rows, covered, sources, stale,
        problem,
    )  # fmt: skip


def _coverage(version: VersionContext, index: OpenedIndex) -> tuple[int, int, int]:
    """Return the visible rows that are covered, the sources, and those that no shard of the version has."""
    places, entry = index.places, version.manifest.tables.get(index.entry.table)
    if entry is None:
        return 0, len(places), len(places)
    covered, used = 0, set()
    for located, source in place_sources(entry, version.load_page, index.entry.column, places):
        if source is not None:
            covered += located.shard.row_count or 0
            used.add((source.segment, source.start))
    return covered, len(places), len(places) - len(used)
