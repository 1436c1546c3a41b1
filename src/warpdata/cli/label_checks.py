"""Checks of a connection between a labelling tool and the gateway, as the tool and a browser would use it.

A check returns a `Finding` and never raises. A red one says what exactly to set, and where.
"""

from __future__ import annotations

import ipaddress
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import unescape

from warpdata.cli.doctor_checks import Finding
from warpdata.server.s3 import presign

__all__ = ["LabelConnection", "check_connection"]

_TIMEOUT_S = 10
_WEBHOOK_S = 15
_MAX_ANSWER = 4_000_000
_PRIVATE = "SSRF_PROTECTION_ENABLED=false"
_KEEP_HOST = "In the proxy, keep path and Host: `proxy_pass` without a path, and `proxy_set_header Host $http_host;`"


@dataclass(frozen=True, slots=True)
class LabelConnection:
    """The parts of a connection: an endpoint, a key, a bucket with a prefix, and perhaps a Label Studio."""

    endpoint: str
    access_key: str
    secret: str
    bucket: str
    prefix: str
    studio_url: str | None = None
    studio_token: str | None = None
    callback_host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer over HTTP. Status 0 is none, and then `text` says why."""

    status: int
    headers: dict[str, str]
    text: str

    def xml(self, name: str) -> str | None:
        """Return the text of the first element of this name."""
        found = re.search(f"<{name}>([^<]*)</{name}>", self.text)
        return None if found is None else unescape(found[1])


def check_connection(link: LabelConnection) -> Iterator[Finding]:
    """Check each part in turn. Parts that cannot work without a failed one are skipped."""
    reach = _check_reach(link)
    yield reach
    if reach.status == "failed":
        for name in ("credentials", "listing", "browser"):
            yield Finding(name, "skipped", "the endpoint does not answer")
    else:
        yield from _check_gateway(link)
    yield from _check_studio(link) if link.studio_url else [_check_address(link)]


def _check_gateway(link: LabelConnection) -> Iterator[Finding]:
    listed = _list(link)
    credentials = _check_credentials(listed, link)
    yield credentials
    key = listed.xml("Key")
    if credentials.status == "failed":
        yield Finding("listing", "skipped", "the key is not accepted")
        yield Finding("browser", "skipped", "the key is not accepted")
    elif listed.status != 200 or key is None:
        detail = f"there is no object with the prefix {link.prefix!r}" if listed.status == 200 else _reason(listed)
        yield Finding("listing", "failed", detail, "Name a dataset and a ref that exist: `warp ls`, `warp label NAME`.")
        yield Finding("browser", "skipped", "there is no object to read")
    else:
        yield Finding("listing", "ok", f"finds {key}")
        yield _check_browser(link, key)


def _check_reach(link: LabelConnection) -> Finding:
    answer = _get(f"{link.endpoint}/")
    if answer.status == 0:
        step = "Start `warp serve` or `warp gateway`, and pass their address: http://HOST:PORT/s3 for `warp serve`."
        return Finding("reach", "failed", f"{link.endpoint} does not answer: {answer.text}", step)
    if answer.xml("Code") != "AccessDenied":
        step = f"Pass the address of the gateway: {_origin(link.endpoint)}/s3 for `warp serve`."
        return Finding("reach", "failed", f"{link.endpoint} answers {answer.status}, but is no gateway", step)
    return Finding("reach", "ok", f"{link.endpoint} answers")


def _list(link: LabelConnection) -> WebAnswer:
    query = urlencode({"list-type": 2, "max-keys": 1, "prefix": link.prefix}, quote_via=quote)
    return _get(_signed(link, f"{link.endpoint}/{link.bucket}?{query}"))


def _check_credentials(listed: WebAnswer, link: LabelConnection) -> Finding:
    steps = {
        "InvalidAccessKeyId": f"Make a key: `warp server s3-key USER {link.bucket} --right inbox`.",
        "SignatureDoesNotMatch": f"Compare the secret with what `warp server s3-key` printed. {_KEEP_HOST}",
        "RequestTimeTooSkewed": "Set the clock of this machine or of the gateway: `timedatectl set-ntp true`.",
        "NoSuchBucket": f"Make a key for this workspace: `warp server s3-key USER {link.bucket} --right inbox`.",
    }
    code = listed.xml("Code")
    if listed.status == 200:
        return Finding("credentials", "ok", f"the key reads the bucket {link.bucket}")
    step = steps.get(code or "", "Look into the log of the gateway.")
    return Finding("credentials", "failed", _reason(listed), step)


def _check_browser(link: LabelConnection, key: str) -> Finding:
    """Read an object as a page of the tool does: by a signed URL, from another origin, without other headers."""
    page = _origin(link.studio_url or "https://labels.example.com")
    answer = _get(_signed(link, f"{link.endpoint}/{link.bucket}/{quote(key)}"), {"Origin": page})
    allowed = answer.headers.get("access-control-allow-origin")
    if link.studio_url and page.startswith("https://") and link.endpoint.startswith("http://"):
        step = "Put https in front of the gateway, pass `warp serve --public-url https://HOST`, and use that endpoint."
        return Finding("browser", "failed", "a page with https may not load images by http", step)
    if answer.status != 200:
        return Finding("browser", "failed", f"a signed URL of {key} answers: {_reason(answer)}", _KEEP_HOST)
    if allowed not in ("*", page):
        step = "In the proxy, remove what hides it, or add `add_header Access-Control-Allow-Origin * always;`"
        return Finding("browser", "failed", f"a page of {page} may not read it: no Access-Control-Allow-Origin", step)
    return Finding("browser", "ok", f"a page of {page} reads {key} by a signed URL")


def _check_address(link: LabelConnection) -> Finding:
    """Tell what tools think of a private address, when none is asked."""
    host = urlsplit(link.endpoint).hostname or ""
    if _is_private(host):
        step = f"Start Label Studio with {_PRIVATE}, or pass --label-studio URL to ask it."
        return Finding("address", "note", f"{host} is private, and tools refuse such endpoints by default", step)
    return Finding("address", "ok", f"{host} is not known as private")


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".lan"))


def _check_studio(link: LabelConnection) -> Iterator[Finding]:
    """Let Label Studio itself try the storage and a webhook, in a project that is removed again."""
    studio = LabelStudioApi(link)
    made = studio.call("POST", "/api/projects", {"title": f"warp labels check {uuid.uuid4().hex[:8]}"})
    if made.status != 201:
        yield _studio_failure(link, made)
        return
    yield Finding("label studio", "ok", f"{link.studio_url} accepts the token")
    project = json.loads(made.text)["id"]
    try:
        yield _check_storage(link, studio, project)
        yield _check_webhook(link, studio, project)
    finally:
        studio.call("DELETE", f"/api/projects/{project}")


def _studio_failure(link: LabelConnection, answer: WebAnswer) -> Finding:
    if answer.status == 0:
        return Finding("label studio", "failed", f"{link.studio_url} does not answer: {answer.text}", "Start it.")
    if answer.status == 401:
        step = (
            "Copy the token of a user from Account & Settings to LABEL_STUDIO_API_KEY. A legacy token needs "
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN=true"
        )
        return Finding("label studio", "failed", "the token is not accepted", step)
    return Finding("label studio", "failed", f"it answers {answer.status}: {answer.text[:200]}", "Look into its log.")


def _check_storage(link: LabelConnection, studio: LabelStudioApi, project: int) -> Finding:
    storage = {
        "project": project,
        "bucket": link.bucket,
        "prefix": link.prefix.rstrip("/"),
        "use_blob_urls": True,
        "aws_access_key_id": link.access_key,
        "aws_secret_access_key": link.secret,
        "region_name": "us-east-1",
        "s3_endpoint": link.endpoint,
    }
    answer = studio.call("POST", "/api/storages/s3/validate", storage)
    if answer.status == 200:
        return Finding("storage", "ok", "Label Studio reaches the gateway and lists the prefix")
    if "reserved network address" in answer.text:
        step = f"Start Label Studio with {_PRIVATE}, or give the gateway a public address."
        return Finding("storage", "failed", "Label Studio refuses the endpoint, because its address is private", step)
    step = "The endpoint must be one that Label Studio and the browser both reach, not a name inside of Docker."
    return Finding("storage", "failed", f"Label Studio cannot use it: {answer.text[:300]}", step)


def _check_webhook(link: LabelConnection, studio: LabelStudioApi, project: int) -> Finding:
    with _Listener(link.callback_host) as listener:
        webhook = {"url": listener.url, "project": project, "send_payload": True, "send_for_all_actions": True}
        answer = studio.call("POST", "/api/webhooks/", webhook)
        if answer.status != 201:
            if "reserved network address" in answer.text:
                step = f"Start Label Studio with {_PRIVATE}"
                return Finding("webhook", "failed", "Label Studio refuses a private address for webhooks", step)
            return Finding("webhook", "failed", f"it is refused: {answer.text[:200]}", "Look into its log.")
        studio.call("POST", "/api/tasks", {"project": project, "data": {"image": "https://example.com/x.png"}})
        if listener.wait():
            return Finding("webhook", "ok", f"an event of Label Studio arrived at {listener.url.rpartition('/')[0]}")
    step = "Pass --callback-host with the name under which Label Studio reaches this machine, and open its firewall."
    return Finding("webhook", "failed", f"no event arrived at {listener.url} within {_WEBHOOK_S} s", step)


class LabelStudioApi:
    """Calls of the API of Label Studio."""

    def __init__(self, link: LabelConnection) -> None:
        self._url = (link.studio_url or "").rstrip("/")
        self._token = link.studio_token or ""

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> WebAnswer:
        headers = {"Authorization": f"Token {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return _ask(Request(f"{self._url}{path}", data, headers, method=method))  # noqa: S310 - http and https alone


class _Listener:
    """Waits for one request to a random path."""

    def __init__(self, host: str) -> None:
        path, arrived = f"/{uuid.uuid4().hex}", threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                is_ours = self.path == path
                self.send_response(200 if is_ours else 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                if is_ours:
                    arrived.set()

            def log_message(self, *_args: object) -> None:
                """Print nothing."""

        bound = host if _is_own_address(host) else "0.0.0.0"  # noqa: S104 - a name of this machine for another one
        self._server = ThreadingHTTPServer((bound, 0), Handler)
        self._arrived = arrived
        self.url = f"http://{host}:{self._server.server_address[1]}{path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> bool:
        return self._arrived.wait(_WEBHOOK_S)


def _is_own_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _signed(link: LabelConnection, url: str) -> str:
    return presign(url, (link.access_key, link.secret), datetime.now(UTC))


def _get(url: str, headers: dict[str, str] | None = None) -> WebAnswer:
    return _ask(Request(url, headers=headers or {}))  # noqa: S310 - the user names the address


def _ask(request: Request) -> WebAnswer:
    if urlsplit(request.full_url).scheme not in ("http", "https"):
        return WebAnswer(0, {}, "it is not an address with http or https")
    ask: Callable[..., Any] = urlopen
    try:
        with ask(request, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_MAX_ANSWER)
            return WebAnswer(answer.status, _lower(answer.headers), body.decode("utf-8", "replace"))
    except HTTPError as error:
        with error:
            return WebAnswer(error.code, _lower(error.headers), error.read(_MAX_ANSWER).decode("utf-8", "replace"))
    except (URLError, OSError, HTTPException, ValueError) as error:
        return WebAnswer(0, {}, str(getattr(error, "reason", error)))


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _reason(answer: WebAnswer) -> str:
    return answer.xml("Message") or f"status {answer.status}: {answer.text[:200]}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
