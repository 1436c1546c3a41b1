"""Sign-in with a provider: to the provider and back. These routes are for browsers, and are outside of the API."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse

from warpdata.errors import AuthenticationError, NotFoundError
from warpdata.server.access import (
    AttemptLimit,
    AuditEntry,
    Principal,
    Roles,
    SignInProvider,
    begin_sign_in,
    record,
)
from warpdata.server.caller import ServiceOf, client_ip, set_sign_in_cookie
from warpdata.server.service import Service

__all__ = ["router"]

router = APIRouter(prefix="/sign-in/provider", include_in_schema=False)
_COOKIE = "warp_provider"
_PATH = "/sign-in/provider"
_WAIT_S = 600


@router.get("")
def go_to_provider(request: Request, service: ServiceOf) -> RedirectResponse:
    """Send the browser to the provider."""
    request.app.state.attempts.check(client_ip(request))
    started = _provider(request).start(_callback(request, service))
    answer = RedirectResponse(started.url, 303, headers={"Cache-Control": "no-store"})
    is_secure = _callback(request, service).startswith("https://")
    answer.set_cookie(
        _COOKIE, started.state, max_age=_WAIT_S, httponly=True, samesite="lax", secure=is_secure, path=_PATH
    )
    return answer


@router.get("/callback")
def come_back(
    request: Request,
    service: ServiceOf,
    state: Annotated[str, Query(max_length=128, pattern=r"^[\x21-\x7e]+$")],
    code: Annotated[str, Query(max_length=4096)] = "",
    error: Annotated[str, Query(max_length=256)] = "",
) -> RedirectResponse:
    """Finish a sign-in: set the cookie and go to the first page."""
    limit: AttemptLimit = request.app.state.attempts
    limit.check(client_ip(request))
    try:
        if error or not code:
            raise AuthenticationError("the provider did not sign the user in", hint="Sign in again.")
        cookie = request.cookies.get(_COOKIE, "")
        user = _provider(request).finish(state, cookie, code, _callback(request, service))
    except AuthenticationError:
        limit.fail(client_ip(request))
        raise
    secret = begin_sign_in(service, user.id)
    actor = Principal(user.id, user.name, Roles(user.is_admin), ip=client_ip(request))
    with service.database.write() as db:
        record(service, db, actor, AuditEntry("sign-in", f"user {user.name}", detail={"by": "provider"}))
    answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    set_sign_in_cookie(answer, service, secret)
    answer.delete_cookie(_COOKIE, path=_PATH)
    return answer


def _provider(request: Request) -> SignInProvider:
    provider: SignInProvider | None = request.app.state.provider
    if provider is None:
        raise NotFoundError("this service has no sign-in provider", hint="Open a sign-in link instead.")
    return provider


def _callback(request: Request, service: Service) -> str:
    base = (service.options.public_url or str(request.base_url)).rstrip("/")
    return f"{base}{_PATH}/callback"
