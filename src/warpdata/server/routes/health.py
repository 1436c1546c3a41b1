"""Routes outside the API: sign-in links, health and metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, RedirectResponse
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import select

from warpdata.errors import AuthenticationError
from warpdata.repository.catalog import read_marker
from warpdata.server.access import (
    AttemptLimit,
    AuditEntry,
    Principal,
    Roles,
    authorize_admin,
    record,
    redeem_sign_in_code,
)
from warpdata.server.caller import Caller, ServiceOf, client_ip, set_sign_in_cookie
from warpdata.server.routes.parameters import Answer

__all__ = ["router"]

router = APIRouter(tags=["service"])


class HealthView(Answer):
    """The state of the process."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="Is the process alive?")
def healthz() -> HealthView:
    """Answer as long as the process runs. Needs no sign-in."""
    return HealthView()


@router.get("/readyz", summary="Can the service answer?")
def readyz(service: ServiceOf) -> HealthView:
    """Answer if the database and the store can be read. Needs no sign-in."""
    with service.database.read() as db:
        db.execute(select(1))
    read_marker(service.session.writer)
    return HealthView()


@router.get("/metrics", response_class=PlainTextResponse, include_in_schema=False)
def metrics(request: Request, caller: Caller) -> Response:
    authorize_admin(caller, "page /metrics")
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/sign-in", include_in_schema=False)
def sign_in(request: Request, service: ServiceOf, code: Annotated[str, Query(max_length=64)]) -> Response:
    """Redeem a one-time link: set the cookie and go to the first page."""
    limit: AttemptLimit = request.app.state.attempts
    limit.check(client_ip(request))
    if "prefetch" in request.headers.get("sec-purpose", request.headers.get("purpose", "")):
        raise AuthenticationError("a link to sign in is not opened ahead of time")
    try:
        user, secret = redeem_sign_in_code(service, code)
    except AuthenticationError:
        limit.fail(client_ip(request))
        raise
    actor = Principal(user.id, user.name, Roles(user.is_admin), ip=client_ip(request))
    with service.database.write() as db:
        record(service, db, actor, AuditEntry("sign-in", f"user {user.name}"))
    answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    set_sign_in_cookie(answer, service, secret)
    return answer
