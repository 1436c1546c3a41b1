"""One attempt to deliver a message: claimed in the database, signed, sent, and written down.

The signature is that of the Standard Webhooks specification: HMAC-SHA256 over id, time and body. A receiver may get a
message twice, with the same id.
"""

from __future__ import annotations

import base64
import hmac
from hashlib import sha256

from sqlalchemy import select

from warpdata.errors import WarpError
from warpdata.server.database import WebhookDeliveryRow, WebhookRow
from warpdata.server.event_log import PENDING
from warpdata.server.safe_http import FetchLimits, send_safely
from warpdata.server.service import Service

__all__ = ["MAX_ATTEMPTS", "deliver_next", "sign_message"]

MAX_ATTEMPTS = 8
_FIRST_WAIT_S, _LONGEST_WAIT_S = 5.0, 6 * 3600.0
_LIMITS = FetchLimits(connect_s=5, total_s=10, max_bytes=64 * 1024, max_redirects=0)
_CLAIM_S = 60.0
"""Another worker tries a message whose worker died after this time."""


def deliver_next(service: Service) -> bool:
    """Send the oldest message that is due. Return whether there was one."""
    claimed = _claim(service)
    if claimed is None:
        return False
    message, webhook = claimed
    status, error = _send(service, message, webhook)
    is_done = status is not None and 200 <= status < 300
    with service.database.write() as db:
        row = db.get(WebhookDeliveryRow, message.id, with_for_update=True)
        if row is None or row.attempts != message.attempts:
            return True  # it was sent again, or the webhook is gone
        row.status, row.error = status, error
        if is_done:
            row.state, row.finished = "delivered", service.now()
        elif row.attempts >= MAX_ATTEMPTS:
            row.state, row.finished = "failed", service.now()
        else:
            row.next_attempt = service.later(_wait_s(service, row.attempts))
    return True


def sign_message(secret: str, message_id: str, timestamp: int, body: str) -> str:
    """Return the value of the header `webhook-signature`."""
    key = base64.b64decode(secret.partition("_")[2])
    mac = hmac.new(key, f"{message_id}.{timestamp}.{body}".encode(), sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"


def _claim(service: Service) -> tuple[WebhookDeliveryRow, WebhookRow] | None:
    """Take a message for a while, so that no other worker sends it."""
    due = (WebhookDeliveryRow.state == PENDING) & (WebhookDeliveryRow.next_attempt <= service.now())
    with service.database.read() as db:  # so that an idle worker takes no lock of a writer
        if db.scalar(select(WebhookDeliveryRow.id).where(due).limit(1)) is None:
            return None
    query = select(WebhookDeliveryRow).where(due).order_by(WebhookDeliveryRow.next_attempt, WebhookDeliveryRow.id)
    with service.database.write() as db:
        row = db.scalar(query.limit(1).with_for_update(skip_locked=True))
        if row is None:
            return None
        webhook = db.get_one(WebhookRow, row.webhook_id)
        row.attempts += 1
        row.next_attempt = service.later(_CLAIM_S)
    return row, webhook


def _send(service: Service, message: WebhookDeliveryRow, webhook: WebhookRow) -> tuple[int | None, str | None]:
    timestamp = int(service.session.clock().timestamp())
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign_message(webhook.secret, message.id, timestamp, message.body),
    }
    try:
        reply = send_safely(
            service.addresses, "POST", webhook.url, headers=headers, body=message.body.encode(), limits=_LIMITS
        )
    except WarpError as error:
        return None, error.message
    return reply.status, None if reply.status < 300 else f"the receiver answered {reply.status}"


def _wait_s(service: Service, attempts: int) -> float:
    """Return the time until the next attempt: exponential back-off with jitter, about 15 hours in all."""
    longest = min(_FIRST_WAIT_S * 5 ** (attempts - 1), _LONGEST_WAIT_S)
    return service.session.rng.uniform(longest / 2, longest)
