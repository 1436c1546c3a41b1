"""Labels that arrive: they become items of the inbox at once, and an event says so. Nothing enters HEAD here."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from warpdata.collections import Collection, is_collection
from warpdata.datasets import open_dataset
from warpdata.errors import WarpError
from warpdata.repository.catalog import Address
from warpdata.server.event_log import ServiceEvent, add_event
from warpdata.server.service import Service

__all__ = ["announce_items", "receive_labels", "sync_file", "sync_inbox"]

_LOG = logging.getLogger("warpdata.server.labelling")


def sync_file(service: Service, dataset_id: str, ref: str, name: str) -> None:
    """Make items of a file that the gateway has stored. It is stored, so a failure is logged and not raised."""
    try:
        found = Collection(service.session, dataset_id).inbox.sync_file(ref, name)
    except WarpError as error:
        _LOG.warning("the file %s/%s for %s is not in the inbox yet: %s", ref, name, dataset_id, error.message)
        return
    announce_items(service, dataset_id, found.items)


def sync_inbox(service: Service, dataset_id: str) -> tuple[int, list[tuple[str, str]]]:
    """Make items of all files that were sent to a collection. Return how many, and the files that cannot be read."""
    if not is_collection(open_dataset(service.session, Address(dataset_id))):
        return 0, []
    found = Collection(service.session, dataset_id).inbox.sync()
    announce_items(service, dataset_id, found.items)
    return len(found.items), list(found.unread)


def receive_labels(
    service: Service, dataset_id: str, data: bytes, source: str, *, version: str | None, annotator: str | None
) -> list[str]:
    """Store labels of a tool, and return the ids of their items."""
    inbox = Collection(service.session, dataset_id).inbox
    items = inbox.receive(data, source, version=version, annotator=annotator)
    announce_items(service, dataset_id, items)
    return items


def announce_items(service: Service, dataset_id: str, items: Sequence[str]) -> None:
    """Tell those who follow the events that the inbox changed."""
    if not items:
        return
    workspace, _, name = dataset_id.partition("/")
    event = ServiceEvent("inbox", workspace, name, {"dataset": dataset_id, "items": len(items)})
    with service.database.write() as db:
        add_event(service, db, event)
