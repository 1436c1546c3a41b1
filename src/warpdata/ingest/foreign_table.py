"""Rows of other libraries on their way into a builder: splits become a column, contents become members.

An importer describes its source as parts, one for each split, that yield Arrow batches. Rows are written once, as
Parquet files in the staging directory; contents go to a `MediaSpool`. Memory holds a batch and the member paths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from warpdata.errors import BadInputError, ColumnNotFoundError, InvalidSourceError, SchemaMismatchError
from warpdata.formats.parquet import write_parquet
from warpdata.ingest.media_spool import MediaFiles, MediaSpool, artifact_name, is_media_type, media_cells
from warpdata.ingest.options import IngestReport, OnReport, Packing
from warpdata.primitives.outcomes import FieldOutcomes, OutcomeLog
from warpdata.primitives.suggest import suggest
from warpdata.publish import DatasetBuilder
from warpdata.repository.manifest import REF_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ColumnRule",
    "ForeignSource",
    "ImportTarget",
    "MediaColumn",
    "PlainColumn",
    "SourcePart",
    "Splits",
    "add_foreign",
    "media_rules",
]

Splits: TypeAlias = Literal["column", "tables"]
"""Splits of a source become values of a column, or tables of their own."""


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column of the source that becomes one or several columns with these fields.

    `convert` returns their arrays; without it the values stay. `row` is the number of the first row.
    """

    fields: tuple[pa.Field, ...]
    convert: Callable[[pa.Array, str, int], Sequence[pa.Array]] | None = None
    how: str = ""
    is_changed: bool = False


@dataclass(frozen=True, slots=True)
class MediaColumn:
    """A column of contents that becomes a column of references of this type."""

    ref_type: str
    metadata: Mapping[bytes, bytes] | None = None
    how: str = ""
    is_changed: bool = False


ColumnRule: TypeAlias = PlainColumn | MediaColumn


@dataclass(frozen=True, slots=True)
class SourcePart:
    """The rows of one split, or of the whole source if `split` is None. `where` begins messages about them."""

    split: str | None
    schema: pa.Schema
    batches: Callable[[], Iterable[pa.RecordBatch]]
    where: str


@dataclass(frozen=True, slots=True)
class ForeignSource:
    """A source of another library. Columns without a rule keep their values and types."""

    name: str
    parts: Sequence[SourcePart]
    rules: Mapping[str, ColumnRule] = field(default_factory=dict)
    media_root: Path | None = None


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """The target of an import, beside the dataset."""

    table: str = "main"
    splits: Splits = "column"
    packing: Packing = field(default_factory=Packing)

    def __post_init__(self) -> None:
        if self.splits not in ("column", "tables"):
            raise BadInputError(f"splits={self.splits!r} is neither 'column' nor 'tables'")


def media_rules(given: Mapping[str, str] | None, schema: pa.Schema, where: str) -> dict[str, ColumnRule]:
    """Return the rules of columns that the caller declares as media. Each must hold contents."""
    rules: dict[str, ColumnRule] = {}
    for column, ref_type in (given or {}).items():
        if ref_type not in REF_TYPES:
            raise BadInputError(
                f"media type {ref_type!r} of column {column!r} is not known", hint=f"Known: {', '.join(REF_TYPES)}."
            )
        if column not in schema.names:
            hint = suggest(column, schema.names, label="The columns are")
            raise ColumnNotFoundError(f"{where} has no column {column!r}", hint=hint)
        if not is_media_type(schema.field(column).type):
            raise SchemaMismatchError(
                f"{where}: column {column!r} has type {schema.field(column).type}, which holds no files",
                hint="Media are bytes, or structs of bytes and path.",
            )
        rules[column] = MediaColumn(ref_type)
    return rules


def add_foreign(builder: DatasetBuilder, source: ForeignSource, target: ImportTarget, report: OnReport) -> None:
    """Read the source once, and add its tables, artifacts and bindings to the builder."""
    parts = _check_parts(source, target)
    columns = list(dict.fromkeys(name for part in parts for name in part.schema.names))
    row_count = 0
    with ExitStack() as stack:
        spools = {
            column: stack.enter_context(MediaSpool(builder.staging_dir / f"media-{number}", rule.ref_type))
            for number, column in enumerate(columns)
            if isinstance(rule := source.rules.get(column), MediaColumn)
        }
        for number, (table, group) in enumerate(_tables(parts, target)):
            writer = _PartWriter(source, spools, has_split=target.splits == "column" and group[0].split is not None)
            batches = (batch for part in group for batch in writer.batches(part))
            schema = writer.schema(group[0].schema)
            # A name of the source is no part of the path: it is checked when the table is added.
            files = list(write_parquet(batches, schema, builder.staging_dir, f"import-{number}"))
            builder.add_table(table, files)
            row_count += writer.row_count
            for column, spool in spools.items():
                if spool.members and column in group[0].schema.names:
                    builder.bind(table, column, artifact_name(column), spool.ref_type)
    for column, spool in spools.items():
        if spool.members:
            target.packing.add(builder, artifact_name(column), spool.members)
    member_count = sum(len(spool.members) for spool in spools.values())
    report(IngestReport(source.name, row_count, member_count, fields=_outcomes(source, spools, target)))


class _PartWriter:
    """Converts the batches of parts. Row numbers in messages count within a part."""

    def __init__(self, source: ForeignSource, spools: Mapping[str, MediaSpool], *, has_split: bool) -> None:
        self._rules = source.rules
        self._files = MediaFiles(source.media_root)
        self._spools = spools
        self._has_split = has_split
        self.row_count = 0

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the table for a part with the columns `given`."""
        import pyarrow as pa

        fields: list[pa.Field] = []
        for column in given:
            rule = self._rules.get(column.name)
            if isinstance(rule, MediaColumn):
                fields.append(pa.field(column.name, pa.string(), metadata=rule.metadata))
            elif rule is not None:
                fields.extend(rule.fields)
            else:
                fields.append(column.with_type(_storage_type(column.type)))
        if self._has_split:
            fields.append(pa.field("split", pa.string()))
        counts = Counter(column.name for column in fields)
        for name, count in counts.items():
            if count > 1:
                raise SchemaMismatchError(
                    f"the import makes two columns {name!r}", hint="Rename the column in the source."
                )
        return pa.schema(fields)

    def batches(self, part: SourcePart) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = self.schema(part.schema)
        row = 0
        for batch in part.batches():
            arrays: list[pa.Array] = []
            for column in part.schema:
                arrays.extend(self._convert(column.name, batch.column(column.name), part, row))
            if self._has_split:
                arrays.append(pa.array([part.split] * batch.num_rows, pa.string()))
            try:
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            except (pa.ArrowException, TypeError) as error:
                raise InvalidSourceError(f"{part.where}, rows from {row}: {error}") from error
            row += batch.num_rows
        self.row_count += row

    def _convert(self, name: str, values: pa.Array, part: SourcePart, row: int) -> Sequence[pa.Array]:
        import pyarrow as pa

        rule = self._rules.get(name)
        if isinstance(rule, MediaColumn):
            return [self._store(name, values, part, row)]
        if isinstance(values, pa.ExtensionArray):
            values = values.storage
        if rule is None or rule.convert is None:
            return [values]
        return rule.convert(values, f"{part.where}, column {name!r}", row)

    def _store(self, name: str, values: pa.Array, part: SourcePart, row: int) -> pa.Array:
        """Add the contents of a column to its spool and return the member paths."""
        import pyarrow as pa

        paths: list[str | None] = []
        for number, cell in enumerate(media_cells(values), row):
            if cell is None:
                paths.append(None)
                continue
            content, given = cell
            if content is None:
                assert given is not None, "a cell has bytes or a path"
                content = self._files.find(given, f"{part.where}, row {number}, column {name!r}")
            paths.append(self._spools[name].add(content, given, part.split or "", number))
        return pa.array(paths, pa.string())


def _storage_type(arrow_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return arrow_type.storage_type if isinstance(arrow_type, pa.BaseExtensionType) else arrow_type


def _check_parts(source: ForeignSource, target: ImportTarget) -> Sequence[SourcePart]:
    """Refuse a source without rows to read, and splits that do not fit into one table."""
    if not source.parts:
        raise InvalidSourceError(f"{source.name} has no rows to import")
    first = source.parts[0]
    if not first.schema.names:
        raise InvalidSourceError(f"{first.where} has no columns")
    if target.splits == "tables":
        return source.parts
    for part in source.parts[1:]:
        if not part.schema.remove_metadata().equals(first.schema.remove_metadata()):
            raise SchemaMismatchError(
                f"{part.where} has other columns than {first.where}: "
                f"{_columns_text(part.schema)} instead of {_columns_text(first.schema)}",
                hint='Pass splits="tables" (--splits tables) to import each split as a table.',
            )
    if first.split is not None and "split" in first.schema.names:
        raise SchemaMismatchError(
            f"{first.where} has a column 'split', and the import would add one",
            hint='Pass splits="tables" (--splits tables), or rename the column.',
        )
    return source.parts


def _columns_text(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)


def _tables(parts: Sequence[SourcePart], target: ImportTarget) -> Iterator[tuple[str, Sequence[SourcePart]]]:
    """Yield the name and the parts of each table."""
    if target.splits == "column" or parts[0].split is None:
        yield target.table, parts
        return
    for part in parts:
        assert part.split is not None
        yield part.split, [part]


def _outcomes(source: ForeignSource, spools: Mapping[str, MediaSpool], target: ImportTarget) -> FieldOutcomes:
    """Return the outcome of each column and each split."""
    names = {name for part in source.parts for name in part.schema.names}
    splits = [part.split for part in source.parts if part.split is not None]
    log = OutcomeLog([*names, *(f"split {split}" for split in splits)])
    for name in sorted(names):
        rule = source.rules.get(name)
        how = "" if rule is None else rule.how
        if isinstance(rule, MediaColumn):
            files = f"{len(spools[name].members)} files in artifact {artifact_name(name)}"
            how = f"{files}, {how}" if how else files
        if rule is not None and rule.is_changed:
            log.changed(name, how)
        else:
            log.kept(name, how)
    for split in splits:
        log.kept(f"split {split}", "in column split" if target.splits == "column" else "as a table")
    return log.outcomes()
