"""Labelling: connections to Label Studio and CVAT with their checks, batches that go there, and labels that come back.

Nothing here changes HEAD. A label becomes an item of the inbox, and a person or a rule merges it.
"""

from warpdata.server.labelling.batches import find_batch, list_batches, poll_connection, send_batch, sync_labels
from warpdata.server.labelling.checks import (
    ECHO_S,
    LabelConnection,
    ToolCheck,
    check_address,
    check_gateway,
    check_studio,
)
from warpdata.server.labelling.connections import (
    NewConnection,
    ToolName,
    authenticate_tool,
    check_parts,
    create_connection,
    events_url,
    find_connection,
    list_connections,
    remove_connection,
)
from warpdata.server.labelling.inbox_sync import announce_items, receive_labels, sync_file, sync_inbox
from warpdata.server.labelling.pre_labels import predict
from warpdata.server.labelling.studio_api import ToolAnswer

__all__ = [
    "ECHO_S",
    "LabelConnection",
    "NewConnection",
    "ToolAnswer",
    "ToolCheck",
    "ToolName",
    "announce_items",
    "authenticate_tool",
    "check_address",
    "check_gateway",
    "check_parts",
    "check_studio",
    "create_connection",
    "events_url",
    "find_batch",
    "find_connection",
    "list_batches",
    "list_connections",
    "poll_connection",
    "predict",
    "receive_labels",
    "remove_connection",
    "send_batch",
    "sync_file",
    "sync_inbox",
    "sync_labels",
]
