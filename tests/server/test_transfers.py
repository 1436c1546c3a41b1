"""If this fails, an export or import loses files, or an archive reaches beyond its directory."""

from __future__ import annotations

import base64
import io
import json
import stat
import tarfile
import zipfile
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import warpdata as wd
from tests.collections.scenes import CAT, DOG
from tests.server.conftest import PNG, Scene
from warpdata.errors import BadInputError
from warpdata.server.jobs import JobWorker
from warpdata.server.jobs.results import remove_old_results
from warpdata.server.unpacking import unpack_archive

API = "/api/v1"
PETS = f"{API}/datasets/acme/pets"


def run(scene: Scene, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = scene["ana"].post(f"{API}/datasets/{path}", json=body)
    assert answer.status_code == 202, answer.text
    assert JobWorker(scene.service).run_next()
    found: dict[str, Any] = scene["ana"].get(f"{API}/jobs/{answer.json()['id']}").json()
    return found


def open_result(scene: Scene, job: dict[str, Any]) -> zipfile.ZipFile:
    assert job["state"] == "done", job
    url = f"{API}/jobs/{job['id']}/file"
    whole = scene["ana"].get(url)
    assert sha256(whole.content).hexdigest() == job["result"]["file"]["sha256"]
    assert scene["ana"].get(url, headers={"Range": "bytes=2-5"}).content == whole.content[2:6]
    assert scene["rita"].get(url).status_code == 404
    return zipfile.ZipFile(io.BytesIO(whole.content))


def test_a_table_is_exported_and_imported_again(scene: Scene) -> None:
    job = run(
        scene, "acme/pets/exports", {"format": "parquet", "filter": "label = 'cat'", "columns": ["path", "number"]}
    )
    archive = open_result(scene, job)
    (name,) = [one for one in archive.namelist() if one.endswith(".parquet")]
    rows = pq.read_table(io.BytesIO(archive.read(name)))
    assert rows["number"].to_pylist() == [1, 3, 5, 7, 9]
    upload = send(scene, "acme/copy", {"rows.parquet": archive.read(name)})
    done = run(scene, "acme/copy/imports", {"format": "tables", "upload": upload})
    assert done["state"] == "done", done
    assert wd.dataset("acme/copy", store=scene.store).table().count() == 5
    late = scene.service.session.clock() + timedelta(days=8)
    remove_old_results(replace(scene.service, session=replace(scene.service.session, clock=lambda: late)))
    assert scene["ana"].get(f"{API}/jobs/{job['id']}/file").status_code == 404
    assert list(scene.service.session.writer.list_objects("service")) == []


def send(scene: Scene, dataset_id: str, files: dict[str, bytes]) -> str:
    base = f"{API}/datasets/{dataset_id}/uploads"
    upload: str = scene["ana"].post(base, json={}).json()["id"]
    for path, data in files.items():
        headers = {"X-Content-SHA256": sha256(data).hexdigest()}
        scene["ana"].put(f"{base}/{upload}/files/{path}", content=data, headers=headers).raise_for_status()
    return upload


def test_a_collection_goes_out_and_comes_in(local: Scene) -> None:
    one = wd.collection("acme/zoo", store=local.store)
    one.add("cats/1.png", CAT, annotations=[wd.Box("cat", 1, 2, 3, 4)])
    one.add("2.png", DOG)
    archive = open_result(local, run(local, "acme/zoo/exports", {"format": "platform"}))
    assert set(archive.namelist()) == {"annotations.json", "meta.json", "images/cats/1.png", "images/2.png"}
    whole = archive.fp.getvalue()  # type: ignore[union-attr]
    done = run(
        local, "acme/again/imports", {"format": "platform", "upload": send(local, "acme/again", {"x.zip": whole})}
    )
    assert done["state"] == "done", done
    two = wd.collection("acme/again", store=local.store)
    assert two.annotations("cats/1.png") == [wd.Box("cat", 1, 2, 3, 4)]
    assert two.read("2.png") == DOG
    assert {entry.author for entry in two.head.history()} == {"ana"}
    files = open_result(local, run(local, "acme/zoo/exports", {"format": "files"}))
    assert {name: files.read(name) for name in files.namelist()} == {"cats/1.png": CAT, "2.png": DOG}


def test_an_image_folder_in_an_archive_is_imported(local: Scene) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:gz") as out:
        for name in ("train/cat/1.png", "train/dog/2.png"):
            member = tarfile.TarInfo(f"./top/{name}")
            member.size = len(PNG)
            out.addfile(member, io.BytesIO(PNG))
    upload = send(local, "acme/folder", {"folder.tar.gz": body.getvalue()})
    done = run(local, "acme/folder/imports", {"format": "imagefolder", "upload": upload})
    assert done["state"] == "done", done
    rows = wd.dataset("acme/folder", store=local.store).table().raw().to_arrow().to_pylist()
    assert [(row["label"], row["split"]) for row in rows] == [("cat", "train"), ("dog", "train")]
    for body_, code in (
        ({"format": "parquet", "filter": "nope >"}, 422),
        ({"format": "platform"}, 422),
        ({"format": "files", "artifact": "none"}, 404),
    ):
        assert local["ana"].post(f"{API}/datasets/acme/folder/exports", json=body_).status_code == code
    assert local["ana"].post(f"{API}/datasets/acme/folder/imports", json={"format": "tables"}).status_code == 422


def zipped(name: str, data: bytes = b"x", mode: int = stat.S_IFREG) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as out:
        info = zipfile.ZipInfo(name)
        info.external_attr = (mode | 0o644) << 16
        out.writestr(info, data, zipfile.ZIP_DEFLATED)
    return body.getvalue()


def tarred(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"x") -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as out:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        member.size = len(data) if kind == tarfile.REGTYPE else 0
        out.addfile(member, io.BytesIO(data))
    return body.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        zipped("../x"),
        zipped("/x"),
        zipped("a/../../x"),
        zipped("a\\..\\x"),
        zipped("x" * 300),
        zipped("link", b"/etc/passwd", stat.S_IFLNK),
        zipped("bomb", bytes(200 * 1024 * 1024)),
        zipped("x")[:-30],
        tarred("../x"),
        tarred("/x"),
        tarred("x", tarfile.SYMTYPE),
        tarred("x", tarfile.LNKTYPE),
        tarred("x", tarfile.FIFOTYPE),
        tarred("x" * 90, data=b"y" * 2000)[:1500],
        b"",
        b"PK\x03\x04 no archive",
    ],
)
def test_hostile_archives_stay_outside(tmp_path: Path, data: bytes) -> None:
    archive, target = tmp_path / "archive", tmp_path / "a" / "target"
    archive.write_bytes(data)
    target.mkdir(parents=True)
    with pytest.raises(BadInputError) as refused:
        unpack_archive(archive, "archive", target)
    assert str(tmp_path) not in refused.value.message
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != archive]
    assert all(target in path.parents for path in written)
    assert sum(path.stat().st_size for path in written) <= 64 * 1024 * 1024


@pytest.fixture
def searched(local: Scene) -> Scene:
    rng = np.random.default_rng(0)
    images = {f"{at}.png": _image(at) for at in range(6)}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(24), pa.float32()), 4)
    table = pa.table(
        {"path": list(images), "text": [f"a red cat {at}" for at in range(6)], "v": vectors, "n": range(6)}
    )
    builder = wd.DatasetBuilder("acme/found", local.store).add_table("main", table)
    builder.add_artifact("images", images, kind="files").bind("main", "path", "images", "image").publish()
    return local


def _image(seed: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (24, 24, 3), np.uint8)
    Image.fromarray(pixels).resize((48, 48)).save(out, "PNG")
    return out.getvalue()


def test_searches_answer_as_the_library(searched: Scene) -> None:
    dataset = wd.dataset("acme/found", store=searched.store)
    route = f"{API}/datasets/acme/found/search"
    vector = dataset.table().raw().to_arrow()["v"].to_pylist()[3]
    cases: list[tuple[dict[str, Any], wd.Hits]] = [
        ({"text": "cat 2", "column": "text"}, dataset.search(text="cat 2", column="text")),
        ({"near": {"column": "v", "vector": vector}, "k": 3}, dataset.search(near=("v", vector), k=3)),
        ({"near": {"column": "v", "row": 3}, "filter": "n > 1"}, dataset.search(near=("v", vector), filter="n > 1")),
        (
            {"near": {"column": "v", "row": 3}, "text": "red", "column": "text", "metric": "l2"},
            dataset.search(near=("v", vector), text="red", column="text", metric="l2"),
        ),
        (
            {"near": {"column": "path", "image": base64.b64encode(_image(4)).decode()}, "columns": ["path"]},
            dataset.search(near=("path", _image(4)), columns=["path"]),
        ),
        ({"near": {"column": "path", "row": 4}, "columns": ["path"]}, dataset.search(near=("path", _image(4)))),
    ]
    for body, hits in cases:
        answer = searched["vera"].post(route, json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()["hits"]
        assert [(one["id"], one["score"]) for one in found] == list(zip(hits.ids, hits.scores, strict=True)), body
        assert [one["row"] for one in found] == hits.row_numbers.tolist()
    assert found[0]["values"] == {"path": "4.png"}
    for body in (
        {},
        {"near": {"column": "v"}},
        {"near": {"column": "text", "row": 1}},
        {"near": {"column": "v", "row": 99}},
        {"near": {"column": "path", "image": "no base64"}},
        {"near": {"column": "path", "image": base64.b64encode(b"no image").decode()}},
        {"near": {"column": "v", "vector": [1.0]}},
        {"text": "x", "filter": "nope >"},
    ):
        assert searched["vera"].post(route, json=body).status_code in (404, 422), body
    assert searched["rita"].post(route, json={"text": "cat"}).status_code == 404
    body = {"text": "cat", "column": "text", "k": 2}
    assert json.loads(searched["vera"].post(route, json=body).text)["searched"] == 6
