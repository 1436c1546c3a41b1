"""SQL expressions as new values of columns, over one row at a time, evaluated by the sealed engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError, ErrorKind
from warpdata.query.duckdb import first_line, run_sealed
from warpdata.query.parse import parse_expression

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

__all__ = ["Expression", "expr", "project"]


@dataclass(frozen=True, slots=True)
class Expression:
    """An SQL expression over the columns of one row. `expr` makes one."""

    sql: str


def expr(sql: str) -> Expression:
    """Return an SQL expression, such as `expr("price * 1.2")`, for a new value in `Edit.update`.

    A plain string there is a constant.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise BadInputError(f"an expression is SQL text, not {sql!r}", kind=ErrorKind.INVALID_FILTER)
    return Expression(sql)


def project(expression: Expression, rows: pa.Table) -> pa.ChunkedArray:
    """Evaluate an expression for each row.

    Raise `BadInputError` if it does not fit the columns, fails on a row, or does not give one value for each row.
    """
    import duckdb

    parsed = parse_expression(expression.sql, rows.schema)
    inputs = rows.select(parsed.columns)

    def evaluate(cursor: DuckDBPyConnection) -> pa.Table:
        stream = cursor.from_arrow(inputs.__arrow_c_stream__())
        return stream.project(f"({parsed.sql}\n) AS value").to_arrow_table()

    try:
        values = run_sealed(evaluate)["value"]
    except duckdb.Error as error:
        raise BadInputError(
            f"the expression {expression.sql!r} fails on a row: {first_line(error)}", kind=ErrorKind.INVALID_FILTER
        ) from error
    if len(values) != rows.num_rows:
        raise BadInputError(
            f"the expression {expression.sql!r} gives {len(values)} values for {rows.num_rows} rows",
            hint="Use a function of one row; aggregates and unnest are not allowed.",
            kind=ErrorKind.INVALID_FILTER,
        )
    return values
