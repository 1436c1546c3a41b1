"""Connections to labelling tools: rows of the database, and how the service reaches a tool and itself."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select

from warpdata.errors import AuthenticationError, ErrorKind, LimitExceededError, NotFoundError, WarpError
from warpdata.limits import MAX_LABEL_CONNECTIONS, MIB
from warpdata.server.access import NewS3Key, Place, create_s3_key, revoke_s3_key, secret_of_s3_key
from warpdata.server.database import LabelConnectionRow
from warpdata.server.labelling.checks import (
    ECHO_S,
    LabelConnection,
    ToolCheck,
    check_cvat,
    check_gateway,
    check_studio,
)
from warpdata.server.labelling.studio_api import Ask, StudioApi, ToolAnswer
from warpdata.server.s3 import KeyRight, S3Grant
from warpdata.server.safe_http import AddressRule, FetchLimits, check_url, rule_with_host, send_safely
from warpdata.server.service import Service

__all__ = [
    "NewConnection",
    "ToolName",
    "authenticate_tool",
    "check_parts",
    "connection_link",
    "create_connection",
    "events_url",
    "find_connection",
    "list_connections",
    "remove_connection",
    "studio_of",
]

ToolName = Literal["label-studio", "cvat"]
_LIMITS = FetchLimits(connect_s=5, total_s=60, max_bytes=64 * MIB, max_redirects=0)
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class NewConnection:
    """A labelling tool for one dataset, with the token of its API."""

    place: Place
    tool: ToolName
    name: str
    url: str
    token: str
    owner_id: str


def create_connection(service: Service, new: NewConnection) -> LabelConnectionRow:
    """Create a connection with an S3 key of its own, which reads the dataset and sends labels for it."""
    check_reachable(service, new.url)
    dataset = new.place.dataset or ""
    place = (LabelConnectionRow.workspace == new.place.workspace) & (LabelConnectionRow.dataset == dataset)
    with service.database.read() as db:
        count = db.scalar(select(func.count()).where(place)) or 0
    if count >= MAX_LABEL_CONNECTIONS:
        raise LimitExceededError(f"a dataset has at most {MAX_LABEL_CONNECTIONS} connections", hint="Remove one first.")
    grant = S3Grant(KeyRight.INBOX, new.place.workspace, new.place.dataset)
    key = create_s3_key(service, new.owner_id, NewS3Key(f"{new.tool}: {new.name}"[:256], grant))
    row = LabelConnectionRow(
        id=service.new_id(),
        workspace=new.place.workspace,
        dataset=dataset,
        tool=new.tool,
        name=new.name,
        url=new.url.rstrip("/"),
        token=new.token,
        access_key=key.row.access_key,
        secret=service.new_secret(),
        owner_id=new.owner_id,
        echo=None,
        last_event=None,
        created=service.now(),
    )
    with service.database.write() as db:
        db.add(row)
    return row


def check_reachable(service: Service, url: str) -> None:
    """Raise the error of a URL that is none. One that the operator does not allow yet is a finding of a check."""
    try:
        check_url(service.addresses, url)
    except WarpError as error:
        if error.kind != ErrorKind.ADDRESS_REFUSED:
            raise


def find_connection(service: Service, place: Place, connection_id: str) -> LabelConnectionRow:
    """Return a connection of a dataset; `NotFoundError` for one of another."""
    with service.database.read() as db:
        row = db.get(LabelConnectionRow, connection_id)
    if row is None or (row.workspace, row.dataset) != (place.workspace, place.dataset):
        raise NotFoundError(f"there is no connection {connection_id!r}")
    return row


def list_connections(service: Service, place: Place) -> list[LabelConnectionRow]:
    """Return the connections of a dataset, oldest first."""
    query = select(LabelConnectionRow).where(
        LabelConnectionRow.workspace == place.workspace, LabelConnectionRow.dataset == (place.dataset or "")
    )
    with service.database.read() as db:
        return list(db.scalars(query.order_by(LabelConnectionRow.created, LabelConnectionRow.id)))


def remove_connection(service: Service, row: LabelConnectionRow) -> None:
    """Remove a connection with its batches, and end its S3 key. Projects of the tool stay."""
    with suppress(NotFoundError):  # its user may be gone, and the key with them
        revoke_s3_key(service, row.owner_id, row.access_key)
    with service.database.write() as db:
        found = db.get(LabelConnectionRow, row.id)
        if found is not None:
            db.delete(found)


def authenticate_tool(service: Service, connection_id: str, secret: str) -> LabelConnectionRow:
    """Return the connection of a call by a tool. An unknown connection and a wrong secret are the same error."""
    with service.database.read() as db:
        row = db.get(LabelConnectionRow, connection_id)
    expected = row.secret if row is not None else "0" * 40
    if not hmac.compare_digest(expected.encode(), secret.encode()) or row is None:
        raise AuthenticationError(
            "the call has not the secret of a connection", hint="Copy it from the page Labelling of the dataset."
        )
    return row


def connection_link(service: Service, row: LabelConnectionRow, base: str, ref: str) -> LabelConnection:
    """Return how the tool of a connection reads a version. `base` is the address of this service."""
    return LabelConnection(
        endpoint=f"{base}/s3",
        access_key=row.access_key,
        secret=secret_of_s3_key(service, row.access_key),
        bucket=row.workspace,
        prefix=f"{row.dataset}/{ref}/images/",
        studio_url=row.url,
        studio_token=row.token,
    )


def studio_of(service: Service, row: LabelConnectionRow) -> StudioApi:
    """Return the API of the Label Studio of a connection."""
    return StudioApi(row.url, row.token, _ask_through(service.addresses))


def events_url(base: str, row: LabelConnectionRow) -> str:
    """Return where a tool sends its webhooks."""
    return f"{base}/api/v1/labelling/{row.id}/events"


def check_parts(
    service: Service, row: LabelConnectionRow, base: str, part: Literal["gateway", "tool"]
) -> Iterator[ToolCheck]:
    """Check one part of a connection: the gateway as a tool and a browser use it, or the tool itself."""
    link = connection_link(service, row, base, "HEAD")
    if part == "gateway":
        own = _ask_through(rule_with_host(service.addresses, base))
        yield from check_gateway(link, own, service.session.clock())
    elif row.tool == "cvat":
        yield check_cvat(link, _ask_through(service.addresses))
    else:
        title = f"warpdata check {service.new_id()[:8]}"
        echo = _RecordedEcho(service, row, base)
        yield from check_studio(link, _ask_through(service.addresses), lambda: nullcontext(echo), title)


class _RecordedEcho:
    """Waits until the route of events has written a number down. Any process of the service may have taken it."""

    def __init__(self, service: Service, row: LabelConnectionRow, base: str) -> None:
        self._service = service
        self._row = row
        self._number = service.new_id()
        self._base = base

    @property
    def url(self) -> str:
        return f"{events_url(self._base, self._row)}?echo={self._number}"

    def wait(self) -> bool:
        session = self._service.session
        started = session.timer()
        while session.timer() - started < ECHO_S:
            with self._service.database.read() as db:
                found = db.get(LabelConnectionRow, self._row.id)
                if found is not None and found.echo == self._number:
                    return True
            session.sleep(_POLL_S)
        return False


def _ask_through(rule: AddressRule) -> Ask:
    """Return a function that sends requests where a rule allows, and answers errors as text."""

    def ask(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ToolAnswer:
        try:
            reply = send_safely(rule, method, url, headers=headers, body=body or b"", limits=_LIMITS)
        except WarpError as error:
            return ToolAnswer(0, {}, error.message, is_refused=error.kind == ErrorKind.ADDRESS_REFUSED)
        return ToolAnswer(reply.status, reply.headers, reply.data.decode("utf-8", "replace"))

    return ask
