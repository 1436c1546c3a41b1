"""Which addresses hear of which events."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import LimitExceededError, NotFoundError
from warpdata.limits import MAX_WEBHOOKS
from warpdata.server.access import Place
from warpdata.server.database import WebhookDeliveryRow, WebhookRow
from warpdata.server.event_log import PENDING, add_delivery
from warpdata.server.safe_http import check_url
from warpdata.server.service import Service

__all__ = ["NewWebhook", "create_webhook", "find_delivery", "find_webhook", "ping_webhook", "redeliver"]

_SECRET_PREFIX = "whsec_"  # noqa: S105 - not a password


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """An address, and the events that it hears of."""

    place: Place
    url: str
    events: Sequence[str]
    owner_id: str


def create_webhook(service: Service, db: OrmSession, new: NewWebhook) -> WebhookRow:
    """Create a webhook with a secret. `AccessDeniedError` for an address that is not public."""
    check_url(service.addresses, new.url)
    count = db.scalar(select(func.count()).where(WebhookRow.workspace == new.place.workspace)) or 0
    if count >= MAX_WEBHOOKS:
        raise LimitExceededError(f"a workspace has at most {MAX_WEBHOOKS} webhooks", hint="Remove one first.")
    row = WebhookRow(
        id=service.new_id(),
        workspace=new.place.workspace,
        dataset=new.place.dataset or "",
        url=new.url,
        secret=_SECRET_PREFIX + base64.b64encode(bytes.fromhex(service.new_secret())).decode(),
        events=list(dict.fromkeys(new.events)),
        is_active=True,
        owner_id=new.owner_id,
        created=service.now(),
    )
    db.add(row)
    return row


def find_webhook(service: Service, workspace: str, webhook_id: str) -> WebhookRow:
    """Return a webhook of a workspace; `NotFoundError` for one of another."""
    with service.database.read() as db:
        row = db.get(WebhookRow, webhook_id)
    if row is None or row.workspace != workspace:
        raise NotFoundError(f"there is no webhook {webhook_id!r}")
    return row


def find_delivery(service: Service, webhook: WebhookRow, delivery_id: str) -> WebhookDeliveryRow:
    """Return a message of a webhook."""
    with service.database.read() as db:
        row = db.get(WebhookDeliveryRow, delivery_id)
    if row is None or row.webhook_id != webhook.id:
        raise NotFoundError(f"there is no delivery {delivery_id!r}")
    return row


def ping_webhook(service: Service, db: OrmSession, webhook: WebhookRow) -> WebhookDeliveryRow:
    """Send a message that says nothing, to see whether it arrives."""
    return add_delivery(service, db, webhook, "ping", {"webhook": webhook.id})


def redeliver(service: Service, db: OrmSession, delivery_id: str) -> WebhookDeliveryRow:
    """Send a message again, with its id, so that a receiver can tell that it is the same."""
    row = db.get_one(WebhookDeliveryRow, delivery_id, with_for_update=True)
    row.state, row.attempts, row.next_attempt, row.finished = PENDING, 0, service.now(), None
    return row
