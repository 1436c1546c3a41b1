"""If this fails, a read that is answered without the framework differs from its route, or is open to more people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import warpdata as wd
from tests.server.conftest import PNG, Scene
from warpdata.primitives.hashing import blob_key
from warpdata.server import (
    NewToken,
    Place,
    Role,
    Scope,
    Service,
    create_token,
    fast_reads,
    identities,
    revoke_token,
    set_role,
)
from warpdata.server.database import open_database
from warpdata.server.fast_reads import FastReads

API = "/api/v1"
ONE = f"{API}/datasets/acme/pets/images/cats/1.png"
BODY = PNG + b"\x01"


@pytest.fixture
def ways(local: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How requests were answered: at once, in a thread, or by a route."""
    seen: list[str] = []
    call = FastReads.__call__

    for name in ("_FileRead", "_SignedRead", "_ObjectRead"):
        kind = getattr(fast_reads, name)

        def at_once(self, real=kind.at_once):  # type: ignore[no-untyped-def]
            answer = real(self)
            seen.extend(["at once"] if answer else [])
            return answer

        def in_thread(self, real=kind.in_thread):  # type: ignore[no-untyped-def]
            answer = real(self)
            seen.extend(["in a thread"] if answer else [])
            return answer

        monkeypatch.setattr(kind, "at_once", at_once)
        monkeypatch.setattr(kind, "in_thread", in_thread)

    async def counted(self, scope, receive, send):  # type: ignore[no-untyped-def]
        before = len(seen)
        await call(self, scope, receive, send)
        seen.extend(["by a route"] if len(seen) == before and scope["type"] == "http" else [])

    monkeypatch.setattr(FastReads, "__call__", counted)
    return seen


def _urls(scene: Scene) -> dict[str, str]:
    version = wd.dataset("acme/pets", store=scene.store)
    digest = version.artifact("images").shard_of("cats/1.png").hash
    signed = scene["vera"].get(f"{ONE}/url").json()["url"].removeprefix("http://127.0.0.1")
    return {
        "version": f"{ONE}?ref={version.version}",
        "branch": ONE,
        "signed": signed,
        "object": f"{API}/objects/{blob_key(digest)}",
    }


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Range": "bytes=3-9"},
        {"Range": "bytes=-5"},
        {"Range": "bytes=0-1,5-9"},
        {"Range": "bytes=99999-"},
        {"Range": "nonsense"},
        {"If-None-Match": "*"},
        {"If-None-Match": "known"},
    ],
)
def test_every_way_gives_the_same_answer(
    local: Scene, ways: list[str], monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    client = local["vera"]
    for name, url in _urls(local).items():
        sent = {key: client.get(url).headers["etag"] if value == "known" else value for key, value in headers.items()}
        for method in ("GET", "HEAD"):
            client.get(url)
            del ways[:]
            fast = client.request(method, url, headers=sent)
            assert ways != ["by a route"] or fast.status_code in (304, 416) or method == "HEAD", (name, method, ways)
            with monkeypatch.context() as patch:
                patch.setattr(FastReads, "_recognize", lambda _self, _scope: None)
                slow = client.request(method, url, headers=sent)
            assert (fast.status_code, fast.content) == (slow.status_code, slow.content), (name, method)
            about = [{k: v for k, v in one.headers.items() if k != "x-request-id"} for one in (fast, slow)]
            assert about[0] == about[1], (name, method)
    exported = local["root"].get("/metrics").text
    routes = {line.partition('route="')[2].partition('"')[0] for line in exported.splitlines() if 'route="' in line}
    assert len([route for route in routes if "/images/{path:path}" in route and not route.endswith("/url")]) == 1, (
        routes
    )


def test_warm_reads_ask_nothing_of_threads_and_of_the_database(
    local: Scene, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = _urls(local)
    for url in urls.values():
        local["vera"].get(url)
    del ways[:]
    monkeypatch.setattr(type(local.service.database), "read", None)  # a query would raise
    for name in ("version", "signed"):
        assert local["vera"].get(urls[name]).content == BODY
    assert local["vera"].get(urls["object"]).content == BODY
    assert ways == ["at once"] * 3


@pytest.fixture
def elsewhere(local: Scene) -> Iterator[Service]:
    """The service in another process: what it commits, this one does not notice by itself."""
    database = open_database(str(local.service.database.engine.url))
    yield replace(local.service, database=database)
    database.close()


def test_what_this_process_takes_away_ends_at_once(local: Scene) -> None:
    issued = create_token(local.service, local.users["vera"], NewToken("test", Scope.READ, 30))
    client, urls = local.client(issued.secret), _urls(local)
    assert {client.get(url).status_code for url in urls.values()} == {200}
    set_role(local.service, local.users["vera"], Place("acme"), Role.NONE)
    assert {client.get(url).status_code for url in urls.values()} == {404}
    set_role(local.service, local.users["vera"], Place("acme"), Role.VIEWER)
    assert {client.get(url).status_code for url in urls.values()} == {200}
    revoke_token(local.service, local.users["vera"], issued.row.id)
    assert {client.get(urls[name]).status_code for name in ("version", "branch", "object")} == {401}


def test_what_another_process_takes_away_ends_within_a_second(
    local: Scene, elsewhere: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = create_token(local.service, local.users["vera"], NewToken("test", Scope.READ, 30))
    client, url = local.client(issued.secret), _urls(local)["version"]
    assert client.get(url).status_code == 200
    revoke_token(elsewhere, local.users["vera"], issued.row.id)
    monkeypatch.setattr(identities, "FRESH_S", 0.0)
    assert client.get(url).status_code == 401
    assert client.get(f"{API}/datasets").status_code == 401


def test_a_token_that_was_known_expires_in_time(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    client, url = local.client(local.token("vera", Scope.READ)), _urls(local)["version"]
    assert client.get(url).status_code == 200
    later = local.service.later(31 * 24 * 3600)
    monkeypatch.setattr(Service, "now", lambda _self: later)
    assert client.get(url).status_code == 401


def test_changes_are_never_allowed_by_what_was_known(local: Scene, elsewhere: Service) -> None:
    client = local.client(local.token("ana"))
    assert client.get(f"{API}/datasets/acme/pets").json()["role"] == "owner"
    set_role(elsewhere, local.users["ana"], Place("acme"), Role.VIEWER)
    assert client.get(f"{API}/datasets/acme/pets").json()["role"] == "owner"  # for less than a second
    answer = client.post(f"{API}/datasets/acme/pets/uploads", json={})
    assert answer.status_code == 403, answer.text


def test_bytes_that_are_damaged_or_gone_are_not_sent(local: Scene) -> None:
    urls, client = _urls(local), local["vera"]
    client.get(urls["version"])
    path = next(path for path in Path(local.store).rglob("*") if path.is_file() and path.read_bytes() == BODY)
    path.chmod(0o600)
    path.write_bytes(BODY[:-1] + b"\xff")
    assert client.get(urls["version"]).status_code == 500
    path.unlink()
    assert client.get(urls["version"]).status_code >= 400
