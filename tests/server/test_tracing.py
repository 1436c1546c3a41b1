"""If this fails, traces are sent unasked, carry secrets, or leave out who called."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.server.conftest import publish
from warpdata.server.tracing import is_tracing, tracing
from warpdata.settings import has_trace_collector


def test_tracing_is_off_unless_a_collector_is_named() -> None:
    assert not has_trace_collector({})
    assert not has_trace_collector({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"})
    assert has_trace_collector({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"})
    assert has_trace_collector({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"})
    with tracing("1"):
        assert not is_tracing()


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """The address of a collector, and the spans that it has received."""
    trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            for resource in trace_service.ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()
    thread.join()
    server.server_close()


def test_requests_and_jobs_are_spans_without_secrets(
    collector: tuple[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, spans = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    store = str(tmp_path / "store")
    publish(store, "acme/pets")
    command = [sys.executable, "-m", "warpdata.cli", "serve", "--json", "--port", "0", "--no-sign-in", "--store", store]
    command += ["--database", f"sqlite:///{tmp_path}/service.db"]
    with serving(command) as base:
        image = f"{base}/api/v1/datasets/acme/pets/images/cats/1.png"
        signed = json.loads(call(f"{image}/url"))["url"]
        caller = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        call(image, headers=caller)
        with pytest.raises(HTTPError):  # the user of a service without sign-in cannot grant it
            call(signed, headers=caller)
        headers = {"X-Warp-Request": "1", "Content-Type": "application/json"}
        call(f"{base}/api/v1/datasets/acme/pets/jobs", headers=headers, data=b'{"kind": "verify"}')
        wait_for(spans, "job verify")
    names = [span.name for span in spans]
    assert "GET /files/{signed}/{filename}" in names
    assert "GET /datasets/{workspace}/{name}/images/{path:path}" in names
    secret = signed.partition("/files/")[2].partition("/")[0]
    assert secret
    assert all(secret not in str(span) and "cats" not in str(span) for span in spans)
    (of_caller, _) = [span for span in spans if span.trace_id == b"\xaa" * 16]
    assert of_caller.parent_span_id == b"\xbb" * 8


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """Run a service, and yield its address."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                text += process.stdout.readline()
            yield json.loads(text)["url"]
        finally:
            process.terminate()


def call(url: str, **given: Any) -> bytes:
    with urlopen(Request(url, **given)) as answer:  # noqa: S310 - loopback
        data: bytes = answer.read()
        return data


def wait_for(spans: list[Any], name: str) -> None:
    ended = threading.Event()
    for _ in range(300):
        if any(span.name == name for span in spans):
            return
        ended.wait(0.1)
    pytest.fail(f"no span {name!r} in {sorted({span.name for span in spans})}")
