"""Maps: the rows of a table as points of a plane, by a column of vectors. Points and colours travel as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Response

from warpdata.datasets import Dataset
from warpdata.errors import ColumnNotFoundError
from warpdata.search import MAP_EDGE, Projection, check_vector_column
from warpdata.server.analyses import find_map
from warpdata.server.caller import ServiceOf
from warpdata.server.routes.analyses import find_running
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, EntryName, RefQuery
from warpdata.server.service import Service, is_pinned
from warpdata.server.subsets import no_map

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/map", tags=["statistics"])
_BYTES = "application/octet-stream"
_SHOWN: dict[int | str, dict[str, Any]] = {200: {"description": "Numbers.", "content": {_BYTES: {}}}}
_FOREVER = "private, max-age=31536000, immutable"
_CLASSES = 20
_OTHER, _NULL = 254, 255
_STEPS = 253
VectorColumn = Annotated[str, Query(max_length=1024, description="A column of vectors.")]
Field = Annotated[str, Query(max_length=1024, description="The column that colours the points.")]


class MapView(Answer):
    """A map. While `is_ready` is false, it has no points: start an analysis of the kind "map"; `job_id` is at work.

    Coordinates are from 0 to `edge`, with y upwards. `explained` is the share of the variance along each axis,
    `sampled_rows` the rows that the axes follow from, and `clipped` counts points beyond the edge, which are shown
    there. Rows without a vector have no point; then `has_gaps` is true, and `rows` lists the others.
    """

    version: str
    table: str
    column: str
    is_ready: bool
    job_id: str | None
    method: str
    edge: int
    rows: int
    points: int
    has_gaps: bool
    dimensions: int
    sampled_rows: int
    explained: list[float]
    clipped: int


class MapColorView(Answer):
    """One colour: a value and its points. `code` is its byte in the colours."""

    code: int
    value: Any
    count: int


class MapLegendView(Answer):
    """What the colours of a map mean: frequent values, or numbers from `minimum` to `maximum` as bytes 0 to 253.

    Byte 254 is any other value, and 255 is null, NaN or infinite.
    """

    version: str
    field: str
    is_range: bool
    minimum: float | None
    maximum: float | None
    colors: list[MapColorView]
    others: int
    nulls: int


@router.get("", summary="Show a map")
def get_map(
    service: ServiceOf, dataset_id: Readable, column: VectorColumn, ref: RefQuery = None, table: EntryName = None
) -> MapView:
    """Describe the map of a column of vectors: its method, and whether it is computed."""
    _, dataset = service.open(dataset_id, ref)
    opened = dataset.table(table)
    dimensions = check_vector_column(opened.raw().schema(), column)
    found = find_map(service, dataset, opened.name, column)
    arguments = {"version": dataset.version, "table": opened.name, "column": column}
    return MapView(
        version=dataset.version,
        table=opened.name,
        column=column,
        is_ready=found is not None,
        job_id=None if found else find_running(service, dataset_id, "map", arguments),
        method="principal components",
        edge=MAP_EDGE,
        rows=opened.unfiltered_count,
        points=0 if found is None else len(found.rows),
        has_gaps=found is not None and len(found.rows) < opened.unfiltered_count,
        dimensions=dimensions,
        sampled_rows=0 if found is None else found.sampled_rows,
        explained=[0.0, 0.0] if found is None else list(found.explained),
        clipped=0 if found is None else found.clipped,
    )


@router.get("/points", summary="Read the points of a map", responses=_SHOWN, response_class=Response)
def get_map_points(
    service: ServiceOf, dataset_id: Readable, column: VectorColumn, ref: RefQuery = None, table: EntryName = None
) -> Response:
    """Return x and y of each point in turn, as unsigned 16-bit numbers in little-endian order."""
    found, _ = _find(service, dataset_id, ref, table, column)
    return _numbers(found.points.astype("<u2"), ref)


@router.get("/rows", summary="Read the rows of a map", responses=_SHOWN, response_class=Response)
def get_map_rows(
    service: ServiceOf, dataset_id: Readable, column: VectorColumn, ref: RefQuery = None, table: EntryName = None
) -> Response:
    """Return the number of the row of each point, as unsigned 32-bit numbers in little-endian order."""
    found, _ = _find(service, dataset_id, ref, table, column)
    return _numbers(found.rows.astype("<u4"), ref)


@router.get("/legend", summary="Explain the colours of a map")
def get_map_legend(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    column: VectorColumn,
    field: Field,
    ref: RefQuery = None,
    table: EntryName = None,
) -> MapLegendView:
    """Return the values of a column with the byte and the number of points of each."""
    found, dataset = _find(service, dataset_id, ref, table, column)
    return _colors(service, dataset, table, found, field)[0]


@router.get("/colors", summary="Read the colours of a map", responses=_SHOWN, response_class=Response)
def get_map_colors(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    column: VectorColumn,
    field: Field,
    ref: RefQuery = None,
    table: EntryName = None,
) -> Response:
    """Return one byte for each point, which the legend explains."""
    found, dataset = _find(service, dataset_id, ref, table, column)
    return _numbers(_colors(service, dataset, table, found, field)[1], ref)


def _find(
    service: Service, dataset_id: str, ref: str | None, table: str | None, column: str
) -> tuple[Projection, Dataset]:
    _, dataset = service.open(dataset_id, ref)
    opened = dataset.table(table)
    check_vector_column(opened.raw().schema(), column)
    found = find_map(service, dataset, opened.name, column)
    if found is None:
        raise no_map(column)
    return found, dataset


def _numbers(numbers: NDArray[Any], ref: str | None) -> Response:
    headers = {"Cache-Control": _FOREVER if is_pinned(ref) else "private, no-cache"}
    return Response(numbers.tobytes(), headers=headers, media_type=_BYTES)


def _colors(
    service: Service, dataset: Dataset, table: str | None, found: Projection, field: str
) -> tuple[MapLegendView, NDArray[np.uint8]]:
    """Return the legend and the bytes of a column. Computed once for a version."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    opened = dataset.table(table).raw()
    if field not in opened.schema().names:
        raise ColumnNotFoundError(f"table {opened.name!r} has no column {field!r}")
    key = ("colors", dataset.version, opened.name, found.column, field)
    known: tuple[MapLegendView, NDArray[np.uint8]] | None = service.analyses.get(key)
    if known is not None:
        return known
    values = opened.select([field]).to_arrow(allow_large=True)[field].combine_chunks()
    if len(found.rows) < len(values):
        values = values.take(pa.array(found.rows))
    legend = MapLegendView(
        version=dataset.version, field=field, is_range=False, minimum=None, maximum=None, colors=[], others=0, nulls=0
    )
    kind = values.type
    is_number = pa.types.is_floating(kind) or pa.types.is_integer(kind)
    if is_number and pc.count_distinct(values).as_py() > _CLASSES:
        numbers = values.cast("float64", safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False)
        finite = np.isfinite(numbers)
        low, high = (float(numbers[finite].min()), float(numbers[finite].max())) if finite.any() else (0.0, 0.0)
        steps = (np.where(finite, numbers, low) - low) / ((high - low) or 1.0) * _STEPS
        codes = np.where(finite, np.rint(steps), _NULL).astype(np.uint8)
        update = {"is_range": True, "minimum": low, "maximum": high, "nulls": int((~finite).sum())}
        made = legend.model_copy(update=update)
    else:
        made, codes = _classes(values, legend)
    service.analyses.put(key, (made, codes), codes.nbytes)
    return made, codes


def _classes(values: pa.Array, legend: MapLegendView) -> tuple[MapLegendView, NDArray[np.uint8]]:
    """Give the most frequent values a byte each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        raise ColumnNotFoundError(
            f"column {legend.field!r} is {values.type}, which has no colours", hint="Choose plain values."
        )
    texts = values if pa.types.is_string(values.type) else values.cast(pa.string())
    encoded = texts.dictionary_encode()
    places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.bincount(places[places >= 0], minlength=len(encoded.dictionary))
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=lambda at: (-int(counts[at]), names[at]))[:_CLASSES]
    codes = np.full(len(names) + 1, _OTHER, np.uint8)
    codes[-1] = _NULL
    codes[order] = np.arange(len(order))
    plain = dict(zip(names, encoded.dictionary.cast(values.type).to_pylist(), strict=True))
    made = legend.model_copy(
        update={
            "colors": [
                MapColorView(code=code, value=plain[names[at]], count=int(counts[at])) for code, at in enumerate(order)
            ],
            "others": int(counts.sum() - counts[order].sum()) if len(names) else 0,
            "nulls": int(pc.sum(pc.is_null(values)).as_py() or 0),
        }
    )
    return made, codes[places]
