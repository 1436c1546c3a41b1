"""If this fails, a stranger signs in with a provider, or a user cannot. The provider is that of another project."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from sqlalchemy import select
from starlette.testclient import TestClient

from tests.server.conftest import Scene
from warpdata.server import ProviderOptions, ServiceOptions, create_user
from warpdata.server.access import SignInProvider
from warpdata.server.database import ProviderSignInRow, UserRow

API = "/api/v1"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    users = ['{"sub": "1", "email": "ana@acme.example", "email_verified": true}']
    users += ['{"sub": "2", "email": "ana@acme.example", "email_verified": false}', '{"sub": "3"}']
    users += ['{"sub": "4", "email": "new@acme.example", "email_verified": true}']
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    command += ["--require-nonce", "true"]
    command += [part for user in users for part in ("--user-claims", user)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with suppress(httpx.HTTPError):
                httpx.get(f"{url}/.well-known/openid-configuration").raise_for_status()
                break
            assert process.poll() is None, "the provider did not start"
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def signing(make_scene: Callable[..., Scene], issuer: str, tmp_path: Path) -> Scene:
    found = httpx.get(f"{issuer}/.well-known/openid-configuration").json()["issuer"]
    provider = ProviderOptions(found, "warp", "a secret")
    options = ServiceOptions(provider=provider, allowed_networks=("127.0.0.0/8",))
    scene = make_scene(f"sqlite:///{tmp_path}/s.db", options)
    create_user(scene.service, "ana@acme.example")
    return scene


def go(client: TestClient, subject: str) -> str:
    """Sign in at the provider as a browser does, and return the address that it sends the browser to."""
    there = client.get("/sign-in/provider")
    assert there.status_code == 303, there.text
    assert "HttpOnly" in there.headers["set-cookie"]
    answer = httpx.post(there.headers["location"], data={"sub": subject})
    assert answer.status_code in (302, 303), answer.text
    parts = urlsplit(answer.headers["location"])
    return f"{parts.path}?{parts.query}"


def test_a_user_signs_in_by_a_verified_address_and_then_by_subject(signing: Scene) -> None:
    client = signing.client(None)
    done = client.get(go(client, "1"))
    assert done.status_code == 303, done.text
    assert client.get(f"{API}/session").json()["name"] == "ana@acme.example"
    user_id = client.get(f"{API}/session").json()["user_id"]
    with signing.service.database.write() as db:
        db.get_one(UserRow, user_id).name = "renamed"
    again = signing.client(None)
    assert again.get(go(again, "1")).status_code == 303
    assert again.get(f"{API}/session").json()["name"] == "renamed"
    entries = signing["root"].get(f"{API}/audit").json()["entries"]
    assert entries[0]["action"] == "sign-in"


@pytest.mark.parametrize("subject", ["2", "3", "4"])
def test_strangers_are_refused(signing: Scene, subject: str) -> None:
    client = signing.client(None)
    assert client.get(go(client, subject)).status_code == 401
    assert client.get(f"{API}/session").status_code == 401


def test_users_are_created_where_the_operator_says_so(signing: Scene) -> None:
    assert signing.service.options.provider is not None
    provider = replace(signing.service.options.provider, creates_users=True)
    service = replace(signing.service, options=replace(signing.service.options, provider=provider))
    client = Scene(service, signing.store).client(None)
    assert client.get(go(client, "4")).status_code == 303
    assert client.get(f"{API}/session").json()["workspaces"] == {}
    other = Scene(service, signing.store).client(None)
    assert other.get(go(other, "2")).status_code == 401


def test_a_sign_in_is_for_the_browser_that_began_it_and_for_once(signing: Scene) -> None:
    mine, foreign = signing.client(None), signing.client(None)
    back = go(mine, "1")
    assert foreign.get(back).status_code == 401
    assert mine.get(back.replace("code=", "code=x")).status_code == 401
    back = go(mine, "1")
    assert mine.get(back).status_code == 303
    assert mine.get(back).status_code == 401
    assert mine.get("/sign-in/provider/callback", params={"state": "x", "error": "access_denied"}).status_code == 401


def test_forged_id_tokens_are_refused(signing: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token end point is taken over: without the key of the provider it is of no use."""
    key = rsa.generate_private_key(65537, 2048)
    options = signing.service.options.provider
    assert options is not None
    claims = {"iss": options.issuer, "aud": "warp", "sub": "1", "iat": time.time(), "exp": time.time() + 60}

    def nonce() -> str:
        with signing.service.database.read() as db:
            return db.scalars(select(ProviderSignInRow.nonce)).one()

    forgeries: list[Callable[[str], str]] = [
        lambda value: jwt.encode({**claims, "nonce": value}, key, "RS256"),
        lambda value: jwt.encode({**claims, "nonce": value}, "", "none"),
        lambda value: jwt.encode({**claims, "nonce": value}, "x" * 32, "HS256"),
        lambda _: "no token",
    ]
    for forge in forgeries:
        client = signing.client(None)
        back = go(client, "1")
        token = forge(nonce())
        monkeypatch.setattr(SignInProvider, "_exchange", lambda *_, token=token: token)
        assert client.get(back).status_code == 401
        assert client.get(f"{API}/session").status_code == 401


def test_without_a_provider_there_is_no_route(local: Scene) -> None:
    assert local.client(None).get("/sign-in/provider").status_code == 404
