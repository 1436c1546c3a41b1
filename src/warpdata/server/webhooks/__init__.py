"""Webhooks out: signed messages about heads and jobs, sent until they arrive, and logged."""

from warpdata.server.webhooks.delivery import MAX_ATTEMPTS, deliver_next, sign_message
from warpdata.server.webhooks.sender import WebhookSender
from warpdata.server.webhooks.subscriptions import (
    NewWebhook,
    create_webhook,
    find_delivery,
    find_webhook,
    ping_webhook,
    redeliver,
)

__all__ = [
    "MAX_ATTEMPTS",
    "NewWebhook",
    "WebhookSender",
    "create_webhook",
    "deliver_next",
    "find_delivery",
    "find_webhook",
    "ping_webhook",
    "redeliver",
    "sign_message",
]
