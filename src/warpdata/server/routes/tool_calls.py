"""Calls of labelling tools: webhooks about labels, and the ML backend that Label Studio asks for predictions.

A call carries the secret of its connection: in a header, as HTTP Basic, or as the key of a signature.
"""

from __future__ import annotations

import base64
import hmac
from binascii import Error as Base64Error
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from warpdata.collections import check_collection
from warpdata.errors import AuthenticationError
from warpdata.limits import MAX_PREDICTED_TASKS
from warpdata.primitives.strict_json import decode_json
from warpdata.server.access import AttemptLimit
from warpdata.server.caller import ServiceOf, client_ip
from warpdata.server.database import LabelConnectionRow
from warpdata.server.labelling import authenticate_tool, predict, receive_labels
from warpdata.server.routes.parameters import Answer
from warpdata.server.service import Service

__all__ = ["router"]

router = APIRouter(prefix="/labelling/{connection_id}", tags=["labelling tools"])
ConnectionId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
BackendRef = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$", examples=["HEAD"])]
_LABELS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED")
_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


class EventAnswer(Answer):
    """The items of the inbox that an event made."""

    items: list[str]


class HealthAnswer(Answer):
    """The backend answers."""

    status: str
    model_class: str = "warpdata"


class SetupAnswer(Answer):
    """The version whose labels are predicted."""

    model_version: str


class VersionsAnswer(Answer):
    """The versions that can be predicted."""

    versions: list[str]


class PredictionAnswer(Answer):
    """A prediction for each task, in order."""

    results: list[dict[str, Any]]
    model_version: str


class PredictBody(BaseModel):
    """Tasks as Label Studio sends them. Members that later releases add are ignored."""

    tasks: Annotated[list[dict[str, Any]], Field(max_length=MAX_PREDICTED_TASKS)] = Field(
        examples=[[{"id": 1, "data": {"image": "s3://acme/pets/v1/images/cats/1.png", "path": "cats/1.png"}}]]
    )


def basic_secret(authorization: str | None) -> str:
    """Return the password of HTTP Basic; an empty text if there is none."""
    scheme, _, value = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (ValueError, Base64Error):
        return ""


def authenticated(
    request: Request,
    service: ServiceOf,
    connection_id: ConnectionId,
    authorization: Annotated[str | None, Header(max_length=1024)] = None,
) -> LabelConnectionRow:
    """Return the connection of a call with HTTP Basic. Its password is the secret of the connection."""
    return _limited(request, service, connection_id, basic_secret(authorization))


Connection = Annotated[LabelConnectionRow, Depends(authenticated)]


@router.post("/events", summary="Receive an event of a tool", openapi_extra=_BODY)
async def post_event(
    *,
    request: Request,
    service: ServiceOf,
    connection_id: ConnectionId,
    x_warp_secret: Annotated[str | None, Header(max_length=128, description="The secret of the connection.")] = None,
    x_signature_256: Annotated[str | None, Header(max_length=128, description="`sha256=` and an HMAC.")] = None,
    echo: Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$", description="The number of a check.")] = None,
) -> EventAnswer:
    """Take a webhook of Label Studio: a label becomes an item of the inbox at once. Other events change nothing.

    The check of a connection sends one with a number, which is written down and nothing else.
    """
    body = await request.body()
    if echo is not None:
        await run_in_threadpool(_note_echo, service, connection_id, echo)
        return EventAnswer(items=[])

    def receive() -> EventAnswer:
        row = _limited(
            request, service, connection_id, _secret_of(service, connection_id, body, x_warp_secret, x_signature_256)
        )
        _note_event(service, row.id)
        event = decode_json(body, "the event")
        if row.tool != "label-studio" or not isinstance(event, dict) or event.get("action") not in _LABELS:
            return EventAnswer(items=[])
        items = receive_labels(
            service, f"{row.workspace}/{row.dataset}", body, "label-studio", version=None, annotator=None
        )
        return EventAnswer(items=items)

    return await run_in_threadpool(receive)


@router.get("/ml/{ref}/health", summary="Is the ML backend alive")
def get_health(connection: Connection, ref: BackendRef) -> HealthAnswer:  # noqa: ARG001 - checked by their types
    """Say that the backend answers, as Label Studio asks before it adds one."""
    return HealthAnswer(status="UP")


@router.post("/ml/{ref}/setup", summary="Set the ML backend up")
def post_setup(service: ServiceOf, connection: Connection, ref: BackendRef) -> SetupAnswer:
    """Name the version whose labels are predicted."""
    return SetupAnswer(model_version=_open(service, connection, ref).version)


@router.get("/ml/{ref}/versions", summary="List versions of the ML backend")
def get_versions(service: ServiceOf, connection: Connection, ref: BackendRef) -> VersionsAnswer:
    """List the one version that this address predicts."""
    return VersionsAnswer(versions=[_open(service, connection, ref).version])


@router.post("/ml/{ref}/predict", summary="Predict labels of a version")
def post_predict(service: ServiceOf, connection: Connection, ref: BackendRef, body: PredictBody) -> PredictionAnswer:
    """Return the labels that a version has for each task. An image with other bytes there has no prediction."""
    dataset = check_collection(_open(service, connection, ref))
    return PredictionAnswer(results=predict(dataset, body.tasks), model_version=dataset.version)


@router.post("/ml/{ref}/webhook", summary="Receive an event of a project")
def post_backend_event(connection: Connection, ref: BackendRef) -> SetupAnswer:  # noqa: ARG001
    """Take the events that Label Studio sends to a backend. They train nothing here."""
    return SetupAnswer(model_version=ref)


def _open(service: Service, connection: LabelConnectionRow, ref: str) -> Any:
    return service.open(f"{connection.workspace}/{connection.dataset}", None if ref == "HEAD" else ref)[1]


def _secret_of(service: Service, connection_id: str, body: bytes, secret: str | None, signature: str | None) -> str:
    """Return the secret that a webhook shows. A valid signature shows it too."""
    if signature is None:
        return secret or ""
    with service.database.read() as db:
        row = db.get(LabelConnectionRow, connection_id)
    expected = "" if row is None else "sha256=" + hmac.new(row.secret.encode(), body, sha256).hexdigest()
    is_valid = row is not None and hmac.compare_digest(expected.encode(), signature.encode())
    return row.secret if is_valid and row is not None else ""


def _limited(request: Request, service: Service, connection_id: str, secret: str) -> LabelConnectionRow:
    """Authenticate a call, and slow an address down that guesses."""
    limit: AttemptLimit = request.app.state.tool_attempts
    limit.check(client_ip(request))
    try:
        return authenticate_tool(service, connection_id, secret)
    except AuthenticationError:
        limit.fail(client_ip(request))
        raise


def _note_echo(service: Service, connection_id: str, number: str) -> None:
    with service.database.write() as db:
        row = db.get(LabelConnectionRow, connection_id)
        if row is not None:
            row.echo = number


def _note_event(service: Service, connection_id: str) -> None:
    with service.database.write() as db:
        row = db.get(LabelConnectionRow, connection_id)
        if row is not None:
            row.last_event = service.now()
