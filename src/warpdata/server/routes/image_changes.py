"""Changes of a selection of images: tags, split or removal, for some images or for all that match."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from warpdata.errors import BadInputError
from warpdata.limits import MAX_CLASS_NAME_LENGTH, MAX_FILTER_LENGTH, MAX_NAME_LENGTH
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.jobs import NewJob
from warpdata.server.routes.collections import open_collection
from warpdata.server.routes.jobs import JobView, start_job
from warpdata.server.routes.parameters import Body, RefText, Sentence, dataset_place
from warpdata.server.routes.refs import Writable

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["collections"])
_Path = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
_Tag = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", min_length=1, max_length=MAX_NAME_LENGTH)]


class ImageChangesBody(Body):
    """What changes for the images of a selection: those that are named, or all of a version that match.

    `remove` takes them from HEAD; versions keep them.
    """

    paths: Annotated[list[_Path], Field(min_length=1, max_length=10_000)] | None = None
    ref: RefText | None = None
    filter: Annotated[str, StringConstraints(max_length=MAX_FILTER_LENGTH)] | None = None
    class_name: Annotated[str, StringConstraints(max_length=MAX_CLASS_NAME_LENGTH)] | None = None
    add_tags: Annotated[list[_Tag], Field(max_length=100)] = Field(default_factory=list)
    remove_tags: Annotated[list[_Tag], Field(max_length=100)] = Field(default_factory=list)
    split: _Tag | None = None
    remove: bool = False
    message: Sentence = ""


@router.post("/image-changes", summary="Change a selection", status_code=202, response_model=JobView)
def post_image_changes(
    service: ServiceOf, caller: Caller, dataset_id: Writable, body: ImageChangesBody, once: Once
) -> Response:
    """Tag, move or remove images of HEAD, as a job with one commit. What matches is evaluated in the version of now."""
    open_collection(service, dataset_id)
    changes = bool(body.add_tags or body.remove_tags or body.split)
    if changes == body.remove:
        raise BadInputError("a change is either a removal, or tags and a split", hint="Send one of them.")
    if body.paths is not None and (body.filter or body.class_name):
        raise BadInputError("a selection is either paths, or a filter and a class", hint="Send one of them.")
    found, dataset = service.open(dataset_id, body.ref)
    if body.filter:
        dataset.table("images").filter(body.filter)
    arguments = body.model_dump(exclude={"ref"}) | {"version": found.version, "author": caller.name}
    return start_job(caller, NewJob("change-images", caller.user_id, dataset_place(dataset_id), arguments), once)
