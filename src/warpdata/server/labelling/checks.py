"""Checks of a connection between a labelling tool and the gateway, as the tool and a browser would use it.

A check returns a `ToolCheck` and never raises. A red one says what exactly to set, and where. How requests leave is up
to the caller: the command line asks from its machine, the service through its rule of addresses.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import unescape

from warpdata.server.labelling.studio_api import Ask, StudioApi, ToolAnswer
from warpdata.server.s3 import presign

__all__ = [
    "ECHO_S",
    "LabelConnection",
    "ToolCheck",
    "WebhookEcho",
    "check_address",
    "check_cvat",
    "check_gateway",
    "check_studio",
    "storage_of",
]

ECHO_S = 15
PRIVATE = "SSRF_PROTECTION_ENABLED=false"
_KEEP_HOST = "In the proxy, keep path and Host: `proxy_pass` without a path, and `proxy_set_header Host $http_host;`"
_Status: TypeAlias = Literal["ok", "failed", "note", "skipped"]


@dataclass(frozen=True, slots=True)
class LabelConnection:
    """The parts of a connection: an endpoint, a key, a bucket with a prefix, and perhaps a labelling tool."""

    endpoint: str
    access_key: str
    secret: str
    bucket: str
    prefix: str
    studio_url: str | None = None
    studio_token: str | None = None
    callback_host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """The result of one check. `next_step` is what to do about one that failed, or about a note."""

    check: str
    status: _Status
    detail: str
    next_step: str | None = None


class WebhookEcho(Protocol):
    """A place that waits for one request to `url`."""

    @property
    def url(self) -> str: ...

    def wait(self) -> bool:
        """Return whether it came in time."""


def check_gateway(link: LabelConnection, ask: Ask, now: datetime) -> Iterator[ToolCheck]:
    """Check the endpoint, the key, the listing and the read of a browser. Later ones are skipped if one fails."""
    reach = _check_reach(link, ask)
    yield reach
    if reach.status == "failed":
        for name in ("credentials", "listing", "browser"):
            yield ToolCheck(name, "skipped", "the endpoint does not answer")
        return
    listed = _list(link, ask, now)
    credentials = _check_credentials(listed, link)
    yield credentials
    key = _element(listed, "Key")
    if credentials.status == "failed":
        yield ToolCheck("listing", "skipped", "the key is not accepted")
        yield ToolCheck("browser", "skipped", "the key is not accepted")
    elif listed.status != 200 or key is None:
        detail = f"there is no object with the prefix {link.prefix!r}" if listed.status == 200 else _reason(listed)
        step = "Name a dataset and a ref that exist: `warp ls`, `warp label NAME`."
        yield ToolCheck("listing", "failed", detail, step)
        yield ToolCheck("browser", "skipped", "there is no object to read")
    else:
        yield ToolCheck("listing", "ok", f"finds {key}")
        yield _check_browser(link, ask, key, now)


def _check_reach(link: LabelConnection, ask: Ask) -> ToolCheck:
    answer = ask("GET", f"{link.endpoint}/", {}, None)
    if answer.status == 0:
        step = "Start `warp serve` or `warp gateway`, and pass their address: http://HOST:PORT/s3 for `warp serve`."
        return ToolCheck("reach", "failed", f"{link.endpoint} does not answer: {answer.text}", step)
    if _element(answer, "Code") != "AccessDenied":
        step = f"Pass the address of the gateway: {_origin(link.endpoint)}/s3 for `warp serve`."
        return ToolCheck("reach", "failed", f"{link.endpoint} answers {answer.status}, but is no gateway", step)
    return ToolCheck("reach", "ok", f"{link.endpoint} answers")


def _list(link: LabelConnection, ask: Ask, now: datetime) -> ToolAnswer:
    query = urlencode({"list-type": 2, "max-keys": 1, "prefix": link.prefix}, quote_via=quote)
    return ask("GET", _signed(link, f"{link.endpoint}/{link.bucket}?{query}", now), {}, None)


def _check_credentials(listed: ToolAnswer, link: LabelConnection) -> ToolCheck:
    steps = {
        "InvalidAccessKeyId": f"Make a key: `warp server s3-key USER {link.bucket} --right inbox`.",
        "SignatureDoesNotMatch": f"Compare the secret with what `warp server s3-key` printed. {_KEEP_HOST}",
        "RequestTimeTooSkewed": "Set the clock of this machine or of the gateway: `timedatectl set-ntp true`.",
        "NoSuchBucket": f"Make a key for this workspace: `warp server s3-key USER {link.bucket} --right inbox`.",
    }
    code = _element(listed, "Code")
    if listed.status == 200:
        return ToolCheck("credentials", "ok", f"the key reads the bucket {link.bucket}")
    step = steps.get(code or "", "Look into the log of the gateway.")
    return ToolCheck("credentials", "failed", _reason(listed), step)


def _check_browser(link: LabelConnection, ask: Ask, key: str, now: datetime) -> ToolCheck:
    """Read an object as a page of the tool does: by a signed URL, from another origin, without other headers."""
    page = _origin(link.studio_url or "https://labels.example.com")
    url = _signed(link, f"{link.endpoint}/{link.bucket}/{quote(key)}", now)
    answer = ask("GET", url, {"Origin": page}, None)
    allowed = answer.headers.get("access-control-allow-origin")
    if link.studio_url and page.startswith("https://") and link.endpoint.startswith("http://"):
        step = "Put https in front of the gateway, pass `warp serve --public-url https://HOST`, and use that endpoint."
        return ToolCheck("browser", "failed", "a page with https may not load images by http", step)
    if answer.status != 200:
        return ToolCheck("browser", "failed", f"a signed URL of {key} answers: {_reason(answer)}", _KEEP_HOST)
    if allowed not in ("*", page):
        step = "In the proxy, remove what hides it, or add `add_header Access-Control-Allow-Origin * always;`"
        return ToolCheck("browser", "failed", f"a page of {page} may not read it: no Access-Control-Allow-Origin", step)
    return ToolCheck("browser", "ok", f"a page of {page} reads {key} by a signed URL")


def check_address(link: LabelConnection) -> ToolCheck:
    """Tell what tools think of a private address, when none is asked."""
    host = urlsplit(link.endpoint).hostname or ""
    if is_private(host):
        step = f"Start Label Studio with {PRIVATE}, or pass --label-studio URL to ask it."
        return ToolCheck("address", "note", f"{host} is private, and tools refuse such endpoints by default", step)
    return ToolCheck("address", "ok", f"{host} is not known as private")


def is_private(host: str) -> bool:
    """Return whether a host has, or seems to have, an address of a private network."""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".lan"))


def check_studio(
    link: LabelConnection, ask: Ask, open_echo: Callable[[], AbstractContextManager[WebhookEcho]], title: str
) -> Iterator[ToolCheck]:
    """Let Label Studio itself try the storage and a webhook, in a project that is removed again."""
    studio = StudioApi(link.studio_url or "", link.studio_token or "", ask)
    made = studio.call("POST", "/api/projects", {"title": title})
    if made.status != 201:
        yield _studio_failure(link, made)
        for name in ("storage", "webhook"):
            yield ToolCheck(name, "skipped", "Label Studio does not answer, or refuses the token")
        return
    yield ToolCheck("label studio", "ok", f"{link.studio_url} accepts the token")
    project = made.json()["id"]
    try:
        yield _check_storage(link, studio, project)
        yield _check_webhook(studio, project, open_echo)
    finally:
        studio.call("DELETE", f"/api/projects/{project}")


def _studio_failure(link: LabelConnection, answer: ToolAnswer) -> ToolCheck:
    if answer.status == 0:
        step = tool_step(link) if answer.is_refused else "Start it."
        return ToolCheck("label studio", "failed", f"{link.studio_url} does not answer: {answer.text}", step)
    if answer.status == 401:
        step = (
            "Copy the token of a user from Account & Settings to LABEL_STUDIO_API_KEY. A legacy token needs "
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN=true"
        )
        return ToolCheck("label studio", "failed", "the token is not accepted", step)
    detail = f"it answers {answer.status}: {answer.text[:200]}"
    return ToolCheck("label studio", "failed", detail, "Look into its log.")


def tool_step(link: LabelConnection) -> str:
    """Return the line that lets the service send requests to the tool."""
    host = urlsplit(link.studio_url or "").hostname or "HOST"
    return f"Start the service with `warp serve --allow-network {host}`, with the address of the tool."


def _check_storage(link: LabelConnection, studio: StudioApi, project: int) -> ToolCheck:
    answer = studio.call("POST", "/api/storages/s3/validate", storage_of(link, project))
    if answer.status == 200:
        return ToolCheck("storage", "ok", "Label Studio reaches the gateway and lists the prefix")
    if "reserved network address" in answer.text:
        step = f"Start Label Studio with {PRIVATE}, or give the gateway a public address."
        return ToolCheck("storage", "failed", "Label Studio refuses the endpoint, because its address is private", step)
    step = "The endpoint must be one that Label Studio and the browser both reach, not a name inside of Docker."
    return ToolCheck("storage", "failed", f"Label Studio cannot use it: {answer.text[:300]}", step)


def storage_of(link: LabelConnection, project: int, prefix: str | None = None) -> dict[str, Any]:
    """Return the settings of a storage of Label Studio."""
    return {
        "project": project,
        "bucket": link.bucket,
        "prefix": (link.prefix if prefix is None else prefix).rstrip("/"),
        "use_blob_urls": True,
        "aws_access_key_id": link.access_key,
        "aws_secret_access_key": link.secret,
        "region_name": "us-east-1",
        "s3_endpoint": link.endpoint,
    }


def _check_webhook(
    studio: StudioApi, project: int, open_echo: Callable[[], AbstractContextManager[WebhookEcho]]
) -> ToolCheck:
    with open_echo() as echo:
        webhook = {"url": echo.url, "project": project, "send_payload": True, "send_for_all_actions": True}
        answer = studio.call("POST", "/api/webhooks/", webhook)
        if answer.status != 201:
            if "reserved network address" in answer.text:
                step = f"Start Label Studio with {PRIVATE}"
                return ToolCheck("webhook", "failed", "Label Studio refuses a private address for webhooks", step)
            return ToolCheck("webhook", "failed", f"it is refused: {answer.text[:200]}", "Look into its log.")
        studio.call("POST", "/api/tasks", {"project": project, "data": {"image": "https://example.com/x.png"}})
        if echo.wait():
            return ToolCheck("webhook", "ok", f"an event of Label Studio arrived at {_origin(echo.url)}")
    step = "Give this machine a name under which Label Studio reaches it, and open its firewall."
    return ToolCheck("webhook", "failed", f"no event arrived at {_origin(echo.url)} within {ECHO_S} s", step)


def check_cvat(link: LabelConnection, ask: Ask) -> ToolCheck:
    """Ask CVAT who the owner of the token is."""
    headers = {"Authorization": f"Token {link.studio_token}", "Accept": "application/json"}
    answer = ask("GET", f"{(link.studio_url or '').rstrip('/')}/api/users/self", headers, None)
    if answer.status == 200:
        return ToolCheck("cvat", "ok", f"{link.studio_url} accepts the token")
    if answer.status == 0:
        step = tool_step(link) if answer.is_refused else "Start it."
        return ToolCheck("cvat", "failed", f"{link.studio_url} does not answer: {answer.text}", step)
    if answer.status in (401, 403):
        return ToolCheck("cvat", "failed", "the token is not accepted", "Make an API token in Settings of CVAT.")
    return ToolCheck("cvat", "failed", f"it answers {answer.status}: {answer.text[:200]}", "Look into its log.")


def _signed(link: LabelConnection, url: str, now: datetime) -> str:
    return presign(url, (link.access_key, link.secret), now)


def _element(answer: ToolAnswer, name: str) -> str | None:
    """Return the text of the first element of this name."""
    found = re.search(f"<{name}>([^<]*)</{name}>", answer.text)
    return None if found is None else unescape(found[1])


def _reason(answer: ToolAnswer) -> str:
    return _element(answer, "Message") or f"status {answer.status}: {answer.text[:200]}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
