"""How one row group is read: all of it, its first rows, or those that a filter keeps.

With a filter, its columns are decoded first, and the others only where a row is kept. What is the
same for every row group of a scan is found out once: a short scan has little else to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from warpdata.formats.parquet import Parts, ShardFile
from warpdata.limits import MIB
from warpdata.primitives.arrow_buffers import as_arrow, as_bits, take_known
from warpdata.primitives.cached_property import cached_property
from warpdata.query import Evaluator, RowFilter

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["FilteredRows", "Unit", "is_short", "read_prefix", "read_whole"]

_Values: TypeAlias = "pa.ChunkedArray | pa.Array"

_SHORT_FRACTION = 4
_MAX_CHUNK_BYTES = 2**31 - 1
_FEW = 2
_RUN_BYTES = 4 * MIB  # so little that what a filter throws away never leaves the processor's caches


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows [skip, skip + take) of one row group."""

    file: ShardFile
    group: int
    skip: int
    take: int
    group_rows: int
    first_row: int
    """The number of its first row, counted over the table."""
    parallel_columns: bool = False
    """Whether its columns may be decoded at once, because cores would be idle otherwise."""


def is_short(rows: int, of_rows: int) -> bool:
    """Whether so few rows are wanted that reading all of them would be a waste."""
    return rows * _SHORT_FRACTION <= of_rows


def read_whole(unit: Unit, parts: Parts, wanted: pa.Schema) -> pa.Table:
    """All rows of the unit."""
    encoded = unit.file.small_dictionaries(unit.group, wanted.names)
    return _conformed(_by_name(_decode(unit, wanted.names, parts, encoded)), wanted)


def read_prefix(unit: Unit, wanted: pa.Schema) -> pa.Table:
    """The same for a unit that is the beginning of a row group, fetching no more than it needs."""
    return _conformed(_by_name(unit.file.decode_prefix(unit.group, wanted.names, unit.take)), wanted)


class FilteredRows:
    """The rows of units that a filter keeps. Safe to share between threads."""

    def __init__(self, row_filter: RowFilter, wanted: pa.Schema) -> None:
        self.needed = row_filter.columns
        """What the filter is about, to be fetched before anything else."""
        self._wanted = wanted
        self._rest = [name for name in wanted.names if name not in self.needed]
        self._shown = [name for name in self.needed if name in wanted.names]
        self._evaluator = Evaluator(row_filter)
        may_be_encoded = self.needed if self._evaluator.uses_kernels else ()
        self._texts = (*may_be_encoded, *self._rest)

    def read(self, unit: Unit, parts: Parts) -> pa.Table | None:
        """None if there are none."""
        encoded = unit.file.small_dictionaries(unit.group, self._texts)
        known = _decode(unit, self.needed, parts, encoded, scratch=True)
        chosen = _Chosen(self._evaluator.mask(known))
        if not len(chosen.numbers):
            return None
        kept = chosen.of(known.select(self._shown)) if self._shown else {}
        for more in self._others(unit, chosen, encoded):
            kept.update(more)
        return _conformed(kept, self._wanted)

    def match(self, unit: Unit, parts: Parts) -> NDArray[np.int64]:
        """Their numbers, counted over the table."""
        encoded = unit.file.small_dictionaries(unit.group, self._texts)
        chosen = _Chosen(self._evaluator.mask(_decode(unit, self.needed, parts, encoded, scratch=True)))
        return chosen.numbers + unit.first_row

    def _others(self, unit: Unit, chosen: _Chosen, encoded: Sequence[str]) -> Iterator[dict[str, _Values]]:
        """The kept rows of the other columns, a few columns at a time; nothing after the last row that is kept."""
        if not self._rest:
            return
        wanted = int(chosen.numbers[-1]) + 1
        if unit.skip == 0 and is_short(wanted, unit.group_rows):
            yield chosen.before(wanted).of(unit.file.decode_prefix(unit.group, self._rest, wanted))
            return
        parts = unit.file.fetch(unit.group, self._rest)
        for some in [self._rest] if unit.parallel_columns else unit.file.runs(unit.group, self._rest, _RUN_BYTES):
            yield chosen.of(_decode(unit, some, parts, encoded, scratch=True))


class _Chosen:
    """The rows that a filter keeps. Where they are few, taking them by number beats filtering by mask."""

    def __init__(self, kept: NDArray[np.bool_]) -> None:
        import numpy as np

        self._kept = kept
        self.numbers: NDArray[np.int64] = np.flatnonzero(kept)  # Arrow's own way takes three times as long

    def before(self, end: int) -> _Chosen:
        """Those of the first rows."""
        return _Chosen(self._kept[:end])

    def of(self, rows: pa.Table) -> dict[str, _Values]:
        if len(self.numbers) == len(self._kept):
            return _by_name(rows)
        in_one_piece = all(column.num_chunks == 1 for column in rows.columns)  # else all of it would be copied first
        if in_one_piece and len(self.numbers) * _FEW < len(self._kept):
            return {name: take_known(column, self._taken) for name, column in _by_name(rows).items()}
        return _by_name(rows.filter(self._bits))

    @cached_property
    def _taken(self) -> pa.Array:
        return as_arrow(self.numbers)

    @cached_property
    def _bits(self) -> pa.BooleanArray:
        return as_bits(self._kept)


def _by_name(rows: pa.Table) -> dict[str, _Values]:
    return dict(zip(rows.column_names, rows.columns, strict=True))


def _decode(
    unit: Unit, columns: Sequence[str], parts: Parts, encoded: Sequence[str], *, scratch: bool = False
) -> pa.Table:
    """The wanted rows of these columns, the encoded ones as dictionaries."""
    rows = unit.file.decode(
        unit.group, columns, parts, encoded, parallel_columns=unit.parallel_columns, scratch=scratch
    )
    return rows if unit.take == unit.group_rows else rows.slice(unit.skip, unit.take)


def _conformed(rows: Mapping[str, _Values], wanted: pa.Schema) -> pa.Table:
    """Columns in the order asked for, with the table's own types.

    A shard may order its columns differently, and columns read as dictionaries for speed get their
    declared type back.
    """
    import pyarrow as pa

    columns = [_as_declared(rows[field.name], field.type) for field in wanted]
    return pa.table(columns, schema=wanted)


def _as_declared(column: _Values, declared: pa.DataType) -> _Values:
    """In its declared type. Texts are spelled out in pieces that 32-bit offsets can address."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.type == declared:
        return column
    if not pa.types.is_dictionary(column.type) or pa.types.is_dictionary(declared):
        return column.cast(declared)
    pieces = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py()
        rows = _MAX_CHUNK_BYTES // max(longest or 0, 1)
        pieces += [chunk.slice(start, rows).cast(declared) for start in range(0, len(chunk), rows)]
    return pa.chunked_array(pieces, declared)
