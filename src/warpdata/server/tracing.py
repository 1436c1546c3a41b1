"""Traces of requests and jobs by OpenTelemetry: off, unless the environment names a collector.

A span has the pattern of a route and never a path or a query, because signed URLs and sign-in links carry secrets.
That is why the framework's own tracing is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import propagate, trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warpdata.primitives.extras import require
from warpdata.server.database import JobRow
from warpdata.settings import has_trace_collector

__all__ = ["TracedRequests", "is_tracing", "job_span", "tracing"]

_NAME = "warpdata.server"
_PURPOSE = "Tracing to the collector of OTEL_EXPORTER_OTLP_ENDPOINT"
_UNTRACED = ("/healthz", "/readyz", "/metrics")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@contextmanager
def tracing(version: str) -> Iterator[None]:
    """Send the spans of this process to the collector of the environment, if there is one, and the last at the end."""
    if not has_trace_collector():
        yield
        return
    sdk = require("opentelemetry.sdk.trace", purpose=_PURPOSE, extra="telemetry")
    export = require("opentelemetry.sdk.trace.export", purpose=_PURPOSE, extra="telemetry")
    resources = require("opentelemetry.sdk.resources", purpose=_PURPOSE, extra="telemetry")
    otlp = require("opentelemetry.exporter.otlp.proto.http.trace_exporter", purpose=_PURPOSE, extra="telemetry")
    about = resources.Resource({"service.name": "warpdata", "service.version": version})
    provider = sdk.TracerProvider(resource=about.merge(resources.OTELResourceDetector().detect()))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def is_tracing() -> bool:
    """Return whether spans of this process are recorded."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


class TracedRequests:
    """The outermost layer of a traced application: one span for each request, also for those of the gateway."""

    def __init__(self, app: ASGIApp, *, gateway_root: str) -> None:
        self._app = app
        self._root = gateway_root
        self._tracer = trace.get_tracer(_NAME)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNTRACED:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        status = 500

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        parent, kind = propagate.extract(headers), trace.SpanKind.SERVER
        with self._tracer.start_as_current_span(method, parent, kind, record_exception=False) as span:
            try:
                await self._app(scope, receive, send_noted)
            finally:
                is_gateway = scope["path"] == self._root or scope["path"].startswith(f"{self._root}/")
                route = self._root if is_gateway else getattr(scope.get("route"), "path", "other")
                span.update_name(f"{method} {route}")
                known = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
                span.set_attributes(known)
                if status >= 500:
                    span.set_status(trace.StatusCode.ERROR)


@contextmanager
def job_span(row: JobRow) -> Iterator[None]:
    """Trace one attempt at a job."""
    place = f"{row.workspace}/{row.dataset}".strip("/")
    about = {"warp.job.id": row.id, "warp.job.kind": row.kind, "warp.dataset": place}
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span(f"job {row.kind}", attributes=about, record_exception=False):
        yield
