"""The application: routers, error answers, the guard, and the document that describes the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

from warpdata.limits import MAX_BODY_BYTES, MAX_FILE_BYTES
from warpdata.server.access import AttemptLimit, Principal, Roles, S3KeyRing, SignInProvider
from warpdata.server.caller import CSRF_HEADER
from warpdata.server.fast_reads import FastReads
from warpdata.server.guard import Guard, RequestMetrics, allowed_hosts
from warpdata.server.index import record_change
from warpdata.server.jobs import start_workers, stop_workers
from warpdata.server.labelling import sync_file
from warpdata.server.page_files import PageFiles
from warpdata.server.problems import PROBLEMS, Problem, add_handlers
from warpdata.server.routes import API_PREFIX, ROUTERS, provider, unversioned
from warpdata.server.routes.removal import ConfirmationProblem
from warpdata.server.s3 import BucketFiles, KnownKey, S3Gateway
from warpdata.server.service import Service
from warpdata.server.tracing import TracedRequests, is_tracing

__all__ = ["create_app"]

S3_ROOT = "/s3"
_DESCRIPTION = f"""\
Versioned datasets over HTTP. Every error is `application/problem+json` with a stable `code`.

Send `Authorization: Bearer wd_…`, or sign in with a browser and send the header `{CSRF_HEADER}: 1` with changes.
What you may not read does not exist: the answer is 404.

Limits: bodies of {MAX_BODY_BYTES:,} bytes, files of {MAX_FILE_BYTES:,} bytes in one request, pages of 1,000 items.
"""


def create_app(service: Service) -> FastAPI:
    """Return the ASGI application over an opened service."""
    app = FastAPI(
        title="warpdata",
        version=service.options.version,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
        generate_unique_id_function=lambda route: route.name,
        lifespan=_lifespan,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # its spans have whole URLs
    )
    app.state.service = service
    app.state.page = PageFiles()
    app.state.metrics = RequestMetrics(CollectorRegistry())
    app.state.is_ending = False
    app.state.attempts = AttemptLimit(service.options.sign_in_attempts, service.session.timer)
    app.state.tool_attempts = AttemptLimit(service.options.sign_in_attempts, service.session.timer)
    options = service.options
    app.state.provider = None if options.provider is None else SignInProvider(service, options.provider)
    add_handlers(app)
    app.include_router(provider.router)
    for router in unversioned:
        app.include_router(router, responses=PROBLEMS)
    for router in ROUTERS:
        app.include_router(router, prefix=API_PREFIX, responses=PROBLEMS)
    app.add_middleware(FastReads, service=service, attempts=app.state.attempts)
    app.add_middleware(
        Guard,
        hosts=allowed_hosts(options),
        metrics=app.state.metrics,
        timer=service.session.timer,
        new_id=service.new_id,
    )
    app.state.s3_keys = S3KeyRing(service)
    app.add_middleware(GatewayMount, gateway=_gateway(app, service))
    if is_tracing():
        app.add_middleware(TracedRequests, gateway_root=S3_ROOT)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _gateway(app: FastAPI, service: Service) -> S3Gateway:
    """Return the gateway with the keys of users. What it receives enters the audit log."""

    def on_write(key: KnownKey, dataset_id: str, action: str, detail: dict[str, str]) -> None:
        writer = Principal("", key.author, Roles(is_admin=False), token_id=key.access_key, ip=key.ip)
        record_change(service, writer, dataset_id, action, detail)
        if action == "receive-label":
            sync_file(service, dataset_id, detail["ref"], detail["name"])

    def on_answer(method: str, status: int, seconds: float) -> None:
        app.state.metrics.count(method, S3_ROOT, status, seconds)

    files = BucketFiles.over(service.session)
    return S3Gateway(files, app.state.s3_keys, root=S3_ROOT, on_write=on_write, on_answer=on_answer)


class GatewayMount:
    """The outermost layer: what is below `/s3` goes to the gateway, which has its own rules and errors."""

    def __init__(self, app: ASGIApp, *, gateway: S3Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_below = scope["type"] == "http" and (scope["path"] == S3_ROOT or scope["path"].startswith(f"{S3_ROOT}/"))
        await (self._gateway if is_below else self._app)(scope, receive, send)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Bound the threads that run calls of the library, and run jobs beside them."""
    service: Service = app.state.service
    anyio.to_thread.current_default_thread_limiter().total_tokens = service.options.threads
    workers = start_workers(service) if service.options.runs_jobs else []
    yield
    app.state.is_ending = True
    stop_workers(workers)


def _describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with the problem schema and the ways to sign in."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for model in (Problem, ConfirmationProblem):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[model.__name__] = schema
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        components["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "A personal token, `wd_…`."}
        }
        document["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
