"""If this fails, a collection behind a service is not the one that a program with the store would have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warpdata as wd
from tests.collections.scenes import BIRD, CAT, DOG, jpeg, png
from tests.server.conftest import Scene
from tests.server.running import running
from warpdata.collections import Annotation, Collection
from warpdata.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BadInputError,
    ConflictError,
    DatasetNotFoundError,
    InvalidSourceError,
    ObjectNotFoundError,
)
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.server import Scope, ServiceOptions
from warpdata.settings import Settings

SHAPES: list[Annotation] = [
    wd.Box("cat", 1, 2, 3, 4, rotation=10, attributes={"seen": [1, "twice"]}),
    wd.Polygon("cat", [(0, 0), (4, 0), (4, 5)]),
    wd.Polyline("cat", [(0, 0), (4, 0)]),
    wd.Mask("cat", np.array([[0, 1], [1, 1]], bool)),
    wd.Keypoints("cat", [(1, 2, 2), (3, 4, 0)]),
    wd.Label("cat"),
]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store_url="unused", cache_dir=tmp_path / "cache", max_retries=0)


@contextmanager
def far(scene: Scene, settings: Settings, user: str = "ana", scope: Scope = Scope.WRITE) -> Iterator[wd.Connection]:
    with running(scene.service) as url:
        yield wd.connect(url, settings, token=scene.token(user, scope))


def tell(collection: Collection, tmp_path: Path) -> dict[str, Any]:
    """Use every method, and return what they answered, without times and random ids."""
    seen: dict[str, Any] = {}
    stored = collection.add("cats/1.png", CAT, annotations=SHAPES, split="train", tags=["a", "b"])
    seen["stored"] = (stored.path, stored.hash, stored.size_bytes, stored.added)
    folder = tmp_path / f"folder {len(str(collection))}"
    for number in range(5, 9):
        jpeg(folder / "images" / f"dogs/{number} é.png", number)
    (folder / "annotations.json").write_text(
        '{"classes": [{"id": 0, "name": "dog"}], "images": [{"id": 0, "file_name": "dogs/5 \\u00e9.png", '
        '"annotation": {"class_id": 0, "bbox": [1, 2, 3, 4]}}]}'
    )
    receipt = collection.upload(folder, batch_files=3)
    seen["receipt"] = (receipt.files, receipt.annotations, receipt.added_files)
    seen["again"] = [file.added for file in collection.upload(folder).files]
    seen["v1"] = collection.create_version("v1").name
    with collection.changes("many") as change:
        change.add("birds/1.png", BIRD, annotations=[wd.Label("bird")])
        change.add("cats/1.png", DOG, replace=True)
        change.remove("dogs/6 é.png")
        change.set("dogs/7 é.png", split="val", tags=["x"])
        change.annotate("dogs/8 é.png", [wd.Label("dog")])
    collection.annotate("birds/1.png", [wd.Label("owl")], replace=True)
    rows = collection.head.table("images").raw().to_arrow().to_pylist()
    seen["rows"] = sorted([(row["path"], row["hash"], row["split"], row["tags"], row["width"]) for row in rows])
    seen["annotations"] = {row["path"]: collection.annotations(row["path"]) for row in rows}
    seen["old"] = [collection.read("cats/1.png", "v1"), collection.annotations("cats/1.png", "v1")]
    compared = collection.compare("v1", "HEAD")
    seen["compared"] = (compared.added, compared.removed, compared.changed, compared.classes)
    job = collection.start_training("detection", "yolo", job_id="41")
    seen["job"] = (job.snapshot_id, job.status, job.environment["ANNOTATIONS_PATH"])
    seen["ended"] = collection.end_training("41", "failed", note="no").status
    seen["restored"] = collection.restore("v1").changed
    collection.create_version("v2")
    impact = collection.impact("cats/1.png")
    seen["impact"] = (impact.hashes, impact.paths, impact.in_head, impact.affected_jobs, impact.size_bytes)
    assert collection.purge("cats/1.png", "cancel", token=impact.token) is None
    done = collection.purge("cats/1.png", "auto_repair", token=impact.token, reason="asked")
    assert done is not None
    seen["purged"] = (done.is_clean, done.erased_bytes, done.successors, done.jobs, done.reason)
    seen["states"] = {one.name: str(one.state) for one in collection.versions()}
    seen["state"] = (str(collection.state()), collection.state("v1").missing_images)
    report = collection.check_integrity(deep=True)
    seen["integrity"] = (report.is_valid, report.checked_blobs, {k: str(v) for k, v in report.states.items()})
    seen["repair"] = collection.repair().successors
    collection.remove("dogs/5 é.png")
    seen["left"] = sorted(member.path for member in collection.head.artifact("images").members())
    return seen


def test_every_method_answers_as_over_a_store(local: Scene, settings: Settings, tmp_path: Path) -> None:
    near = wd.collection("acme/near", store=str(tmp_path / "near"))
    with far(local, settings) as session:
        collection = session.collection("acme/zoos")
        one, two = tell(near, tmp_path), tell(collection, tmp_path)
        for each in (one, two):
            each["job"] = (*each["job"][:2], each["job"][2].replace("near", "zoos"))
        assert one == two
        assert {entry.author for entry in collection.head.history()} == {"ana"}
        block, address = collection.job("41").environment, session.reader.url
        assert (block["WARP_STORE"], block["BUCKET_NAME"]) == (address, "acme")
        assert block["S3_ENDPOINT"] == f"{address.removeprefix('warp+')}/s3"


def test_errors_are_those_of_a_store(local: Scene, settings: Settings, tmp_path: Path) -> None:
    with far(local, settings) as session:
        with pytest.raises(DatasetNotFoundError):
            session.collection("acme/none").statistics()
        made = session.create_collection("acme/zoo", packed=True)
        with pytest.raises(AlreadyExistsError):
            session.create_collection("acme/zoo")
        made.add("cat.png", CAT)
        assert made.head.artifact("images").entry.kind == "tar_shards"
        with pytest.raises(AlreadyExistsError):
            made.add("cat.png", DOG)
        with pytest.raises(BadInputError, match="path"):
            made.add("../cat.png", DOG)
        with pytest.raises(ObjectNotFoundError):
            made.annotate("dog.png", [wd.Label("dog")])
        with pytest.raises(BadInputError, match="author"):
            made.add("dog.png", DOG, author="vera")
        made.create_version("v1")
        impact = made.impact("cat.png")
        made.add("dog.png", DOG)
        with pytest.raises(ConflictError) as conflict:
            made.purge("cat.png", "mark_broken", token=impact.token)
        assert conflict.value.kind == "impact_changed"
        with pytest.raises(BadInputError, match="is not a collection"):
            session.collection("acme/pets").add("1.png", CAT)


def test_a_viewer_reads_and_changes_nothing(local: Scene, settings: Settings) -> None:
    wd.collection("acme/zoo", store=local.store).add("cat.png", CAT)
    with far(local, settings, "vera", Scope.MANAGE) as session:
        collection = session.collection("acme/zoo")
        assert collection.read("cat.png") == CAT
        changes: list[Callable[[], object]] = [
            lambda: collection.add("dog.png", DOG),
            lambda: collection.remove("cat.png"),
            lambda: collection.annotate("cat.png", [wd.Label("cat")]),
            lambda: collection.create_version("v1"),
        ]
        for change in changes:
            with pytest.raises(AccessDeniedError):
                change()
    with far(local, settings, "rita") as session, pytest.raises(DatasetNotFoundError):
        session.collection("acme/zoo").add("dog.png", DOG)


def test_a_change_with_a_key_happens_once(local: Scene, settings: Settings) -> None:
    with far(local, settings) as session:
        collection = session.collection("acme/zoo")
        for _ in range(2):
            with collection.changes("batch 7", key="batch 7") as change:
                if "cat.png" not in collection.open_or_create().artifact("images"):
                    change.add("cat.png", CAT)
        versions = []
        for _ in range(2):
            with collection.changes("labels", key="labels 7") as change:
                change.annotate("cat.png", [wd.Label("cat")])
            versions.append(change.version)
        assert versions[0] == versions[1]
        assert collection.annotations("cat.png") == [wd.Label("cat")]


def test_an_interrupted_upload_sends_only_what_is_missing(
    local: Scene, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warpdata.collections.service_upload as sending

    monkeypatch.setattr(sending, "_ARCHIVE_BYTES", 4096)
    monkeypatch.setattr(sending, "_PART_BYTES", 8192)
    folder = tmp_path / "folder"
    for number in range(20):
        jpeg(folder / f"{number:02}.png", number)
    large = png(99) + np.random.default_rng(1).bytes(40_000)
    (folder / "large.png").write_bytes(large)
    sent: list[int] = []

    def count(event: wd.ProgressEvent) -> None:
        sent.append(event.done_files)

    with far(local, settings) as session:
        collection = session.collection("acme/zoo")
        client = collection.client
        bodies: list[tuple[str, str, int]] = []
        send = client.send

        def failing(method: str, path: str, **given: Any) -> Any:
            if path.endswith("/commit") or (
                method == "PATCH" and len([one for one in bodies if one[0] == "PATCH"]) > 2
            ):
                raise OSError("the plug was pulled")
            bodies.append((method, path, len(given.get("body", b""))))
            return send(method, path, **given)

        monkeypatch.setattr(type(client), "send", lambda _, method, path, **given: failing(method, path, **given))
        with pytest.raises(OSError, match="plug"):
            collection.upload(folder, progress=count)
        parts = [size for method, _, size in bodies if method == "PATCH"]
        assert parts == [8192] * 3
        monkeypatch.undo()
        monkeypatch.setattr(sending, "_ARCHIVE_BYTES", 4096)
        monkeypatch.setattr(sending, "_PART_BYTES", 8192)
        again: list[tuple[str, int]] = []

        def counting(_: object, method: str, path: str, **given: Any) -> Any:
            again.append((method, len(given.get("body", b""))))
            return send(method, path, **given)

        monkeypatch.setattr(type(client), "send", counting)
        receipt = collection.upload(folder, progress=count)
        assert sum(size for method, size in again if method == "PATCH") == len(large) - 3 * 8192
        assert not [one for one in again if one[0] == "POST" and one[1] > 4000], "acknowledged files were sent again"
        assert {file.path: file.hash for file in receipt.files}["large.png"] == sha256_hex(large)
        assert collection.read("large.png") == large
        assert sent[-1] == 21
    assert list(local.service.session.writer.list_objects("service/uploads")) == []


def test_a_file_that_changes_while_it_is_sent_is_refused(local: Scene, settings: Settings, tmp_path: Path) -> None:
    path = jpeg(tmp_path / "x.png", 1)
    with far(local, settings) as session:
        collection = session.collection("acme/zoo")
        change = collection.changes("x")
        change.add("x.png", path)
        path.write_bytes(png(2))
        with pytest.raises(InvalidSourceError, match="changed"):
            change.commit()
        assert "x.png" not in collection.head.artifact("images")


def test_a_purge_does_not_name_datasets_of_others(local: Scene, settings: Settings) -> None:
    wd.collection("rival/hidden", store=local.store).add("cat.png", CAT)
    with far(local, settings) as session:
        collection = session.collection("acme/zoo")
        collection.add("cat.png", CAT)
        with pytest.raises(ConflictError) as refused:
            collection.purge("cat.png", "mark_broken", token=collection.impact("cat.png").token)
    assert refused.value.kind == "shared_bytes"
    assert "hidden" not in str(refused.value)


def test_a_purge_drops_the_bytes_of_this_machine(local: Scene, settings: Settings) -> None:
    with far(local, settings) as session:
        collection = session.collection("acme/zoo")
        collection.add("cat.png", CAT)
        collection.head.artifact("images").read("cat.png")
        assert session.cache is not None
        collection.purge("cat.png", "mark_broken", token=collection.impact("cat.png").token)
        assert not session.cache.contains(sha256_hex(CAT))
        with pytest.raises(ObjectNotFoundError):
            session.reader.read(blob_key(sha256_hex(CAT)))


def test_without_sign_in_the_user_is_local(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene(f"sqlite:///{tmp_path}/s.db", ServiceOptions(requires_sign_in=False))
    settings = Settings(store_url="unused", cache_dir=tmp_path / "cache", max_retries=0)
    with running(scene.service) as url:
        collection = wd.collection("acme/zoo", store=wd.connect(url.replace("http", "warp+http", 1), settings))
        collection.add("cat.png", CAT)
        assert collection.read("cat.png") == CAT
