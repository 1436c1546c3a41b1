"""Bindings checked before anything is uploaded: every cell of a bound column must refer to a member or byte range.

Otherwise a reader would find the dangling reference months later. A binding joins two kinds, tables and artifacts,
so it is checked here and not by a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from warpdata.errors import BadInputError, ColumnNotFoundError, InvalidSourceError
from warpdata.kinds import StagedEntry, VersionContext, payload_kind
from warpdata.kinds.artifacts import Artifact, StagedArtifact
from warpdata.kinds.tables import StagedTable, check_reference_column
from warpdata.primitives.suggest import suggest
from warpdata.repository.manifest import REF_TYPES, Binding, iter_shards

__all__ = ["check_appended", "check_names", "check_ref_type", "check_staged", "sample_paths"]

_SAMPLE_PATHS = 16


@dataclass(frozen=True, slots=True)
class _Target:
    """An artifact that a column is bound to. `example` is one of its member paths, for messages."""

    contains: Callable[[str], bool]
    shard_bytes: Sequence[int]
    example: str


def check_ref_type(ref_type: str) -> str:
    if ref_type not in REF_TYPES:
        raise BadInputError(f"ref_type={ref_type!r} is not known", hint=f"Known: {', '.join(sorted(REF_TYPES))}.")
    return ref_type


def check_names(bindings: Iterable[Binding], tables: Collection[str], artifacts: Collection[str]) -> None:
    """Raise `BadInputError` if a binding names a table or artifact that is not part of the publish."""
    for binding in bindings:
        for noun, name, known in (("table", binding.table, tables), ("artifact", binding.artifact, artifacts)):
            if name not in known:
                raise BadInputError(
                    f"a binding names {noun} {name!r}, which is not part of this publish",
                    hint=f"Known {noun}s: {', '.join(sorted(known)) or 'none'}.",
                )


def sample_paths(bindings: Iterable[Binding], artifact: str, tables: Mapping[str, StagedEntry]) -> list[str]:
    """Return the first few paths of each column that is bound to the artifact."""
    paths: list[str] = []
    for binding in bindings:
        table = tables[binding.table] if binding.artifact == artifact else None
        if isinstance(table, StagedTable) and table.schema is not None and binding.column in table.schema.names:
            cells = (value for _, _, values in table.read_column(binding.column) for value in values)
            paths += islice((cell for cell in cells if isinstance(cell, str)), _SAMPLE_PATHS)
    return paths


def check_staged(
    bindings: Iterable[Binding], name: str, artifact: StagedArtifact, tables: Mapping[str, StagedEntry]
) -> None:
    """Check the columns that are bound to a staged artifact. `InvalidSourceError` has the first wrong cell."""
    bound = [binding for binding in bindings if binding.artifact == name]
    if bound:
        paths = {packed.member.path for packed in artifact.members}
        shard_bytes = [shard.byte_size for shard in artifact.shards]
        target = _Target(paths.__contains__, shard_bytes, artifact.members[0].member.path)
        for binding in bound:
            _check(binding, tables[binding.table], target)


def check_appended(version: VersionContext, tables: Mapping[str, StagedEntry]) -> None:
    """Check rows that are appended to tables with bindings against the stored artifacts."""
    for binding in version.manifest.bindings:
        if binding.table in tables and tables[binding.table].shards:
            artifact: Artifact = payload_kind("artifacts").open(version, binding.artifact)
            first = next(artifact.members(), None)
            shard_bytes = [shard.byte_size for shard in iter_shards(artifact.entry.shards, version.load_page)]
            target = _Target(artifact.__contains__, shard_bytes, first.path if first else "")
            _check(binding, tables[binding.table], target)


def _check(binding: Binding, table: StagedEntry, target: _Target) -> None:
    assert isinstance(table, StagedTable)
    if table.schema is None:
        return
    if binding.column not in table.schema.names:
        raise ColumnNotFoundError(
            f"table {binding.table!r} has no column {binding.column!r} to bind",
            hint=suggest(binding.column, table.schema.names, label="The columns are"),
        )
    check_reference_column(table.schema.field(binding.column))
    for path, first_row, values in table.read_column(binding.column):
        for number, value in enumerate(values):
            problem = _problem(value, target)
            if problem is not None:
                raise InvalidSourceError(
                    f"row {first_row + number} of {path.name} (table {binding.table!r}, column {binding.column!r}): "
                    f"{problem} artifact {binding.artifact!r}",
                    hint=f"Its members are named like {target.example!r}; prefix=… changes the beginning of all paths.",
                )


def _problem(value: Any, target: _Target) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return None if target.contains(value) else f"{value!r} is not in"
    shard, offset, length = (value[name] for name in ("shard", "offset", "length"))
    if None in (shard, offset, length) or min(shard, offset, length) < 0:
        return f"{value} is not a byte range of"
    if shard >= len(target.shard_bytes) or offset + length > target.shard_bytes[shard]:
        return f"bytes {offset}…{offset + length} of shard {shard} are not in"
    return None
