"""Events: what happened, for live updates and for webhooks, written in the transaction of the change itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session as OrmSession

from warpdata.server.database import EventRow, WebhookDeliveryRow, WebhookRow
from warpdata.server.service import Service

__all__ = ["PENDING", "WEBHOOK_EVENTS", "ServiceEvent", "add_delivery", "add_event"]

PENDING = "pending"
WEBHOOK_EVENTS = ("head.moved", "job.done", "job.failed", "job.cancelled", "ping")
"""What a webhook may ask for. `ping` is sent on request, whatever a webhook asks for."""
_FINAL = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """A head that moved or a job that changed. Without a workspace, it is of the whole service."""

    kind: str
    workspace: str
    dataset: str
    data: Mapping[str, Any]

    @property
    def webhook_name(self) -> str | None:
        """The name of the event for webhooks; None for progress, which they do not hear of."""
        if self.kind == "head":
            return "head.moved"
        return f"job.{self.data['state']}" if self.data.get("state") in _FINAL else None


def add_event(service: Service, db: OrmSession, event: ServiceEvent) -> None:
    """Write an event, and a delivery for each webhook that asks for it."""
    row = EventRow(
        time=service.now(), kind=event.kind, workspace=event.workspace, dataset=event.dataset, data=dict(event.data)
    )
    db.add(row)
    name = event.webhook_name
    if name is None or not event.workspace:
        return
    query = select(WebhookRow).where(WebhookRow.workspace == event.workspace, WebhookRow.is_active)
    for webhook in db.scalars(query):
        if name in webhook.events and webhook.dataset in ("", event.dataset):
            add_delivery(service, db, webhook, name, event.data)


def add_delivery(
    service: Service, db: OrmSession, webhook: WebhookRow, name: str, data: Mapping[str, Any]
) -> WebhookDeliveryRow:
    """Write a message to a webhook, for a worker to send."""
    about = {"type": name, "timestamp": service.now(), "workspace": webhook.workspace, "data": dict(data)}
    row = WebhookDeliveryRow(
        id=service.new_id(),
        webhook_id=webhook.id,
        event=name,
        body=json.dumps(about, separators=(",", ":")),
        state=PENDING,
        attempts=0,
        next_attempt=service.now(),
        status=None,
        error=None,
        created=service.now(),
        finished=None,
    )
    db.add(row)
    return row
