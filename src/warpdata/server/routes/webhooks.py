"""Webhooks of a workspace: create, test, read their log, and send a message again."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import Field, StringConstraints
from sqlalchemy import select

from warpdata.errors import BadInputError
from warpdata.limits import MAX_NAME_LENGTH
from warpdata.server.access import Action, AuditEntry, Place, Principal, authorize, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.database import WebhookDeliveryRow, WebhookRow
from warpdata.server.routes.parameters import Answer, Body, WorkspaceName
from warpdata.server.safe_http import check_url
from warpdata.server.webhooks import (
    NewWebhook,
    create_webhook,
    find_delivery,
    find_webhook,
    ping_webhook,
    redeliver,
)

__all__ = ["router"]

WebhookEvent = Literal["head.moved", "job.done", "job.failed", "job.cancelled"]
_Events = Annotated[list[WebhookEvent], Field(min_length=1, max_length=10)]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\x00-\x20]+$", max_length=2048)]
WebhookId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
DeliveryId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


def manage_workspace(caller: Caller, workspace: WorkspaceName) -> Principal:
    """Return the caller, who owns the workspace."""
    authorize(caller, Action.MANAGE, Place(workspace))
    return caller


Owner = Annotated[Principal, Depends(manage_workspace)]


router = APIRouter(
    prefix="/workspaces/{workspace}/webhooks", tags=["webhooks"], dependencies=[Depends(manage_workspace)]
)


class NewWebhookBody(Body):
    """An address and its events. With a dataset, it hears of that dataset alone."""

    url: _Url
    events: _Events
    dataset: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", max_length=MAX_NAME_LENGTH)] | None = None


class WebhookChangeBody(Body):
    """What changes. Members that are left out stay."""

    url: _Url | None = None
    events: _Events | None = None
    is_active: bool | None = None


class WebhookView(Answer):
    """A webhook without its secret."""

    id: str
    workspace: str
    dataset: str
    url: str
    events: list[str]
    is_active: bool
    created: str


class NewWebhookView(WebhookView):
    """A new webhook. `secret` is shown once; it verifies the header `webhook-signature`."""

    secret: str


class WebhookList(Answer):
    """The webhooks of a workspace."""

    webhooks: list[WebhookView]


class DeliveryView(Answer):
    """A message: pending, delivered or failed, with the last status or error."""

    id: str
    event: str
    body: str
    state: str
    attempts: int
    next_attempt: str
    status: int | None
    error: str | None
    created: str
    finished: str | None


class DeliveryList(Answer):
    """Messages, newest first."""

    deliveries: list[DeliveryView]
    next_cursor: str | None


@router.get("", summary="List webhooks")
def list_webhooks(service: ServiceOf, workspace: WorkspaceName) -> WebhookList:
    """List the webhooks of a workspace."""
    query = select(WebhookRow).where(WebhookRow.workspace == workspace).order_by(WebhookRow.created, WebhookRow.id)
    with service.database.read() as db:
        return WebhookList(webhooks=[WebhookView.model_validate(row) for row in db.scalars(query)])


@router.post("", summary="Create a webhook", status_code=201, response_model=NewWebhookView)
def post_webhook(
    service: ServiceOf, owner: Owner, workspace: WorkspaceName, body: NewWebhookBody, once: Once
) -> Response:
    """Send events to an address. It is public, or in a network that the operator allows."""
    place = Place(workspace, body.dataset)

    def work() -> NewWebhookView:
        with service.database.write() as db:
            row = create_webhook(service, db, NewWebhook(place, body.url, body.events, owner.user_id))
            record(service, db, owner, AuditEntry("create-webhook", row.id, place, {"events": row.events}))
        return NewWebhookView.model_validate(row)

    return once.answer(work, keeps_body=False)


@router.patch("/{webhook_id}", summary="Change a webhook")
def patch_webhook(
    service: ServiceOf, owner: Owner, workspace: WorkspaceName, webhook_id: WebhookId, body: WebhookChangeBody
) -> WebhookView:
    """Change the address or the events, or switch a webhook off and on."""
    find_webhook(service, workspace, webhook_id)
    if body.url is not None:
        check_url(service.addresses, body.url)
    changes = body.model_dump(exclude_none=True)
    with service.database.write() as db:
        row = db.get_one(WebhookRow, webhook_id)
        for name, value in changes.items():
            setattr(row, name, value)
        record(service, db, owner, AuditEntry("change-webhook", webhook_id, Place(workspace), {"changed": [*changes]}))
    return WebhookView.model_validate(row)


@router.delete("/{webhook_id}", summary="Remove a webhook", status_code=204)
def delete_webhook(service: ServiceOf, owner: Owner, workspace: WorkspaceName, webhook_id: WebhookId) -> Response:
    """Remove a webhook with its log."""
    find_webhook(service, workspace, webhook_id)
    with service.database.write() as db:
        db.delete(db.get_one(WebhookRow, webhook_id))
        record(service, db, owner, AuditEntry("remove-webhook", webhook_id, Place(workspace)))
    return Response(status_code=204)


@router.post("/{webhook_id}/ping", summary="Test a webhook", status_code=202, response_model=DeliveryView)
def post_ping(service: ServiceOf, workspace: WorkspaceName, webhook_id: WebhookId, once: Once) -> Response:
    """Send a `ping`. The log says whether it arrived."""
    found = find_webhook(service, workspace, webhook_id)

    def work() -> DeliveryView:
        with service.database.write() as db:
            return DeliveryView.model_validate(ping_webhook(service, db, found))

    return once.answer(work, status=202)


@router.get("/{webhook_id}/deliveries", summary="Show the log of a webhook")
def list_deliveries(
    *,
    service: ServiceOf,
    workspace: WorkspaceName,
    webhook_id: WebhookId,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9TZ:.-]{24}_[0-9a-f]{32}$")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DeliveryList:
    """List messages, newest first. Those that ended are kept for 30 days."""
    found = find_webhook(service, workspace, webhook_id)
    query = select(WebhookDeliveryRow).where(WebhookDeliveryRow.webhook_id == found.id)
    query = query.order_by(WebhookDeliveryRow.created.desc(), WebhookDeliveryRow.id.desc())
    if cursor is not None:
        created, _, last = cursor.partition("_")
        same = (WebhookDeliveryRow.created == created) & (WebhookDeliveryRow.id < last)
        query = query.where((WebhookDeliveryRow.created < created) | same)
    with service.database.read() as db:
        rows = db.scalars(query.limit(limit + 1)).all()
    following = f"{rows[limit - 1].created}_{rows[limit - 1].id}" if len(rows) > limit else None
    return DeliveryList(deliveries=[DeliveryView.model_validate(row) for row in rows[:limit]], next_cursor=following)


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/redeliver",
    summary="Send a message again",
    status_code=202,
    response_model=DeliveryView,
)
def post_redelivery(
    *,
    service: ServiceOf,
    owner: Owner,
    workspace: WorkspaceName,
    webhook_id: WebhookId,
    delivery_id: DeliveryId,
    once: Once,
) -> Response:
    """Send a message again, with the same id. One that is still being tried is a 422."""
    row = find_delivery(service, find_webhook(service, workspace, webhook_id), delivery_id)
    if row.state == "pending":
        raise BadInputError("the message is still being tried", hint="Wait for its end.")

    def work() -> DeliveryView:
        with service.database.write() as db:
            again = redeliver(service, db, delivery_id)
            record(service, db, owner, AuditEntry("redeliver", delivery_id, Place(workspace)))
        return DeliveryView.model_validate(again)

    return once.answer(work, status=202)
