"""If this fails, a message is lost, forged or sent to a place inside the network."""

from __future__ import annotations

import http.server
import ipaddress
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.server.conftest import Scene
from warpdata.errors import AccessDeniedError, BadInputError, LimitExceededError, StorageError
from warpdata.server import Service, ServiceOptions
from warpdata.server.jobs import JobWorker
from warpdata.server.safe_http import AddressRule, FetchLimits, check_url, parse_networks, send_safely, stream_safely
from warpdata.server.webhooks import MAX_ATTEMPTS, deliver_next

API = "/api/v1"
HOOKS = f"{API}/workspaces/acme/webhooks"
PETS = f"{API}/datasets/acme/pets"
LOOPBACK = AddressRule(parse_networks(("127.0.0.0/8",)))


@dataclass
class Receiver:
    """A web server that keeps what it gets, and answers as the test says."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    location: str = ""
    body: bytes = b"ok"
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    web = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            web.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, data))
            self.send_response(web.statuses.pop(0) if web.statuses else 200)
            if web.location:
                self.send_header("Location", web.location)
            self.send_header("Content-Length", str(len(web.body)))
            self.end_headers()
            self.wfile.write(web.body)

        do_POST = do_GET = answer  # noqa: N815 - the names that the base class calls

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield web
    server.shutdown()
    server.server_close()


@pytest.fixture
def open_scene(make_scene: Callable[..., Scene], database_url: str) -> Scene:
    return make_scene(database_url, ServiceOptions(allowed_networks=("127.0.0.0/8",)))


def create(scene: Scene, url: str, *events: str, **given: str) -> dict[str, Any]:
    answer = scene["ana"].post(HOOKS, json={"url": url, "events": list(events) or ["head.moved"], **given})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def later(scene: Scene, seconds: float) -> Service:
    """Return the service as it is after some time."""
    at = scene.service.session.clock() + timedelta(seconds=seconds)
    return replace(scene.service, session=replace(scene.service.session, clock=lambda: at))


def drain(service: Service) -> int:
    count = 0
    while deliver_next(service):
        count += 1
    return count


def test_messages_are_signed_and_arrive_once(open_scene: Scene, receiver: Receiver) -> None:
    hook = create(open_scene, f"{receiver.url}/hook", "head.moved", "job.done")
    create(open_scene, f"{receiver.url}/other", "head.moved", dataset="zoo")
    ana = open_scene["ana"]
    ana.post(f"{PETS}/jobs", json={"kind": "verify"}).raise_for_status()
    assert JobWorker(open_scene.service).run_next()
    ana.post(f"{API}/datasets/acme/zoo/collection", json={}).raise_for_status()
    assert drain(open_scene.service) == 3
    by_path = sorted((path, json.loads(data)["type"]) for path, _, data in receiver.got)
    assert by_path == [("/hook", "head.moved"), ("/hook", "job.done"), ("/other", "head.moved")]
    for path, headers, data in receiver.got:
        if path == "/hook":
            assert Webhook(hook["secret"]).verify(data, headers)["workspace"] == "acme"
            with pytest.raises(WebhookVerificationError):
                Webhook(hook["secret"]).verify(data + b" ", headers)
    log = ana.get(f"{HOOKS}/{hook['id']}/deliveries").json()["deliveries"]
    assert [(one["state"], one["attempts"], one["status"]) for one in log] == [("delivered", 1, 200)] * 2
    assert "secret" not in ana.get(HOOKS).json()["webhooks"][0]


def test_a_failed_message_is_tried_again_and_can_be_redelivered(open_scene: Scene, receiver: Receiver) -> None:
    receiver.statuses = [500] * MAX_ATTEMPTS
    hook = create(open_scene, receiver.url)
    ana = open_scene["ana"]
    ping = ana.post(f"{HOOKS}/{hook['id']}/ping").json()
    assert drain(open_scene.service) == 1
    assert drain(open_scene.service) == 0, "it was tried again without a pause"
    waited = 0.0
    for _ in range(MAX_ATTEMPTS - 1):
        waited += 7 * 3600
        assert drain(later(open_scene, waited)) == 1
    (failed,) = ana.get(f"{HOOKS}/{hook['id']}/deliveries").json()["deliveries"]
    assert (failed["state"], failed["attempts"], failed["status"]) == ("failed", MAX_ATTEMPTS, 500)
    again = f"{HOOKS}/{hook['id']}/deliveries/{ping['id']}/redeliver"
    assert ana.post(again).status_code == 202
    assert ana.post(again).status_code == 422
    assert drain(open_scene.service) == 1
    assert {headers["webhook-id"] for _, headers, _ in receiver.got} == {ping["id"]}
    assert ana.get(f"{HOOKS}/{hook['id']}/deliveries").json()["deliveries"][0]["state"] == "delivered"


def test_a_switched_off_webhook_hears_nothing(open_scene: Scene, receiver: Receiver) -> None:
    hook = create(open_scene, receiver.url)
    ana = open_scene["ana"]
    assert ana.patch(f"{HOOKS}/{hook['id']}", json={"is_active": False}).json()["is_active"] is False
    ana.post(f"{API}/datasets/acme/zoo/collection", json={}).raise_for_status()
    assert drain(open_scene.service) == 0
    assert ana.delete(f"{HOOKS}/{hook['id']}").status_code == 204
    assert ana.get(HOOKS).json() == {"webhooks": []}
    assert open_scene["vera"].get(HOOKS).status_code == 403
    assert open_scene["rita"].get(HOOKS).status_code == 404


REFUSED = [
    "http://127.0.0.1/",
    "https://127.0.0.1/",
    "https://localhost/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[64:ff9b::a00:1]/",
    "https://[2002:a00:1::]/",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://0.0.0.0/",
    "https://224.0.0.1/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://[fe80::1]/",
    "https://[fc00::1]/",
    "http://8.8.8.8/",
]


@pytest.mark.parametrize("url", REFUSED)
def test_places_inside_the_network_are_refused(local: Scene, url: str) -> None:
    with pytest.raises(AccessDeniedError) as refused:
        check_url(AddressRule(), url)
    assert refused.value.kind == "address_refused"
    answer = local["ana"].post(HOOKS, json={"url": url, "events": ["job.done"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "address_refused")
    imported = local["ana"].post(f"{API}/datasets/acme/new/imports", json={"format": "tables", "url": url})
    assert (imported.status_code, imported.json()["code"]) == (403, "address_refused")


@pytest.mark.parametrize(
    "url", ["ftp://example.org/", "https://user:pw@example.org/", "https:///x", "https://a b/", "x"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BadInputError):
        check_url(AddressRule(), url)


def test_public_addresses_are_permitted() -> None:
    for address in ("8.8.8.8", "2606:4700:4700::1111"):
        assert AddressRule().permits(ipaddress.ip_address(address))


@contextmanager
def resolving(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> Iterator[None]:
    """Answer look-ups of names in turn, as a hostile name server does."""
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *args: Any, **given: Any) -> Any:
        if not host.endswith(".example"):
            return real(host, port, *args, **given)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in answers.pop(0)]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        yield


def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    """A second look-up could answer with an address inside."""
    port = receiver.url.rpartition(":")[2]
    with resolving(monkeypatch, [["127.0.0.1"], ["10.0.0.1"]]):
        reply = send_safely(LOOPBACK, "POST", f"http://hooks.example:{port}/x", body=b"{}")
    assert (reply.status, receiver.got[0][1]["host"]) == (200, f"hooks.example:{port}")
    with resolving(monkeypatch, [["8.8.8.8", "10.0.0.1"]]), pytest.raises(AccessDeniedError):
        check_url(AddressRule(), "https://hooks.example/")


def test_redirects_are_checked_and_counted(receiver: Receiver) -> None:
    receiver.statuses, receiver.location = [302], "http://10.0.0.1/secret"
    with pytest.raises(AccessDeniedError):
        send_safely(LOOPBACK, "GET", receiver.url, headers={"Authorization": "x"})
    receiver.statuses, receiver.location = [302, 307], "/next"
    assert send_safely(LOOPBACK, "GET", receiver.url).url == f"{receiver.url}/next"
    receiver.statuses = [302] * 9
    with pytest.raises(BadInputError, match="redirects"):
        send_safely(LOOPBACK, "GET", receiver.url)
    receiver.statuses = [302]
    assert send_safely(LOOPBACK, "POST", receiver.url).status == 302, "a POST is not sent elsewhere"


def test_size_and_time_are_bounded(receiver: Receiver) -> None:
    receiver.body = b"x" * 5000
    with pytest.raises(LimitExceededError):
        send_safely(LOOPBACK, "GET", receiver.url, limits=FetchLimits(max_bytes=4999))
    with pytest.raises(LimitExceededError):
        list(stream_safely(LOOPBACK, receiver.url, FetchLimits(max_bytes=4999)))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(StorageError):
            send_safely(LOOPBACK, "GET", url, limits=FetchLimits(total_s=0.2))


def test_an_import_reads_from_a_url(open_scene: Scene, receiver: Receiver, tmp_path: Path) -> None:
    receiver.body = b"a,b\n1,x\n2,y\n"
    body = {"format": "tables", "url": f"{receiver.url}/rows.csv?key=secret"}
    job = open_scene["ana"].post(f"{API}/datasets/acme/rows/imports", json=body).json()
    assert JobWorker(open_scene.service).run_next()
    done = open_scene["ana"].get(f"{API}/jobs/{job['id']}").json()
    assert (done["state"], done["result"]["rows"]) == ("done", 2), done
    receiver.statuses = [404]
    job = open_scene["ana"].post(f"{API}/datasets/acme/rows/imports", json=body).json()
    assert JobWorker(open_scene.service).run_next()
    failed = open_scene["ana"].get(f"{API}/jobs/{job['id']}").json()
    assert failed["state"] == "failed"
    assert "secret" not in json.dumps(failed)
