"""Statistics of labels: distributions over splits, sizes and places, and findings of checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field, StringConstraints
from sqlalchemy import select

from warpdata.collections import check_collection, describe_labels
from warpdata.errors import BadInputError
from warpdata.limits import MAX_NAME_LENGTH
from warpdata.search import check_vector_column
from warpdata.server.access import AuditEntry, record
from warpdata.server.analyses import find_quality, placed_objects
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.database import JobRow
from warpdata.server.jobs import NewJob, enqueue
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.jobs import JobView
from warpdata.server.routes.parameters import Answer, Body, RefQuery, RefText, dataset_place
from warpdata.server.service import Service

__all__ = ["find_running", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["statistics"])
_OPEN = ("queued", "running")


class ClassCountsView(Answer):
    """One class: its objects, and the images that have any, in the order of `splits`."""

    class_name: str
    objects: list[int]
    images: list[int]


class CountBinView(Answer):
    """Counts of values from `low` to before `high`, which is null for the last bin."""

    low: float
    high: float | None
    count: int


class ShapeBinView(Answer):
    """Images of one shape. `filter` selects them in the table `images`."""

    name: str
    filter: str
    count: int


class LabelDistributionsView(Answer):
    """How the labels of a version are distributed. A split without a name is the empty text.

    `heat` counts the centres of objects in `heat_cells` × `heat_cells` cells, row by row, and `together` the images
    with both of two classes of `paired`. `areas` has bins of an object's share of its image. `unplaced` counts objects
    without a place: labels of whole images, and objects of images without a known size.
    """

    version: str
    images: int
    objects: int
    splits: list[str]
    images_by_split: list[int]
    classes: list[ClassCountsView]
    objects_per_image: list[CountBinView]
    sizes: list[ShapeBinView]
    aspects: list[ShapeBinView]
    unsized_images: int
    areas: list[CountBinView]
    heat_cells: int
    heat: list[int]
    heat_by_class: dict[str, list[int]]
    unplaced: int
    paired: list[str]
    together: list[list[int]]


class LeakView(Answer):
    """Pairs of equal ("leakage") or similar ("near_leakage") images of two splits, and the images in such pairs."""

    check: str
    splits: list[str]
    pairs: int
    images: int


class QualityCheckView(Answer):
    """One check: its findings, and the images that have any."""

    check: str
    findings: int
    images: int


class QualityView(Answer):
    """Checks of the labels of a version.

    While `is_ready` is false, the lists are empty: start an analysis of the kind "quality". `job_id` is the one at
    work. `unread` counts files that could not be decoded.
    """

    version: str
    is_ready: bool
    job_id: str | None
    images: int
    objects: int
    unread: int
    checks: list[QualityCheckView]
    leaks: list[LeakView]


class NewAnalysisBody(Body):
    """An analysis to compute in the background.

    "map" places the rows of `table` by the vectors of `column`. "quality" checks labels, and with `near_bits` also
    reads all images of a collection to find similar ones in other splits.
    """

    kind: Literal["map", "quality"]
    ref: RefText | None = None
    table: Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f/]+$", max_length=MAX_NAME_LENGTH)] | None = None
    column: Annotated[str, StringConstraints(max_length=1024)] | None = None
    near_bits: Annotated[int, Field(ge=0, le=7)] | None = None


NearBits = Annotated[
    int | None,
    Query(ge=0, le=7, description="Images are similar if their hashes differ in at most this many of 64 bits."),
]


@router.get("/label-distributions", summary="Describe the labels of a version")
def get_label_distributions(service: ServiceOf, dataset_id: Readable, ref: RefQuery = None) -> LabelDistributionsView:
    """Count objects and images by class, split, size and place, and the classes that occur together."""
    _, dataset = service.open(dataset_id, ref)
    key = ("distributions", dataset_id, dataset.version)
    found = service.statistics.get(key)
    if not isinstance(found, LabelDistributionsView):
        made = describe_labels(placed_objects(service, dataset), dataset.version)
        found = LabelDistributionsView.model_validate(made)
        service.statistics.put(key, found)
    return found


@router.get("/label-quality", summary="Show checks of the labels of a version")
def get_label_quality(
    service: ServiceOf, dataset_id: Readable, ref: RefQuery = None, near_bits: NearBits = None
) -> QualityView:
    """Count tiny, outside, overlapping and duplicate objects, and images that are in two splits.

    Of a small version the labels are checked at once; of others, and for similar images, by an analysis.
    """
    _, dataset = service.open(dataset_id, ref)
    found = find_quality(service, dataset, near_bits)
    arguments = {"version": dataset.version, "near_bits": near_bits}
    if found is None:
        running = find_running(service, dataset_id, "quality", arguments)
        empty: dict[str, Any] = {"images": 0, "objects": 0, "unread": 0, "checks": [], "leaks": []}
        return QualityView(version=dataset.version, is_ready=False, job_id=running, **empty)
    return QualityView(
        version=dataset.version,
        is_ready=True,
        job_id=None,
        images=found.images,
        objects=found.objects,
        unread=found.unread,
        checks=[
            QualityCheckView(check=check, findings=count, images=len(found.rows[check]))
            for check, count in found.counts.items()
            if check != "near_leakage" or near_bits is not None
        ],
        leaks=[
            LeakView(check=check, splits=[one, two], pairs=pairs, images=len(rows))
            for check, one, two, pairs, rows in found.leaks
        ],
    )


@router.post("/analyses", summary="Start an analysis", status_code=202, response_model=JobView)
def start_analysis(
    service: ServiceOf, caller: Caller, dataset_id: Readable, body: NewAnalysisBody, once: Once
) -> Response:
    """Compute an analysis of a version in the background. One that is under way is not started again.

    Everyone who may read the dataset may start one: it changes nothing, and is computed once for a version.
    """
    _, dataset = service.open(dataset_id, body.ref)
    arguments: dict[str, Any] = {"version": dataset.version}
    if body.kind == "quality":
        check_collection(dataset)
        arguments["near_bits"] = body.near_bits
    else:
        if body.column is None:
            raise BadInputError("a map needs a column of vectors", hint="Send its name as `column`.")
        arguments |= {"table": dataset.table(body.table).name, "column": body.column}
        check_vector_column(dataset.table(body.table).raw().schema(), body.column)
    place = dataset_place(dataset_id)

    def work() -> JobView:
        running = find_running(service, dataset_id, body.kind, arguments)
        with service.database.write() as db:
            if running is not None:
                return JobView.model_validate(db.get_one(JobRow, running))
            row = enqueue(service, db, NewJob(body.kind, caller.user_id, place, {**arguments, "author": caller.name}))
            record(service, db, caller, AuditEntry(f"start-{body.kind}", str(place), place))
        return JobView.model_validate(row)

    return once.answer(work, status=202)


def find_running(service: Service, dataset_id: str, kind: str, arguments: dict[str, Any]) -> str | None:
    """Return the id of a job that computes this analysis now."""
    place = dataset_place(dataset_id)
    query = select(JobRow).where(
        JobRow.kind == kind,
        JobRow.workspace == place.workspace,
        JobRow.dataset == place.dataset,
        JobRow.state.in_(_OPEN),
    )
    with service.database.read() as db:
        for row in db.scalars(query):
            if arguments.items() <= dict(row.arguments).items():
                return row.id
    return None
