"""If this fails, files that were sent are lost or changed, or a workspace holds more than it may."""

from __future__ import annotations

import base64
import gc
import io
import os
import tarfile
from collections.abc import Iterator
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tusclient.client import TusClient

import warpdata as wd
from tests.server.conftest import Scene
from tests.server.running import running
from tests.server.test_care import at
from warpdata.errors import BadInputError
from warpdata.server.quotas import set_quota
from warpdata.server.uploads import archives, remove_expired_uploads
from warpdata.server.uploads.commit import EXPIRES_S

API = "/api/v1"
PETS = f"{API}/datasets/acme/pets"
TUS = {"Tus-Resumable": "1.0.0"}


def begin(scene: Scene) -> str:
    made: str = scene["ana"].post(f"{PETS}/uploads", json={}).json()["id"]
    return f"{PETS}/uploads/{made}"


def archive(files: dict[str, bytes], **given: Any) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as out:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            for name, value in given.items():
                setattr(member, name, value)
            out.addfile(member, io.BytesIO(data))
    return body.getvalue()


def test_an_archive_becomes_files(scene: Scene) -> None:
    files = {f"new/{at} ü.bin": b"x" * at for at in range(300)}
    base = begin(scene)
    answer = scene["ana"].post(f"{base}/archive", content=archive(files))
    assert answer.status_code == 200, answer.text
    assert {one["path"]: one["sha256"] for one in answer.json()["files"]} == {
        path: sha256(data).hexdigest() for path, data in files.items()
    }
    replaced = {"new/1 ü.bin": b"other"}
    scene["ana"].post(f"{base}/archive", content=archive(replaced)).raise_for_status()
    scene["ana"].post(f"{base}/commit", json={}).raise_for_status()
    artifact = wd.dataset("acme/pets", store=scene.store).artifact("images")
    assert {path: artifact.read(path) for path in files} == {**files, **replaced}


def test_an_upload_without_a_commit_is_removed_after_a_silent_week(local: Scene) -> None:
    silent, kept, done = begin(local), begin(local), begin(local)
    for base in (silent, kept, done):
        local["ana"].post(f"{base}/archive", content=archive({f"{base[-8:]}.bin": b"12"})).raise_for_status()
    local["ana"].post(f"{done}/commit", json={}).raise_for_status()
    assert remove_expired_uploads(at(local, EXPIRES_S - 60)) == 0
    later = at(local, EXPIRES_S + 60)
    folder = Path(local.store, "service", "uploads", kept[-32:])
    new = later.session.clock().timestamp() - 120
    for path in folder.iterdir():
        os.utime(path, (new, new))  # bytes have come since
    assert remove_expired_uploads(later) == 1
    assert local["ana"].get(silent).status_code == 404
    assert not list(Path(local.store, "service", "uploads", silent[-32:]).iterdir())
    assert len(local["ana"].get(kept).json()["files"]) == 1
    assert local["ana"].get(done).json()["version"] is not None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no archive",
        archive({"../x": b"1"}),
        archive({"/x": b"1"}),
        archive({"a/../../x": b"1"}),
        archive({"x": b""}, type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        archive({"x": b""}, type=tarfile.LNKTYPE, linkname="y"),
        archive({"x": b""}, type=tarfile.CHRTYPE),
        archive({"x": b"12345" * 400})[:1400],
    ],
)
def test_hostile_archives_are_refused(local: Scene, body: bytes) -> None:
    base = begin(local)
    answer = local["ana"].post(f"{base}/archive", content=body)
    assert answer.status_code == 422, answer.text
    assert local["ana"].get(base).json()["files"] == []


@given(st.binary(max_size=3000), st.integers(0, 2000), st.binary(min_size=1, max_size=40))
def test_damaged_archives_have_typed_errors(noise: bytes, at: int, put: bytes) -> None:
    """Whatever the bytes are, members lie inside of them, or the error says so."""
    whole = bytearray(archive({"a": b"1" * 700, "b": b"22"}))
    whole[at : at + len(put)] = put
    for data in (noise, bytes(whole)):
        try:
            found = list(archives._members(data))
        except BadInputError:
            continue
        assert all(0 <= start <= start + size <= len(data) for _, start, size in found)


@pytest.fixture
def address(local: Scene) -> Iterator[str]:
    with running(local.service) as url:
        yield url


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client closes no connections
def test_a_tus_client_goes_on_after_a_break(local: Scene, address: str, tmp_path: Path) -> None:
    """The client of tus.io itself."""
    data = bytes(range(256)) * 4096
    (tmp_path / "large.bin").write_bytes(data)
    base = begin(local)
    client = TusClient(f"{address}{base}/partial", {"Authorization": f"Bearer {local.token('ana')}"})
    metadata = {"filename": "new/large.bin", "sha256": sha256(data).hexdigest()}
    first = client.uploader(str(tmp_path / "large.bin"), chunk_size=300_000, metadata=metadata, upload_checksum=True)
    first.upload(stop_at=600_000)
    assert local["ana"].get(base).json()["files"] == []
    second = client.uploader(str(tmp_path / "large.bin"), chunk_size=300_000, url=first.url)
    assert second.offset == 600_000
    second.upload()
    assert local["ana"].get(base).json()["files"][0]["sha256"] == sha256(data).hexdigest()
    local["ana"].post(f"{base}/commit", json={}).raise_for_status()
    assert wd.dataset("acme/pets", store=local.store).artifact("images").read("new/large.bin") == data
    del client, first, second
    gc.collect()


def start(client: TestClient, base: str, size: int, **metadata: str) -> str:
    pairs = ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in metadata.items())
    answer = client.post(f"{base}/partial", headers={**TUS, "Upload-Length": str(size), "Upload-Metadata": pairs})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def send(client: TestClient, url: str, offset: int, data: bytes, **headers: str) -> int:
    given = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
    return client.patch(url, content=data, headers=given | headers).status_code


def test_the_protocol_keeps_to_its_rules(local: Scene) -> None:
    ana, base = local["ana"], begin(local)
    options = ana.options(f"{base}/partial").headers
    assert options["tus-extension"] == "creation,checksum,termination"
    url = start(ana, base, 10, filename="a.bin")
    assert send(ana, url, 0, b"01234") == 204
    assert send(ana, url, 0, b"01234") == 409
    assert send(ana, url, 6, b"x") == 409
    assert send(ana, url, 5, b"567890") == 422
    wrong, right = (base64.b64encode(sha1(data).digest()).decode() for data in (b"x", b"56789"))  # noqa: S324
    checksum = {"Upload-Checksum": f"sha1 {wrong}"}
    assert send(ana, url, 5, b"56789", **checksum) == 460
    assert ana.head(url).headers["upload-offset"] == "5"
    assert ana.patch(url, content=b"x", headers={**TUS, "Upload-Offset": "5"}).status_code == 415
    checksum["Upload-Checksum"] = f"sha1 {right}"
    assert send(ana, url, 5, b"56789", **checksum) == 204
    assert ana.get(base).json()["files"][0]["size_bytes"] == 10
    gone = start(ana, base, 10, filename="b.bin")
    assert send(ana, gone, 0, b"01234") == 204
    assert ana.delete(gone).status_code == 204
    assert ana.head(gone).status_code == 404
    again = start(ana, base, 3, filename="c.bin", sha256=sha256(b"abc").hexdigest())
    assert start(ana, base, 3, filename="c.bin", sha256=sha256(b"abc").hexdigest()) == again
    assert send(ana, again, 0, b"abd") == 422
    assert ana.head(again).headers["upload-offset"] == "0"
    assert send(ana, again, 0, b"abc") == 204
    assert [one["path"] for one in ana.get(base).json()["files"]] == ["a.bin", "c.bin"]
    start(ana, base, 0, filename="empty.bin")
    ana.post(f"{base}/commit", json={}).raise_for_status()
    assert send(ana, start_late(local), 0, b"x") == 204
    assert wd.dataset("acme/pets", store=local.store).artifact("images").read("empty.bin") == b""


def start_late(scene: Scene) -> str:
    return start(scene["ana"], begin(scene), 9, filename="late.bin")


def test_a_long_part_is_kept_while_it_arrives(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.server.routes.partial_files._PART_BYTES", 1000)
    ana, base = local["ana"], begin(local)
    url = start(ana, base, 3500, filename="a.bin")

    def broken() -> Iterator[bytes]:
        yield b"a" * 2500
        raise OSError("the connection is gone")

    with pytest.raises(OSError, match="gone"):
        ana.patch(
            url,
            content=broken(),
            headers={**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"},
        )
    offset = int(ana.head(url).headers["upload-offset"])
    assert offset in (0, 1000, 2000)  # the test client may end before the body is read
    assert send(ana, url, offset, b"a" * (3500 - offset)) == 204
    assert ana.get(base).json()["files"][0]["sha256"] == sha256(b"a" * 3500).hexdigest()


def test_a_workspace_has_a_quota(scene: Scene) -> None:
    usage = scene["ana"].get(f"{API}/workspaces/acme/quota").json()
    assert (usage["used_files"], usage["max_bytes"]) == (10, None)
    assert scene["ana"].put(f"{API}/workspaces/acme/quota", json={"max_bytes": 1, "max_files": 1}).status_code == 404
    limit = {"max_bytes": usage["used_bytes"] + 1000, "max_files": None}
    assert scene["root"].put(f"{API}/workspaces/acme/quota", json=limit).status_code == 200
    base = begin(scene)
    assert scene["ana"].post(f"{base}/archive", content=archive({"a": b"x" * 600})).status_code == 200
    refused = scene["ana"].post(f"{base}/archive", content=archive({"b": b"x" * 600}))
    assert (refused.status_code, refused.json()["code"]) == (422, "quota_exceeded")
    headers = {**TUS, "Upload-Length": "500", "Upload-Metadata": "filename YQ=="}
    assert scene["ana"].post(f"{base}/partial", headers=headers).json()["code"] == "quota_exceeded"
    set_quota(scene.service, "acme", None, 11)
    one = {"X-Content-SHA256": sha256(b"x").hexdigest()}
    assert scene["ana"].put(f"{base}/files/b", content=b"x", headers=one).json()["code"] == "quota_exceeded"
    set_quota(scene.service, "acme", None, None)
    assert scene["ana"].put(f"{base}/files/b", content=b"x", headers=one).status_code == 200
