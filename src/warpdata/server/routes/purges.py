"""Purges as jobs: start one after its impact was confirmed, and read intents and receipts."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import StringConstraints

from warpdata.collections import PurgeRequest
from warpdata.errors import NotFoundError
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.jobs import NewJob
from warpdata.server.routes.collections import open_collection
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.jobs import JobView, start_job
from warpdata.server.routes.parameters import Answer, Body, Sentence, dataset_place, page_behind
from warpdata.server.routes.refs import Writable
from warpdata.server.routes.removal import ErasureReceiptView

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/purges", tags=["removal"])
PurgeId = Annotated[str, Path(pattern=r"^[0-9a-f-]{36}$")]


class NewPurgeBody(Body):
    """A decision about a file: the `impact_token` that was seen, and what to do with versions that have the file."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    action: Literal["mark_broken", "auto_repair"]
    token: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    reason: Sentence = ""


class PurgeView(Answer):
    """A purge. It is unfinished until its receipt proves that nothing remains."""

    purge_id: str
    status: Literal["unfinished", "finished"]
    path: str
    action: str
    author: str
    reason: str
    started: str
    receipt: ErasureReceiptView | None


class PurgeList(Answer):
    """Purges, oldest first."""

    purges: list[PurgeView]
    next_cursor: str | None


@router.post("", summary="Start a purge", status_code=202, response_model=JobView)
def create_purge(service: ServiceOf, caller: Caller, dataset_id: Writable, body: NewPurgeBody, once: Once) -> Response:
    """Erase the bytes of a file from HEAD and all versions, as a job. Another impact than the token's is a conflict.

    A purge cannot be undone. Cancelled before it begins, the job changes nothing; later, the purge stays unfinished,
    and resuming the job or sending the same request finishes it.
    """
    request = PurgeRequest(body.path, body.action, body.token, body.reason, caller.name)
    open_collection(service, dataset_id, caller.name).check_purge(request)
    arguments = {**body.model_dump(), "author": caller.name}
    return start_job(caller, NewJob("purge", caller.user_id, dataset_place(dataset_id), arguments), once)


@router.get("", summary="List purges")
def list_purges(
    service: ServiceOf,
    dataset_id: Readable,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9a-f-]{36}$", description="The `next_cursor` before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PurgeList:
    """List the purges of a collection with their receipts, oldest first."""
    page, following = page_behind([(one.purge_id, one) for one in _purges(service, dataset_id)], cursor, limit)
    return PurgeList(purges=page, next_cursor=following)


@router.get("/{purge_id}", summary="Show a purge")
def get_purge(service: ServiceOf, dataset_id: Readable, purge_id: PurgeId) -> PurgeView:
    """Show a purge, with its receipt once it is finished."""
    found = next((one for one in _purges(service, dataset_id) if one.purge_id == purge_id), None)
    if found is None:
        raise NotFoundError(f"{dataset_id} has no purge {purge_id!r}")
    return found


def _purges(service: ServiceOf, dataset_id: str) -> list[PurgeView]:
    collection = open_collection(service, dataset_id)
    found = [
        PurgeView(
            purge_id=one.purge_id,
            status="unfinished",
            path=one.path,
            action=one.action,
            author=one.author,
            reason=one.reason,
            started=one.time,
            receipt=None,
        )
        for one in collection.unfinished_purges()
    ]
    for receipt in collection.receipts():
        view = ErasureReceiptView.model_validate(receipt)
        members = {name: getattr(receipt, name) for name in ("purge_id", "path", "action", "author", "reason")}
        found.append(PurgeView(**members, status="finished", started=receipt.started, receipt=view))
    return sorted(found, key=lambda one: (one.started, one.purge_id))
