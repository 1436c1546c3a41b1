"""Search: the best rows by words, by a vector, by an example image, or by both, among those that a filter keeps."""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, MediaDecodeError
from warpdata.limits import (
    MAX_CLASS_NAME_LENGTH,
    MAX_FILTER_LENGTH,
    MAX_NAME_LENGTH,
    MAX_QUERY_LENGTH,
    MAX_VECTOR_LENGTH,
)
from warpdata.search import ExampleImage, image_hash
from warpdata.server.caller import ServiceOf
from warpdata.server.cells import json_rows
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, Body, RefText
from warpdata.server.samples import SampleQuery, select_rows
from warpdata.server.service import Service
from warpdata.server.subsets import MAX_SUBSET_LENGTH, MAX_SUBSETS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["samples"])
_Column = Annotated[str, StringConstraints(max_length=1024)]
_HIDDEN = ("_score", "_id")


class NearBody(Body):
    """What rows shall be near to: a vector, an image in base64, the row of this number in the table, or for a column of
    images the `appearance` that an earlier answer had, in place of the image.
    """

    column: _Column
    vector: Annotated[list[float], Field(min_length=1, max_length=MAX_VECTOR_LENGTH)] | None = None
    image: Annotated[str, StringConstraints(max_length=16 * 1024 * 1024)] | None = None
    row: Annotated[int, Field(ge=0)] | None = None
    appearance: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")] | None = None


class SearchBody(Body):
    """A search. `text` finds words in `column`, by default the only text column; `near` finds like rows."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY_LENGTH)] | None = None
    column: _Column | None = None
    near: NearBody | None = None
    filter: Annotated[str, StringConstraints(max_length=MAX_FILTER_LENGTH)] | None = None
    k: Annotated[int, Field(ge=1, le=1000)] = 10
    columns: Annotated[list[_Column], Field(max_length=64)] | None = None
    metric: Literal["cosine", "l2", "dot"] = "cosine"
    exact: bool = False
    ref: RefText | None = None
    table: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f/]+$", max_length=MAX_NAME_LENGTH)] | None = None
    class_name: Annotated[str, StringConstraints(max_length=MAX_CLASS_NAME_LENGTH)] | None = None
    subsets: Annotated[
        list[Annotated[str, StringConstraints(max_length=MAX_SUBSET_LENGTH)]],
        Field(default_factory=list, max_length=MAX_SUBSETS),
    ]


class HitView(Answer):
    """A row that was found. A higher score is better. `cut` names the columns of which a part was left out."""

    row: int
    id: int
    score: float
    values: dict[str, Any]
    cut: list[str]


class SearchView(Answer):
    """The best rows, best first. `searched` is the number of rows that the filter keeps.

    `appearance` is the hash of the example image, if there was one.
    """

    version: str
    table: str
    searched: int
    appearance: str | None
    hits: list[HitView]
    explanation: str


@router.post("/search", summary="Search rows")
def search(service: ServiceOf, dataset_id: Readable, body: SearchBody) -> SearchView:
    """Find the `k` best rows by words, vectors, images, or words and vectors together."""
    _, dataset = service.open(dataset_id, body.ref)
    try:
        near = None if body.near is None else _near(dataset, body.table, body.near)
    except MediaDecodeError as error:
        raise BadInputError(f"the example cannot be compared: {error.message}", hint="Send PNG or JPEG.") from error
    hits = _search(service, dataset, body, near)
    found, explanation = hits.to_arrow(), hits.explain()
    rows = json_rows(_plain(found.select([name for name in found.schema.names if name not in _HIDDEN])))
    return SearchView(
        version=dataset.version,
        table=explanation.table,
        searched=explanation.selected,
        appearance=f"{near[1]:016x}" if near is not None and type(near[1]) is int else None,
        hits=[
            HitView(row=row, id=sample_id, score=score, values=values, cut=cut)
            for row, sample_id, score, (values, cut) in zip(
                hits.row_numbers.tolist(), hits.ids, hits.scores, rows, strict=True
            )
        ],
        explanation=str(explanation),
    )


def _search(service: Service, dataset: Dataset, body: SearchBody, near: tuple[str, Any] | None) -> Any:
    table = dataset.table(body.table)
    if body.class_name is not None or body.subsets:
        query = SampleQuery(body.table, body.filter, class_name=body.class_name, subsets=tuple(body.subsets))
        table = replace(table, rows=select_rows(service, dataset, table, query))
    elif body.filter is not None:
        table = table.filter(body.filter)
    return dataset.search(
        table,
        near=near,
        text=body.text,
        column=body.column,
        k=body.k,
        columns=body.columns,
        metric=body.metric,
        exact=body.exact,
    )


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows whose references are paths."""
    import pyarrow as pa

    for at, column in enumerate(rows.schema):
        if isinstance(column.type, pa.ExtensionType):
            paths = pa.chunked_array([chunk.storage for chunk in rows.column(at).chunks], column.type.storage_type)
            rows = rows.set_column(at, column.name, paths)
    return rows


def _near(dataset: Dataset, table: str | None, body: NearBody) -> tuple[str, Any]:
    """Return what `Dataset.search` takes as `near`: a vector, or the hash of an image."""
    given = [one for one in (body.vector, body.image, body.row, body.appearance) if one is not None]
    if len(given) != 1:
        raise BadInputError("near takes one of vector, image, row and appearance", hint="Send exactly one.")
    if body.vector is not None:
        return body.column, body.vector
    if body.appearance is not None:
        return body.column, int(body.appearance, 16)
    if body.image is not None:
        try:
            example = base64.b64decode(body.image, validate=True)
        except (ValueError, Base64Error) as error:
            raise BadInputError("the image is not base64") from error
        return body.column, image_hash(ExampleImage(example, "the example"))
    opened = dataset.table(table)
    count = opened.unfiltered_count
    assert body.row is not None
    if body.row >= count:
        raise BadInputError(f"the table has {count:,} rows, and no row {body.row:,}")
    value = opened.select([body.column]).take([body.row]).column(0)[0].as_py()
    if value is None:
        raise BadInputError(f"row {body.row:,} has no value in {body.column!r}")
    return body.column, image_hash(value) if getattr(value, "ref_type", None) == "image" else value
