"""Errors as `application/problem+json`: the kind of the error is the stable `code`, and the hint is one next step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import IntegrityError, OperationalError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from warpdata.errors import (
    AuthenticationError,
    BadInputError,
    ConflictError,
    DeniedError,
    ErrorKind,
    NotFoundError,
    RateLimitedError,
    StorageError,
    UnsupportedError,
    WarpError,
)

__all__ = ["MEDIA_TYPE", "PROBLEMS", "ErrorDescription", "Problem", "add_handlers", "describe_error", "problem"]

MEDIA_TYPE = "application/problem+json"
_LOG = logging.getLogger("warpdata.server")
_RETRY_AFTER_S = 5
_STATUSES: tuple[tuple[type[WarpError], int], ...] = (
    (RateLimitedError, 429),
    (AuthenticationError, 401),
    (DeniedError, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (UnsupportedError, 422),
    (BadInputError, 422),
    (StorageError, 503),
)
_CODES = {
    401: ErrorKind.AUTHENTICATION,
    403: ErrorKind.ACCESS_DENIED,
    404: ErrorKind.NOT_FOUND,
    413: ErrorKind.LIMIT_EXCEEDED,
    429: ErrorKind.RATE_LIMITED,
    503: ErrorKind.STORAGE,
}
_MAX_FINDINGS = 20
_TITLES = {460: "Checksum Mismatch"}
"""Titles of statuses that HTTP itself does not have: that of the tus protocol."""


class InvalidField(BaseModel):
    """A part of a request that does not fit, and why."""

    where: str
    message: str


class Problem(BaseModel):
    """Why a request failed (RFC 9457). `code` is stable; `hint` is one next step."""

    model_config: ClassVar[ConfigDict] = {"extra": "forbid"}
    type: str
    title: str
    status: int
    code: str = Field(description="A kind of error, as in the errors reference.")
    detail: str
    hint: str | None = None
    fields: list[InvalidField] | None = Field(None, description="The parts of the request that do not fit.")


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for status in (400, 401, 403, 404, 405, 409, 413, 422, 429, 503)
}
"""The answers that every route may give beside its own."""


def problem(
    status: int,
    code: str,
    detail: str,
    hint: str | None = None,
    *,
    fields: list[InvalidField] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """Return the answer to a request that failed. `extra` adds members of one kind of problem."""
    found = Problem(
        type=f"urn:warpdata:error:{code}",
        title=_TITLES.get(status) or HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        hint=hint,
        fields=fields,
    )
    headers = {"Cache-Control": "no-store"}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(_RETRY_AFTER_S)
    return JSONResponse({**found.model_dump(exclude_none=True), **(extra or {})}, status, headers, MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Answer every error with a problem document. Failures of the service itself are logged, and not shown."""
    app.add_exception_handler(WarpError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(OperationalError, _on_database)
    app.add_exception_handler(IntegrityError, _on_race)
    app.add_exception_handler(Exception, _on_defect)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, WarpError)
    shown = describe_error(error)
    if shown.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _LOG.error("%s %s failed: %s", request.method, request.url.path, error.message)
    answer = problem(shown.status, error.kind, shown.detail, shown.hint)
    if isinstance(error, RateLimitedError):
        answer.headers["Retry-After"] = str(error.retry_after_s)
    return answer


@dataclass(frozen=True, slots=True)
class ErrorDescription:
    """What a user hears of an error. Names of datasets of others and of stored objects stay in the log."""

    status: int
    detail: str
    hint: str | None


def describe_error(error: WarpError) -> ErrorDescription:
    """Return the status of an error, and what its user may know about it."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        detail = "the store cannot answer now" if status == HTTPStatus.SERVICE_UNAVAILABLE else "stored data is damaged"
        return ErrorDescription(status, detail, "An operator finds the reason in the log of the service.")
    if error.kind is ErrorKind.SHARED_BYTES:
        detail = "another dataset has the same bytes, so they cannot be erased"
        return ErrorDescription(status, detail, "An operator finds out which one.")
    return ErrorDescription(status, error.message, error.hint)


async def _on_invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = [
        InvalidField(where=".".join(map(str, one["loc"])), message=str(one["msg"]))
        for one in error.errors()[:_MAX_FINDINGS]
    ]
    first = f"{found[0].where}: {found[0].message}" if found else "it does not fit the schema"
    return problem(422, ErrorKind.BAD_INPUT, f"the request is not valid: {first}", fields=found)


async def _on_http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, ErrorKind.BAD_INPUT)
    answer = problem(error.status_code, code, str(error.detail))
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _on_database(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("%s %s: the database failed: %s", request.method, request.url.path, error)
    return problem(503, ErrorKind.STORAGE, "the database cannot answer now")


async def _on_race(_request: Request, _error: Exception) -> JSONResponse:
    return problem(409, ErrorKind.CONFLICT, "another request changed the same thing at the same time", "Send it again.")


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(500, ErrorKind.ERROR, "the service failed; its log has the reason")
