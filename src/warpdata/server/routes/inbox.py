"""The inbox of a collection: labels that came back, the merge of each, and the decisions of people about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field, StringConstraints
from starlette.concurrency import run_in_threadpool

from warpdata.collections import InboxChoice, InboxReview, LabelInbox
from warpdata.formats.labels import annotation_members
from warpdata.limits import MAX_INBOX_DECISIONS, MAX_NAME_LENGTH, MAX_REF_LENGTH
from warpdata.server.access import Action, AuditEntry, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.labelling import receive_labels, sync_inbox
from warpdata.server.routes.collections import open_collection
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, Authorized, Body, Sentence, dataset_place, page_behind
from warpdata.server.routes.refs import Writable
from warpdata.server.service import Service

__all__ = ["Labelable", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/inbox", tags=["inbox"])
Labelable = Annotated[str, Depends(Authorized(Action.LABEL))]
InboxId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
_Id = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
_Token = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_State = Literal["clean", "conflict", "stale", "unchanged", "accepted", "rejected"]
_WAITING = ("clean", "conflict", "stale", "unchanged")
_LISTED = 100


class InboxItemView(Answer):
    """A label that came back, and its state against the present HEAD.

    `token` names what an acceptance would do now; `objects`, `added`, `removed` and `conflicts` are counts.
    """

    inbox_id: str
    state: _State
    path: str
    source: str
    annotator: str
    time: str
    hash: str
    base: str
    objects: int
    added: int
    removed: int
    conflicts: int
    token: str


class InboxList(Answer):
    """Items, oldest first. `counts` are of all that wait, by state."""

    items: list[InboxItemView]
    counts: dict[str, int]
    head: str
    next_cursor: str | None


class ConflictView(Answer):
    """An object that HEAD and the annotator changed in different ways. Null: it was removed, or was not there."""

    base: dict[str, Any] | None
    head: dict[str, Any] | None
    returned: dict[str, Any] | None


class MergePreviewView(Answer):
    """An item with its three sides, in members of Platform Format, and what an acceptance would change in HEAD.

    `token` names this state: an acceptance with the token of another one is a conflict.
    """

    item: InboxItemView
    base: list[dict[str, Any]]
    head: list[dict[str, Any]]
    returned: list[dict[str, Any]]
    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    conflicts: list[ConflictView]
    lost: list[str]


class ReceivedView(Answer):
    """The items of labels that were received."""

    items: list[str]


class UnreadFileView(Answer):
    """A file of a tool that is no label."""

    file: str
    reason: str


class SyncView(Answer):
    """The number of items that files of tools have made. At most 100 files that cannot be read are listed."""

    items: int
    unread: list[UnreadFileView]
    unread_count: int


class AcceptedItemBody(Body):
    """An item that was seen: its token, and a side for each conflict, in order."""

    inbox_id: _Id
    token: _Token
    choices: Annotated[list[Literal["head", "returned"]], Field(max_length=10_000)] = Field(default_factory=list)


class AcceptBody(Body):
    """Items to merge into HEAD, with one commit."""

    items: Annotated[list[AcceptedItemBody], Field(min_length=1, max_length=MAX_INBOX_DECISIONS)]


class OutcomeView(Answer):
    """What became of an item: the version that has it, or why it was left."""

    inbox_id: str
    version: str | None
    reason: str | None


class AcceptedView(Answer):
    """The outcome of each item. `version` is that of HEAD afterwards; `previous` was HEAD before."""

    version: str
    previous: str
    outcomes: list[OutcomeView]


class RejectBody(Body):
    """Items to reject, and why."""

    items: Annotated[list[_Id], Field(min_length=1, max_length=MAX_INBOX_DECISIONS)]
    note: Sentence = ""


class RejectedView(Answer):
    """The items that were rejected."""

    rejected: list[str]


@router.get("", summary="List labels that came back")
def list_inbox(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    state: Annotated[_State | None, Query(description="Items in this state. Default: all that wait.")] = None,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$", description="The `next_cursor` before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> InboxList:
    """List the items that wait, or those in one state, with their states against the present HEAD."""
    collection = open_collection(service, dataset_id)
    waiting = collection.inbox.reviews()
    if state in ("accepted", "rejected"):
        found = collection.inbox.reviews(state)
    else:
        found = [one for one in waiting if state in (None, one.item.state)]
    page, following = page_behind([(one.item.inbox_id, one) for one in found], cursor, limit)
    counts = {name: sum(one.item.state == name for one in waiting) for name in _WAITING}
    shown = [_item_view(one) for one in page]
    return InboxList(items=shown, counts=counts, head=collection.head.version, next_cursor=following)


@router.get("/{inbox_id}", summary="Preview a merge")
def get_inbox_item(service: ServiceOf, dataset_id: Readable, inbox_id: InboxId) -> MergePreviewView:
    """Show the three sides of an item, and what an acceptance would change."""
    found = _inbox(service, dataset_id).review(inbox_id)
    document = found.document()
    return MergePreviewView(
        item=_item_view(found),
        base=[annotation_members(one) for one in found.base],
        head=[annotation_members(one) for one in found.head],
        returned=document["objects"],
        added=document["added"],
        removed=document["removed"],
        conflicts=[ConflictView(**one) for one in document["conflicts"]],
        lost=document["lost"],
    )


@router.post(
    "",
    summary="Send labels",
    status_code=201,
    response_model=ReceivedView,
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {}}}}},
)
async def post_labels(
    *,
    request: Request,
    service: ServiceOf,
    dataset_id: Labelable,
    source: Annotated[Literal["label-studio", "cvat"], Query()] = "label-studio",
    version: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=MAX_REF_LENGTH)] = None,
    annotator: Annotated[str | None, Query(pattern=r"^[^\x00-\x1f]+$", max_length=MAX_NAME_LENGTH)] = None,
) -> ReceivedView:
    """Send what a tool wrote: an annotation or a webhook of Label Studio, or CVAT for images 1.1. Labelers may.

    `version` and `annotator` are for documents that do not say them. A repetition makes nothing twice.
    """
    data = await request.body()

    def receive() -> ReceivedView:
        open_collection(service, dataset_id)
        items = receive_labels(service, dataset_id, data, source, version=version, annotator=annotator)
        return ReceivedView(items=items)

    return await run_in_threadpool(receive)


@router.post("/sync", summary="Read files that tools have sent", response_model=SyncView)
def post_sync(service: ServiceOf, dataset_id: Labelable) -> SyncView:
    """Make items of files that arrived at the S3 gateway. They do by themselves; this is for files of other gateways.

    A repetition makes nothing twice.
    """
    open_collection(service, dataset_id)
    count, unread = sync_inbox(service, dataset_id)
    listed = [UnreadFileView(file=name, reason=reason) for name, reason in unread[:_LISTED]]
    return SyncView(items=count, unread=listed, unread_count=len(unread))


@router.post("/accept", summary="Merge labels into HEAD", response_model=AcceptedView)
def accept_labels(service: ServiceOf, caller: Caller, dataset_id: Writable, body: AcceptBody, once: Once) -> Response:
    """Merge items that were seen, with one commit. Maintainers may.

    An item is left, with a reason, when HEAD or it changed since, when it is stale, or when a conflict has no choice.
    """
    wanted = [InboxChoice(one.inbox_id, one.token, tuple(one.choices)) for one in body.items]

    def work() -> AcceptedView:
        collection = open_collection(service, dataset_id, caller.name)
        previous = collection.head.version
        outcomes = collection.inbox.accept_seen(wanted, author=caller.name)
        version = next((one.version for one in outcomes if one.version is not None), previous)
        merged = [one.inbox_id for one in outcomes if one.version is not None]
        if merged:
            detail = {"items": merged[:100], "count": len(merged), "version": version}
            record_change(service, caller, dataset_id, "accept-labels", detail)
        shown = [OutcomeView.model_validate(one) for one in outcomes]
        return AcceptedView(version=version, previous=previous, outcomes=shown)

    return once.answer(work, status=200)


@router.post("/reject", summary="Reject labels", response_model=RejectedView)
def reject_labels(service: ServiceOf, caller: Caller, dataset_id: Writable, body: RejectBody, once: Once) -> Response:
    """Reject items. They stay listed as rejected. One that is decided is a conflict, and ends the request."""

    def work() -> RejectedView:
        inbox = open_collection(service, dataset_id, caller.name).inbox
        for inbox_id in body.items:
            inbox.reject(inbox_id, note=body.note, author=caller.name)
        detail = {"items": body.items[:100], "count": len(body.items), "note": body.note}
        with service.database.write() as db:
            record(service, db, caller, AuditEntry("reject-labels", dataset_id, dataset_place(dataset_id), detail))
        return RejectedView(rejected=body.items)

    return once.answer(work, status=200)


def _inbox(service: Service, dataset_id: str) -> LabelInbox:
    return open_collection(service, dataset_id).inbox


def _item_view(found: InboxReview) -> InboxItemView:
    merge, item = found.merge, found.item
    names = ("inbox_id", "state", "path", "source", "annotator", "time", "hash", "base", "objects")
    return InboxItemView(
        **{name: getattr(item, name) for name in names},
        added=0 if merge is None else len(merge.added),
        removed=0 if merge is None else len(merge.removed),
        conflicts=0 if merge is None else len(merge.conflicts),
        token=found.token,
    )
