"""A table as a `pyarrow.dataset.Dataset`, for engines that pass columns and filters down."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

__all__ = ["as_arrow_dataset"]


class _Table(Protocol):
    def schema(self) -> pa.Schema: ...

    def select(self, columns: Sequence[str]) -> _Table: ...

    def batches(self) -> Iterable[pa.RecordBatch]: ...


def as_arrow_dataset(table: _Table) -> Any:
    """Return a dataset over the rows of a table. Each scan of it reads the table, and only the columns it names."""
    return _dataset_class()(table)


@dataclass(frozen=True)
class _Scanner:
    """The part of `pyarrow.dataset.Scanner` that consumers of a dataset call."""

    reader: pa.RecordBatchReader

    @property
    def projected_schema(self) -> pa.Schema:
        return self.reader.schema

    def to_reader(self) -> pa.RecordBatchReader:
        return self.reader


def _scan(table: _Table, columns: Sequence[str] | None, expression: pc.Expression | None) -> _Scanner:
    import pyarrow as pa

    names = list(table.schema().names if columns is None else columns)
    read = names if _can_evaluate(expression, pa.schema([table.schema().field(name) for name in names])) else None
    rows = table.select(read) if read else table
    schema = pa.schema([table.schema().field(name) for name in names])
    batches = ((batch if expression is None else batch.filter(expression)).select(names) for batch in rows.batches())
    return _Scanner(pa.RecordBatchReader.from_batches(schema, batches))


def _can_evaluate(expression: pc.Expression | None, schema: pa.Schema) -> bool:
    """Return whether the filter needs no other columns than these."""
    import pyarrow as pa

    if expression is None:
        return True
    try:
        schema.empty_table().filter(expression)
    except pa.ArrowInvalid:
        return False
    return True


@functools.cache
def _dataset_class() -> type:
    import pyarrow.dataset as pads

    class TableDataset(pads.Dataset):  # type: ignore[misc]
        def __init__(self, table: _Table) -> None:
            self._table = table

        @property
        def schema(self) -> pa.Schema:
            return self._table.schema()

        def scanner(self, columns: Sequence[str] | None = None, **options: Any) -> _Scanner:
            return _scan(self._table, columns, options.get("filter"))

    return TableDataset
