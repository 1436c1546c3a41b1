"""Samples: pages of rows of one version, and statistics of its columns."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from warpdata.limits import MAX_CLASS_NAME_LENGTH
from warpdata.server.caller import ServiceOf
from warpdata.server.routes.datasets import ColumnView, Readable
from warpdata.server.routes.parameters import Answer, EntryName, FilterText, PageCursor, PageLimit, RefQuery
from warpdata.server.samples import SampleQuery, describe_column, pinned_version, read_page
from warpdata.server.subsets import MAX_SUBSET_LENGTH, MAX_SUBSETS

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["samples"])
_MAX_COLUMNS = 64

ClassName = Annotated[
    str | None,
    Query(max_length=MAX_CLASS_NAME_LENGTH, description="Keep images of a collection that have this class."),
]
Subsets = Annotated[
    list[Annotated[str, StringConstraints(max_length=MAX_SUBSET_LENGTH)]] | None,
    Query(
        alias="subset",
        max_length=MAX_SUBSETS,
        description="Rows that no filter expresses, such as `cell:3:5:car` or `quality:tiny`. Repeat it for several.",
    ),
]
ColumnNames = Annotated[
    list[Annotated[str, Query(max_length=1024)]] | None,
    Query(max_length=_MAX_COLUMNS, description="Repeat for each column. Default: all."),
]


class SampleView(Answer):
    """One row: its number in this version, its sample id, which stays through edits, and its values.

    `cut` names the columns of which a part was left out.
    """

    row: int
    id: int
    values: dict[str, Any]
    cut: list[str]


class SamplePage(Answer):
    """Rows of one version. `total` counts all rows that match. Send `next_cursor` for the next page."""

    version: str
    table: str
    columns: list[ColumnView]
    samples: list[SampleView]
    total: int
    next_cursor: str | None


class ValueCount(Answer):
    """A frequent value."""

    value: Any
    count: int


class Bin(Answer):
    """A part of a histogram; the last one includes its end."""

    start: float
    end: float
    count: int


class ColumnStatisticsView(Answer):
    """What the values of a column are like."""

    column: str
    type: str
    rows: int
    nulls: int
    distinct: int | None
    minimum: Any
    maximum: Any
    mean: float | None
    top: list[ValueCount]
    histogram: list[Bin]
    is_sampled: bool


class StatisticsView(Answer):
    """Statistics of columns of one version."""

    version: str
    columns: list[ColumnStatisticsView]


@router.get("/samples", summary="List samples")
def list_samples(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    ref: RefQuery = None,
    table: EntryName = None,
    expression: Annotated[FilterText, Query(alias="filter")] = None,
    columns: ColumnNames = None,
    limit: PageLimit = 100,
    cursor: PageCursor = None,
    class_name: ClassName = None,
    subsets: Subsets = None,
    offset: Annotated[int, Query(ge=0, le=2**53, description="The number of rows to leave out, without a cursor.")] = 0,
) -> SamplePage:
    """List the rows of a table that a filter keeps, in table order.

    All pages of one read show the version of the first page, however the branch moves. A page ends early if its rows
    are large.
    """
    shown = tuple(columns) if columns else None
    query = SampleQuery(table, expression, shown, limit, cursor, offset, class_name, tuple(subsets or ()))
    _, dataset = service.open(dataset_id, pinned_version(query) or ref)
    page = read_page(service, dataset, query)
    return SamplePage(
        version=dataset.version,
        table=page.table,
        columns=[ColumnView(**column) for column in page.columns],
        samples=[SampleView(**sample) for sample in page.samples],
        total=page.total,
        next_cursor=page.next_cursor,
    )


@router.get("/stats", summary="Describe columns")
def get_stats(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    columns: Annotated[list[Annotated[str, Query(max_length=1024)]], Query(min_length=1, max_length=_MAX_COLUMNS)],
    ref: RefQuery = None,
    table: EntryName = None,
    expression: Annotated[FilterText, Query(alias="filter")] = None,
    class_name: ClassName = None,
    subsets: Subsets = None,
) -> StatisticsView:
    """Count nulls and values, and make histograms, over the rows that a filter keeps.

    Of a table with more than 5,000,000 rows, a random part of that size is read, and `is_sampled` is true.
    """
    query = SampleQuery(table, expression, class_name=class_name, subsets=tuple(subsets or ()))
    _, dataset = service.open(dataset_id, ref)
    found = [describe_column(service, dataset, query, column) for column in columns]
    return StatisticsView(version=dataset.version, columns=[ColumnStatisticsView.model_validate(one) for one in found])
