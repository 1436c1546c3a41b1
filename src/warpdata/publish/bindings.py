"""Bindings checked before anything is uploaded: every cell of a bound column must refer to a member or byte range.

Otherwise a reader would find the dangling reference months later. A binding joins two kinds, tables and artifacts,
so it is checked here and not by a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, ColumnNotFoundError, InvalidSourceError
from warpdata.kinds import StagedEntry, VersionContext, payload_kind
from warpdata.kinds.artifacts import Artifact, StagedArtifact
from warpdata.kinds.tables import StagedTable, Table, check_reference_column
from warpdata.primitives.suggest import suggest
from warpdata.publish.manifest_builder import StagedVersion
from warpdata.publish.references import referenced_artifact
from warpdata.repository.manifest import REF_TYPES, Binding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_bindings", "check_cells", "check_names", "check_origin", "check_ref_type", "sample_paths"]

_SAMPLE_PATHS = 16


@dataclass(frozen=True, slots=True)
class _Target:
    """An artifact that a column is bound to. `example` is one of its member paths, for messages."""

    missing: Callable[[set[str]], set[str]]
    """Returns the paths that the artifact does not have."""
    prepare: Callable[[Sequence[str]], None]
    shard_bytes: Sequence[int]
    example: str
    stored: Artifact | None = None

    @staticmethod
    def of_stored(artifact: Artifact) -> _Target:
        first = next(artifact.members(), None)
        shard_bytes = [shard.byte_size for shard in artifact.shards()]
        example = first.path if first else ""
        return _Target(artifact.missing, artifact.prepare, shard_bytes, example, artifact)

    @staticmethod
    def of_staged(artifact: StagedArtifact) -> _Target:
        if artifact.stored is not None:
            return _Target.of_stored(artifact.stored)
        paths = artifact.paths()
        shard_bytes = [shard.byte_size for shard in artifact.shards]
        return _Target(lambda wanted: wanted - paths, lambda _: None, shard_bytes, min(paths))


@dataclass(frozen=True, slots=True)
class _Cells:
    """The values of a bound column, in parts. Each part has its source and the number of its first row."""

    schema: pa.Schema
    parts: Iterable[tuple[str, int, list[Any]]]


def check_ref_type(ref_type: str) -> str:
    if ref_type not in REF_TYPES:
        raise BadInputError(f"ref_type={ref_type!r} is not known", hint=f"Known: {', '.join(sorted(REF_TYPES))}.")
    return ref_type


def check_names(bindings: Iterable[Binding], tables: Collection[str], artifacts: Collection[str] | None) -> None:
    """Raise `BadInputError` if a binding names a table or artifact that the version would not have.

    `artifacts` is None before the references of the tables are known, which may bring some.
    """
    for binding in bindings:
        for noun, name, known in (("table", binding.table, tables), ("artifact", binding.artifact, artifacts)):
            if known is not None and name not in known:
                raise BadInputError(
                    f"a binding names {noun} {name!r}, which is not part of this publish",
                    hint=f"Known {noun}s: {', '.join(sorted(known)) or 'none'}.",
                )


def sample_paths(bindings: Iterable[Binding], artifact: str, tables: Mapping[str, StagedEntry]) -> list[str]:
    """Return the first few paths of each column that is bound to the artifact."""
    paths: list[str] = []
    for binding in bindings:
        table = tables.get(binding.table) if binding.artifact == artifact else None
        if isinstance(table, StagedTable) and table.schema is not None and binding.column in table.schema.names:
            cells = (value for _, _, values in table.read_column(binding.column) for value in values)
            paths += islice((cell for cell in cells if isinstance(cell, str)), _SAMPLE_PATHS)
    return paths


def check_bindings(bindings: Iterable[Binding], staged: StagedVersion, version: VersionContext | None) -> None:
    """Check the bindings of the manifest that a publish leads to. `InvalidSourceError` has the first wrong cell.

    `version` is the one that the publish keeps and extends. Rows and artifacts that both stay are not read again.
    """
    tables, artifacts = staged.entries.get("tables", {}), staged.entries.get("artifacts", {})
    before = set(version.manifest.bindings) if version is not None else set()
    for binding in bindings:
        table, artifact = tables.get(binding.table), artifacts.get(binding.artifact)
        if binding in before and table is None and artifact is None:
            continue
        target = _find_target(binding, artifact, version)
        if isinstance(table, StagedTable):
            if binding not in staged.bindings:
                _check_origin(binding, table, target)
            if table.schema is not None:
                parts = ((path.name, row, values) for path, row, values in table.read_column(binding.column))
                _check(binding, _Cells(table.schema, parts), target)
        keeps_rows = table is None or (isinstance(table, StagedTable) and table.appends)
        is_stored = version is not None and binding.table in version.manifest.tables
        if version is not None and is_stored and keeps_rows and (artifact is not None or binding not in before):
            stored: Table = payload_kind("tables").open(version, binding.table)
            _check(binding, _Cells(stored.schema(), _stored_parts(stored, binding)), target)


def _find_target(binding: Binding, artifact: StagedEntry | None, version: VersionContext | None) -> _Target:
    if isinstance(artifact, StagedArtifact):
        return _Target.of_staged(artifact)
    assert version is not None, "check_names found the artifact"
    return _Target.of_stored(payload_kind("artifacts").open(version, binding.artifact))


def _check_origin(binding: Binding, table: StagedTable, target: _Target) -> None:
    """Refuse references into another artifact than the one that the stored table is bound to."""
    origin = referenced_artifact(table, binding.column)
    if origin is not None and (target.stored is None or not target.stored.has_content_of(origin)):
        rebind = f"Call bind({binding.table!r}, {binding.column!r}, …) to bind the column to the artifact of the rows"
        whole = "Publish the whole table with add_table"
        raise BadInputError(
            f"column {binding.column!r} of table {binding.table!r} is bound to artifact {binding.artifact!r}, "
            f"but the rows refer to files of another artifact {origin.name!r}",
            hint=f"{whole if table.appends else rebind}, or cast it to paths if the files are the same.",
        )


def _stored_parts(table: Table, binding: Binding) -> Iterator[tuple[str, int, list[Any]]]:
    if binding.column not in table.schema().names:
        return
    first_row = 0
    for batch in table.batches(columns=[binding.column]):
        yield f"the stored table {binding.table!r}", first_row, batch.column(0).to_pylist()
        first_row += batch.num_rows


def check_origin(binding: Binding, table: StagedTable, artifact: Artifact) -> None:
    """Refuse rows whose references belong to another artifact than the one that the column is bound to."""
    _check_origin(binding, table, _Target.of_stored(artifact))


def check_cells(binding: Binding, parts: Iterable[tuple[str, int, list[Any]]], artifact: Artifact) -> None:
    """Check values of a bound column. Each part has its source and the number of its first row."""
    _check_parts(binding, parts, _Target.of_stored(artifact))


def _check(binding: Binding, cells: _Cells, target: _Target) -> None:
    if binding.column not in cells.schema.names:
        raise ColumnNotFoundError(
            f"table {binding.table!r} has no column {binding.column!r} to bind",
            hint=suggest(binding.column, cells.schema.names, label="The columns are"),
        )
    check_reference_column(cells.schema.field(binding.column))
    _check_parts(binding, cells.parts, target)


def _check_parts(binding: Binding, parts: Iterable[tuple[str, int, list[Any]]], target: _Target) -> None:
    for source, first_row, values in parts:
        paths = _distinct_paths(values)
        target.prepare(list(paths or ()))
        missing = target.missing(paths or set())
        if paths is not None and not missing:
            continue
        for number, value in enumerate(values):
            problem = _problem(value, target, missing)
            if problem is not None:
                raise InvalidSourceError(
                    f"row {first_row + number} of {source} (table {binding.table!r}, column {binding.column!r}): "
                    f"{problem} artifact {binding.artifact!r}",
                    hint=f"Its members are named like {target.example!r}; prefix=… changes the beginning of all paths.",
                )


def _distinct_paths(values: list[Any]) -> set[str] | None:
    """Return the paths among the cells; None if some are not paths."""
    try:
        found = set(values) - {None}
    except TypeError:  # byte ranges
        return None
    return found if all(isinstance(value, str) for value in found) else None


def _problem(value: Any, target: _Target, missing: set[str]) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return f"{value!r} is not in" if value in missing else None
    shard, offset, length = (value[name] for name in ("shard", "offset", "length"))
    if None in (shard, offset, length) or min(shard, offset, length) < 0:
        return f"{value} is not a byte range of"
    if shard >= len(target.shard_bytes) or offset + length > target.shard_bytes[shard]:
        return f"bytes {offset}…{offset + length} of shard {shard} are not in"
    return None
