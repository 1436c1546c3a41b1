"""If this fails, the page is not served safely, or a thumbnail shows what it must not."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import warpdata as wd
from tests.server.conftest import Scene
from warpdata.server.page_files import PageFiles
from warpdata.server.thumbnails import Thumbnails

ZOO = "/api/v1/datasets/acme/zoo"


def encoded(color: tuple[int, int, int], size: tuple[int, int] = (600, 300), kind: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, kind)
    return out.getvalue()


def huge_png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@pytest.fixture
def zoo(local: Scene) -> Scene:
    """`acme/zoo` with a red, a green and a turned image, and files that cannot be shown."""
    turned = Image.new("RGB", (40, 20), (0, 0, 255))
    exif = turned.getexif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees
    out = io.BytesIO()
    turned.save(out, "JPEG", exif=exif)
    files = {
        "red.jpg": encoded((255, 0, 0)),
        "green.jpg": encoded((0, 255, 0)),
        "turned.jpg": out.getvalue(),
        "huge.png": huge_png(40_000, 40_000),
        "script.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        "cut.jpg": encoded((0, 0, 0))[:200],
    }
    collection = wd.connect(local.store).collection("acme/zoo")
    with collection.changes("add") as change:
        for path, data in files.items():
            boxes = [wd.Box("apple", 1, 2, 30, 40)] if path in ("red.jpg", "cut.jpg") else [wd.Label("leaf")]
            change.add(path, data, annotations=boxes, split="train" if path == "red.jpg" else "val")
    return local


def shown(answer_bytes: bytes) -> Image.Image:
    return Image.open(io.BytesIO(answer_bytes))


def test_a_thumbnail_is_small_upright_and_named_by_the_hash_of_its_image(zoo: Scene) -> None:
    red = zoo["vera"].get(f"{ZOO}/thumbnails/red.jpg", params={"edge": "128"})
    assert red.headers["content-type"] == "image/webp"
    assert shown(red.content).size == (128, 64)
    assert np.asarray(shown(red.content).convert("RGB")).mean((0, 1)).round(-1).tolist() == [250, 0, 0]
    stored = zoo["vera"].get(f"{ZOO}/images/red.jpg").content
    assert red.headers["etag"] == f'"{hashlib.sha256(stored).hexdigest()}-128"'
    assert shown(zoo["vera"].get(f"{ZOO}/thumbnails/turned.jpg").content).size == (20, 40)


def test_a_thumbnail_of_a_version_is_kept_for_ever_and_of_a_branch_checked(zoo: Scene) -> None:
    version = zoo["vera"].get(ZOO).json()["version"]
    pinned = zoo["vera"].get(f"{ZOO}/thumbnails/red.jpg", params={"ref": version})
    assert "immutable" in pinned.headers["cache-control"]
    moving = zoo["vera"].get(f"{ZOO}/thumbnails/red.jpg")
    assert moving.headers["cache-control"] == "private, no-cache"
    again = zoo["vera"].get(f"{ZOO}/thumbnails/red.jpg", headers={"If-None-Match": moving.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    ("path", "code"),
    [("huge.png", "limit_exceeded"), ("script.svg", "media_decode"), ("cut.jpg", "media_decode"), ("none.jpg", None)],
)
def test_what_cannot_be_shown_is_refused(zoo: Scene, path: str, code: str | None) -> None:
    answer = zoo["vera"].get(f"{ZOO}/thumbnails/{path}")
    assert answer.status_code == (404 if code is None else 422)
    if code is not None:
        assert answer.json()["code"] == code
    assert zoo["vera"].get(f"{ZOO}/thumbnails/green.jpg").status_code == 200  # the decoder goes on


def test_a_decoder_that_dies_is_replaced() -> None:
    thumbnails = Thumbnails()
    try:
        thumbnails.make(("1",), [("red.jpg", encoded((255, 0, 0)))], 64)
        decoder = thumbnails._idle.get_nowait()
        decoder._process.kill()
        thumbnails._idle.put(decoder)
        with pytest.raises(Exception, match="more memory or time"):
            thumbnails.make(("2",), [("red.jpg", encoded((255, 0, 0)))], 64)
        assert thumbnails.make(("3",), [("red.jpg", encoded((255, 0, 0)))], 64)[8:12] == b"WEBP"
    finally:
        thumbnails.close()


def test_no_thumbnail_outlives_a_purge(zoo: Scene) -> None:
    """A version still names the file, and the service still has its thumbnail: it must not be shown."""
    version = zoo["vera"].get(ZOO).json()["version"]
    assert zoo["vera"].get(f"{ZOO}/thumbnails/red.jpg", params={"ref": version}).status_code == 200
    collection = wd.connect(zoo.store).collection("acme/zoo")
    collection.create_version("v1")
    collection.purge("red.jpg", "mark_broken", token=collection.impact("red.jpg").token)
    assert zoo["vera"].get(f"{ZOO}/thumbnails/red.jpg", params={"ref": version}).status_code >= 400
    mosaic = zoo["vera"].get(f"{ZOO}/mosaic", params={"ref": "v1"})
    assert not (np.asarray(shown(mosaic.content).convert("RGB")).reshape(-1, 3) == [254, 0, 0]).all(1).any()


def test_a_mosaic_shows_images_and_leaves_damaged_ones_out(zoo: Scene) -> None:
    answer = zoo["vera"].get(f"{ZOO}/mosaic")
    pixels = np.asarray(shown(answer.content).convert("RGBA"))
    colors = {tuple((pixel[:3] > 128).tolist()) for pixel in pixels.reshape(-1, 4)[::50] if pixel[3] > 128}
    assert {(True, False, False), (False, True, False), (False, False, True)} <= colors
    assert zoo["vera"].get("/api/v1/datasets/acme/pets/mosaic").status_code == 200  # no image of it can be decoded
    wd.DatasetBuilder("acme/plain", zoo.store).add_table("main", {"a": [1]}).publish()
    assert zoo["ana"].get("/api/v1/datasets/acme/plain/mosaic").status_code == 204


def test_annotations_of_several_images_equal_those_of_each(zoo: Scene) -> None:
    found = zoo["vera"].get(f"{ZOO}/image-annotations", params={"image": ["red.jpg", "green.jpg", "none.jpg"]}).json()
    assert found["images"].pop("none.jpg") == []
    for path, listed in found["images"].items():
        single = zoo["vera"].get(f"{ZOO}/annotations", params={"image": path}).json()["annotations"]
        assert [{name: one[name] for name in one if name != "id"} for one in listed] == single
        assert all(one["id"] for one in listed)


def test_rows_of_a_class_and_from_an_offset(zoo: Scene) -> None:
    def paths(**query: str | int) -> list[str]:
        page = zoo["vera"].get(f"{ZOO}/samples", params={"table": "images", **query}).json()
        return [sample["values"]["path"] for sample in page["samples"]]

    assert paths(class_name="apple") == ["red.jpg", "cut.jpg"]
    assert paths(class_name="apple", filter="split = 'val'") == ["cut.jpg"]
    assert paths(class_name="pear") == []
    everything = paths()
    assert paths(offset=2, limit=2) == everything[2:4]
    assert paths(offset=99) == []
    counted = (
        zoo["vera"].get(f"{ZOO}/stats", params={"table": "images", "columns": "split", "class_name": "apple"}).json()
    )
    assert sorted((one["value"], one["count"]) for one in counted["columns"][0]["top"]) == [("train", 1), ("val", 1)]
    wrong = zoo["vera"].get("/api/v1/datasets/acme/pets/samples", params={"class_name": "apple"})
    assert wrong.status_code == 422


def test_what_a_user_may_not_read_does_not_exist(zoo: Scene) -> None:
    for path in ("thumbnails/red.jpg", "mosaic", "image-annotations?image=red.jpg", "object-diff?from=HEAD"):
        assert zoo["rita"].get(f"{ZOO}/{path}").status_code == 404
        assert zoo.client(None).get(f"{ZOO}/{path}").status_code == 401


def test_a_checkout_without_the_build_says_how_to_build_it(local: Scene, tmp_path: Path) -> None:
    client = local.client(None)
    client.app.state.page = PageFiles(tmp_path)  # type: ignore[attr-defined]
    answer = client.get("/d/acme/pets/browse")
    assert answer.status_code == 200
    assert "make web" in answer.text
    assert client.get("/assets/index.js").status_code == 404


@pytest.fixture
def built(local: Scene, tmp_path: Path) -> TestClient:
    """A service with a page of two files."""
    directory = tmp_path / "page" / "assets"
    directory.mkdir(parents=True)
    (directory.parent / "index.html").write_text(
        "<!doctype html><script src='/assets/a.js'></script>", encoding="utf-8"
    )
    (directory / "a.js").write_text("console.log('page')", encoding="utf-8")
    (directory / "a.map").write_text("{}", encoding="utf-8")
    (tmp_path / "secret.js").write_text("secret", encoding="utf-8")
    client = local.client(None)
    client.app.state.page = PageFiles(tmp_path / "page")  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize(
    "path", ["/", "/d/acme/pets", "/d/acme/pets/browse?filter=a", "/sql", "/jobs", "/admin/tokens"]
)
def test_every_address_of_the_page_is_the_document(built: TestClient, path: str) -> None:
    answer = built.get(path)
    assert answer.text.startswith("<!doctype html>")
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert built.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_scripts_are_compressed_and_kept_for_ever(built: TestClient) -> None:
    with built.stream("GET", "/assets/a.js", headers={"Accept-Encoding": "gzip"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())) == b"console.log('page')"
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    plain = built.get("/assets/a.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == b"console.log('page')"
    assert "'unsafe-eval'" not in plain.headers["content-security-policy"], "a worker may run WebAssembly, no text"
    assert "script-src 'self' 'wasm-unsafe-eval'" in plain.headers["content-security-policy"]


@pytest.mark.parametrize("name", ["a.map", "..%2Fsecret.js", "%2e%2e/secret.js", "b.js"])
def test_only_files_of_the_build_are_served(built: TestClient, name: str) -> None:
    assert built.get(f"/assets/{name}").status_code == 404
