"""If this fails, a file arrives changed, a browser runs it, or a URL opens more than it grants."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.server.conftest import PNG, Scene
from warpdata.server import Place, Role, set_role
from warpdata.server.byte_ranges import parse_range

API = "/api/v1"
PETS = f"{API}/datasets/acme/pets"
ONE = f"{PETS}/images/cats/1.png"
BODY = PNG + b"\x01"


def test_bytes_arrive_as_published(local: Scene) -> None:
    answer = local["vera"].get(ONE)
    assert answer.content == BODY
    digest = wd.dataset("acme/pets", store=local.store).artifact("images").shard_of("cats/1.png").hash
    assert answer.headers["etag"] == f'"{digest}"'
    assert answer.headers["cache-control"] == "private, no-cache"
    assert answer.headers["content-type"] == "image/png"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    version = local["vera"].get(PETS).json()["version"]
    assert "immutable" in local["vera"].get(ONE, params={"ref": version}).headers["cache-control"]
    assert local["vera"].get(ONE, headers={"If-None-Match": f'"{digest}"'}).status_code == 304
    head = local["vera"].head(ONE)
    assert (head.content, head.headers["content-length"]) == (b"", str(len(BODY)))


@pytest.mark.parametrize(
    ("header", "status", "expected"),
    [
        ("bytes=0-3", 206, BODY[:4]),
        ("bytes=-5", 206, BODY[-5:]),
        ("bytes=1000-", 206, BODY[1000:]),
        ("bytes=0-99999", 200, BODY),
        ("bytes=99999-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=0-1,5-9", 200, BODY),
        ("lines=0-1", 200, BODY),
        ("bytes=9-2", 200, BODY),
    ],
)
def test_ranges(local: Scene, header: str, status: int, expected: bytes) -> None:
    answer = local["vera"].get(ONE, headers={"Range": header})
    assert (answer.status_code, answer.content) == (status, expected)
    if status == 206:
        assert answer.headers["content-range"].endswith(f"/{len(BODY)}")


@given(st.text(max_size=30) | st.from_regex(r"bytes=[0-9]{0,25}-[0-9]{0,25}", fullmatch=True), st.integers(0, 100))
def test_no_range_leaves_the_file(header: str, size: int) -> None:
    found = parse_range(header, size)
    assert found is None or (0 <= found.start <= found.stop <= size and found.step == 1)


def test_large_files_stream(local: Scene) -> None:
    body = bytes(range(256)) * 40_000  # more than one chunk of the store
    wd.DatasetBuilder("acme/large", local.store).add_artifact("images", {"a.bin": body}).publish()
    url = f"{API}/datasets/acme/large/images/a.bin"
    assert local["vera"].get(url).content == body
    assert local["vera"].get(url, headers={"Range": "bytes=5000000-9000000"}).content == body[5_000_000:9_000_001]


@pytest.mark.parametrize("name", ["x.svg", "x.html", "x.HTM", "x.xml", "x.xhtml", "x.js", "x", "x.pdf"])
def test_what_could_run_is_a_download(local: Scene, name: str) -> None:
    wd.DatasetBuilder("acme/active", local.store).add_artifact("images", {name: b"<script>"}).publish()
    answer = local["vera"].get(f"{API}/datasets/acme/active/images/{name}")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


HOSTILE = [
    "../secret",
    "..%2f..%2fsecret",
    "/etc/passwd",
    "cats//1.png",
    "cats/./1.png",
    "cats\\1.png",
    "\u202e",
    "\0",
    "a" * 4000,
]


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths_find_nothing(local: Scene, path: str) -> None:
    for url in (
        f"{PETS}/images/{quote(path, safe='')}",
        f"{PETS}/images/{quote(path, safe='')}/url",
    ):
        assert local["vera"].get(url).status_code in (404, 422)


def test_hostile_names_are_served_safely(local: Scene) -> None:
    names = ['a"; filename="evil.exe', "naïve\u202egnp.exe", "a b'c.png", "x;y.png", "dir/url"]
    files = {name: name.encode() for name in names}
    wd.DatasetBuilder("acme/names", local.store).add_artifact("images", files).publish()
    for name in names[:4]:
        answer = local["vera"].get(f"{API}/datasets/acme/names/images/{quote(name, safe='/')}")
        assert answer.content == name.encode()
        assert answer.headers["content-disposition"].count('"') == 2
        assert answer.headers["content-disposition"].isascii()
        url = local["vera"].get(f"{API}/datasets/acme/names/images/{quote(name, safe='/')}/url").json()["url"]
        assert set(urlsplit(url).path) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.~/-")
    listed = local["vera"].get(f"{API}/datasets/acme/names/files").json()["files"]
    assert sorted(one["path"] for one in listed) == sorted(names)


def test_a_signed_url_reads_one_file_of_one_version(scene: Scene) -> None:
    made = scene["vera"].get(f"{ONE}/url", params={"expires_in": 60}).json()
    stranger, path = scene.client(None), urlsplit(made["url"]).path
    answer = stranger.get(path)
    assert answer.content == BODY
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    wd.remove("acme/pets", store=scene.store)
    assert stranger.get(path).content == BODY  # the version is fixed


def test_signed_urls_cannot_be_changed(local: Scene) -> None:
    path = urlsplit(local["vera"].get(f"{ONE}/url").json()["url"]).path
    start, signed, name = path.rsplit("/", 2)
    claims, mac = signed.split(".")
    values = json.loads(base64.urlsafe_b64decode(claims + "=="))
    stranger = local.client(None)
    forged = []
    for at, value in enumerate(
        ["0" * 12, "rival/secret", "0" * 64, "other", "cats/2.png", local.users["root"], "x", "9999"]
    ):
        changed = [*values[:at], value, *values[at + 1 :]]
        forged.append(
            base64.urlsafe_b64encode(json.dumps(changed, separators=(",", ":")).encode()).decode().rstrip("=")
        )
    for other in (*forged, "", "e30", "W10", "%00", "[]", claims[:-1]):
        assert stranger.get(f"{start}/{other}.{mac}/{name}").status_code == 404, other
    for other in ("", mac[:-1], mac + "a", "A" * len(mac)):
        assert stranger.get(f"{start}/{claims}.{other}/{name}").status_code == 404


def test_signed_urls_end(local: Scene) -> None:
    path = urlsplit(local["vera"].get(f"{ONE}/url", params={"expires_in": 60}).json()["url"]).path
    minute = local.service.session.clock() + timedelta(seconds=61)
    late = Scene(replace(local.service, session=replace(local.service.session, clock=lambda: minute)), local.store)
    assert late.client(None).get(path).status_code == 404
    assert local.client(None).get(path).status_code == 200
    set_role(local.service, local.users["vera"], Place("acme"), Role.NONE)
    assert local.client(None).get(path).status_code == 404


def test_a_store_that_cannot_sign_says_so(local: Scene) -> None:
    answer = local["vera"].get(f"{ONE}/url", params={"via": "store"})
    assert (answer.status_code, answer.json()["code"]) == (422, "unsupported")
