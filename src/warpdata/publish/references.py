"""Reference columns in the rows of a publish: bound again, with the artifacts that they refer to.

Rows that were read from a dataset with media have columns of references. Each such column is bound in the new version,
and its artifact becomes part of it under the same name. Implements "References" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from warpdata.errors import BadInputError
from warpdata.kinds import StagedEntry
from warpdata.kinds.artifacts import Artifact, ArtifactAddress, StagedArtifact, stage_stored
from warpdata.kinds.tables import StagedTable
from warpdata.publish.manifest_builder import StagedVersion
from warpdata.repository.manifest import Binding, Manifest

__all__ = ["carry_references", "referenced_artifact"]


class _ReferenceType(Protocol):
    """The Arrow type of a reference column that was read from a dataset. Importing its class would need Arrow."""

    @property
    def address(self) -> ArtifactAddress: ...
    @property
    def artifact(self) -> Artifact: ...
    @property
    def ref_type(self) -> str: ...


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of references in a staged table."""

    table: str
    name: str
    artifact: Artifact
    ref_type: str

    def __str__(self) -> str:
        return f"column {self.name!r} of table {self.table!r}"


def carry_references(
    entries: Mapping[str, Mapping[str, StagedEntry]], bindings: Sequence[Binding], base: Manifest
) -> StagedVersion:
    """Add a binding for each reference column of the staged tables, and the artifacts that these columns refer to.

    A binding of the builder takes precedence: it names the artifact, and the references bring it if it was not added.
    So does a binding of `base` for a table that stays. Raise `BadInputError` if one name would mean two artifacts.
    """
    given = {(binding.table, binding.column): binding for binding in bindings}
    kept = {(binding.table, binding.column) for binding in base.bindings}
    added = entries.get("artifacts", {})
    carried: dict[str, _Column] = {}
    made: list[Binding] = []
    for column in _reference_columns(entries.get("tables", {})):
        key = column.table, column.name
        explicit = given.get(key)
        if explicit is None and key in kept:
            continue  # the binding of the stored table applies, and is checked with the rows
        name = column.artifact.name if explicit is None else explicit.artifact
        if explicit is None:
            made.append(Binding(column.table, column.name, name, column.ref_type))
        elif name in added or name in base.artifacts:
            continue
        _check_name(name, column, carried, added)
        carried.setdefault(name, column)
    brought = {name: stage_stored(column.artifact) for name, column in carried.items() if name not in added}
    if not brought:
        return StagedVersion(entries, (*bindings, *made))
    return StagedVersion({**entries, "artifacts": {**added, **brought}}, (*bindings, *made), frozenset(brought))


def referenced_artifact(table: StagedTable, column: str) -> Artifact | None:
    """Return the artifact that the references in a column of staged rows belong to, or None if they are plain values.

    Raise `BadInputError` if they belong to several.
    """
    found: _ReferenceType | None = None
    for given in _reference_types(table, column):
        if found is not None and not found.artifact.has_content_of(given.artifact):
            raise BadInputError(
                f"column {column!r} refers to two artifacts: {_origin(found)} and {_origin(given)}",
                hint="Publish the rows as two tables or two columns, or pack the files of both into one artifact.",
            )
        found = found or given
    return None if found is None else found.artifact


def _reference_types(table: StagedTable, column: str) -> Iterator[_ReferenceType]:
    """Yield the types of a column that have an artifact. A type that came with a file has none."""
    return (given for given in table.references.get(column, ()) if getattr(given, "address", None) is not None)


def _reference_columns(tables: Mapping[str, StagedEntry]) -> list[_Column]:
    """Return the columns in order of their tables and names, so that the result does not depend on the calls."""
    columns = []
    for name, table in sorted(tables.items()):
        assert isinstance(table, StagedTable)
        for column in sorted(table.references):
            artifact = referenced_artifact(table, column)
            if artifact is not None:
                columns.append(_Column(name, column, artifact, next(_reference_types(table, column)).ref_type))
    return columns


def _check_name(name: str, column: _Column, carried: Mapping[str, _Column], added: Mapping[str, StagedEntry]) -> None:
    """Refuse a second artifact under one name."""
    other = added.get(name)
    if isinstance(other, StagedArtifact):
        if other.stored is not None and other.stored.has_content_of(column.artifact):
            return
        raise BadInputError(
            f"{column} refers to artifact {name!r} of another version, and this publish adds another {name!r}",
            hint=f"Call bind({column.table!r}, {column.name!r}, …) to name the artifact of the column.",
        )
    if name in carried and not carried[name].artifact.has_content_of(column.artifact):
        raise BadInputError(
            f"{carried[name]} and {column} refer to two artifacts of the name {name!r}",
            hint=f"Call bind({column.table!r}, {column.name!r}, …) to publish the second one under another name.",
        )


def _origin(given: _ReferenceType) -> str:
    return f"{given.address.artifact!r} of {given.address.dataset_id}@{given.address.version[:12]}"
