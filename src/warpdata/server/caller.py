"""The parts of a request that routes ask for: the service, the principal, and the answer to a repeated request.

A bearer token comes before a cookie. The browser sends a cookie with the requests of any page, so a request that
changes something must carry a header that other sites cannot set, and come from this origin.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from warpdata.errors import AccessDeniedError, AuthenticationError, BadInputError, CommitUnknownError, ConflictError
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access import (
    SIGN_IN_S,
    AttemptLimit,
    Principal,
    Roles,
    find_sign_in,
    find_token,
    recall_sign_in,
    recall_token,
)
from warpdata.server.database import IdempotencyRow
from warpdata.server.service import Service

__all__ = [
    "CSRF_HEADER",
    "LOCAL_USER",
    "BaseUrl",
    "Caller",
    "Once",
    "ServiceOf",
    "client_ip",
    "cookie_name",
    "find_principal",
    "recall_principal",
    "set_sign_in_cookie",
]

CSRF_HEADER = "X-Warp-Request"
LOCAL_USER = "local"
"""The user of a service without sign-in, which only this machine reaches."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_MAX_KEY_LENGTH = 128
_LOCAL = Principal(LOCAL_USER, LOCAL_USER, Roles(is_admin=True))
M = TypeVar("M", bound=BaseModel)


async def get_service(request: Request) -> Service:  # asynchronous, because a thread would cost more than it does
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(get_service)]


def client_ip(request: Request) -> str:
    return request.client.host if request.client else ""


def cookie_name(service: Service) -> str:
    """Return the name of the cookie. The prefix makes browsers insist on https and on this host alone."""
    is_secure = (service.options.public_url or "").startswith("https://")
    return "__Host-warp" if is_secure else "warp_sign_in"


def set_sign_in_cookie(answer: Response, service: Service, secret: str) -> None:
    """Let the browser of an answer be signed in."""
    name = cookie_name(service)
    is_secure = name.startswith("__Host-")
    answer.set_cookie(name, secret, max_age=SIGN_IN_S, httponly=True, samesite="lax", secure=is_secure, path="/")


async def get_principal(request: Request, service: ServiceOf) -> Principal:
    """Return the user of a request, or raise `AuthenticationError`. A read may know it from within the last second."""
    limit: AttemptLimit = request.app.state.attempts
    known = recall_principal(service, limit, request.headers, client_ip(request)) if _is_read(request) else None
    return known or replace(await run_in_threadpool(_identify, request, service), ip=client_ip(request))


def recall_principal(service: Service, limit: AttemptLimit, headers: Headers, ip: str) -> Principal | None:
    """Return the user of a read if it is known from within the last second. Asks nothing of the database."""
    return _reader(service, limit, headers, ip, (recall_token, recall_sign_in))


def find_principal(service: Service, limit: AttemptLimit, headers: Headers, ip: str) -> Principal | None:
    """Return the user of a read; None without a sign-in. A token that is not valid is an error, and not counted."""
    return _reader(service, limit, headers, ip, (find_token, find_sign_in))


_Finder = Callable[[Service, str], Principal | None]


def _reader(
    service: Service, limit: AttemptLimit, headers: Headers, ip: str, find: tuple[_Finder, _Finder]
) -> Principal | None:
    """Return the user of a request that changes nothing, so that its origin does not matter."""
    header = headers.get("authorization")
    if header is not None:
        limit.check(ip)
        scheme, _, secret = header.partition(" ")
        found = find[0](service, secret.strip()) if scheme.lower() == "bearer" else None
    elif not service.options.requires_sign_in:
        found = _LOCAL
    else:
        secret = cookie_parser(headers.get("cookie", "")).get(cookie_name(service), "")
        found = find[1](service, secret) if secret else None
    return None if found is None else replace(found, ip=ip)


def _is_read(request: Request) -> bool:
    return request.method in _SAFE_METHODS


def _identify(request: Request, service: Service) -> Principal:
    header = request.headers.get("authorization")
    if header is not None:
        return _by_token(request, service, header)
    if not service.options.requires_sign_in:
        _check_origin(request, service)
        return _LOCAL
    secret = request.cookies.get(cookie_name(service))
    found = find_sign_in(service, secret) if secret else None
    if found is None:
        raise AuthenticationError(
            "the request has no valid token or sign-in",
            hint="Send `Authorization: Bearer wd_…`, or open a sign-in link: `warp server link` prints one.",
        )
    _check_origin(request, service)
    return found


def _by_token(request: Request, service: Service, header: str) -> Principal:
    limit: AttemptLimit = request.app.state.attempts
    limit.check(client_ip(request))
    scheme, _, secret = header.partition(" ")
    try:
        if scheme.lower() != "bearer":
            raise AuthenticationError("the Authorization header is not `Bearer wd_…`")
        return find_token(service, secret.strip())
    except AuthenticationError:
        limit.fail(client_ip(request))
        raise


def _check_origin(request: Request, service: Service) -> None:
    """Refuse a change that another site's page may have sent with the cookie of this one."""
    if _is_read(request):
        return
    origin = request.headers.get("origin")
    own = service.options.public_url or str(request.base_url)
    is_foreign = origin is not None and urlsplit(origin)[:2] != urlsplit(own)[:2]
    if is_foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise AccessDeniedError("the request comes from another web site")
    if CSRF_HEADER not in request.headers:
        raise AccessDeniedError(
            f"a change by a signed-in browser needs the header {CSRF_HEADER}", hint=f"Send `{CSRF_HEADER}: 1`."
        )


async def get_base_url(request: Request, service: ServiceOf) -> str:
    """Return the address of the service as its users write it, without a slash at the end."""
    return (service.options.public_url or str(request.base_url)).rstrip("/")


BaseUrl = Annotated[str, Depends(get_base_url)]
Caller = Annotated[Principal, Depends(get_principal)]


@dataclass(frozen=True)
class Repeatable:
    """A request with an `Idempotency-Key`. The work is done once; a repeated request gets the first answer."""

    service: Service
    principal: Principal
    key: str | None
    fingerprint: str

    def answer(self, work: Callable[[], M], *, status: int = 201, keeps_body: bool = True) -> Response:
        """Do the work and return its answer, or return the answer of the request before."""
        if self.key is None:
            return _json(work().model_dump_json(), status)
        known = self._claim()
        if known is not None:
            return known
        try:
            body = work().model_dump_json()
        except CommitUnknownError:
            raise  # it may have been done, so it is not done again
        except BaseException:
            self._finish(None, None)
            raise
        self._finish(status, body if keeps_body else None)
        return _json(body, status)

    def _claim(self) -> Response | None:
        assert self.key is not None
        with self.service.database.write() as db:
            row = db.get(IdempotencyRow, (self.principal.user_id, self.key))
            if row is None:
                row = IdempotencyRow(user_id=self.principal.user_id, key=self.key, fingerprint=self.fingerprint)
                row.created = self.service.now()
                db.add(row)
                return None
        if row.fingerprint != self.fingerprint:
            raise ConflictError(
                f"the Idempotency-Key {self.key!r} was used for another request", hint="Use a new key for each request."
            )
        if row.status is None:
            raise ConflictError(
                "a request with this Idempotency-Key is at work, or its outcome is unknown",
                hint="Look whether it was done, then send it with a new key.",
            )
        if row.body is None:
            raise ConflictError(
                "this was done before, and its answer is shown only once", hint="Use a new key to do it again."
            )
        return _json(row.body, row.status, replayed=True)

    def _finish(self, status: int | None, body: str | None) -> None:
        with self.service.database.write() as db:
            row = db.get(IdempotencyRow, (self.principal.user_id, self.key))
            if row is not None and status is None:
                db.delete(row)  # nothing was done, so it may be tried again
            elif row is not None:
                row.status, row.body = status, body


def _json(body: str, status: int, *, replayed: bool = False) -> Response:
    headers = {"Cache-Control": "no-store", **({"Idempotent-Replayed": "true"} if replayed else {})}
    return Response(body, status, headers, "application/json")


async def get_repeatable(
    request: Request,
    service: ServiceOf,
    principal: Caller,
    idempotency_key: Annotated[
        str | None,
        Header(description="Repeats of a request with this key get the first answer.", max_length=_MAX_KEY_LENGTH),
    ] = None,
) -> Repeatable:
    """Return the identity of a request that may be repeated."""
    if idempotency_key is not None and not (idempotency_key.isascii() and idempotency_key.isprintable()):
        raise BadInputError("the Idempotency-Key is not printable ASCII")
    body = await request.body()
    content = json.dumps([request.method, request.url.path, request.url.query, sha256_hex(body)])
    return Repeatable(service, principal, idempotency_key, sha256_hex(content.encode()))


Once = Annotated[Repeatable, Depends(get_repeatable)]
