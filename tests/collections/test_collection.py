"""If this fails, HEAD, versions or training snapshots of a collection are not what a user was promised."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import warpdata as wd
from tests.collections.scenes import BIRD, CAT, DOG, jpeg, objects, png, two_versions
from tests.faults.scenes import faulty, link, memory
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ConflictError,
    DatasetNotFoundError,
    InvalidSourceError,
    NotFoundError,
    ObjectNotFoundError,
)
from warpdata.primitives.hashing import sha256_hex
from warpdata.testing import KillAt, Killed


def test_the_first_add_creates_a_collection_and_reads_do_not() -> None:
    store = memory("first add")
    collection = wd.collection("a/pets", store=link(store))
    with pytest.raises(DatasetNotFoundError):
        collection.statistics()
    assert objects(store) == {}
    stored = collection.add("cats/1.png", CAT)
    assert (stored.path, stored.hash, stored.size_bytes) == ("cats/1.png", sha256_hex(CAT), len(CAT))
    assert collection.read("cats/1.png") == CAT
    with pytest.raises(AlreadyExistsError):
        wd.create_collection("a/pets", store=link(store, 1))


def test_another_dataset_is_not_taken_for_a_collection() -> None:
    session = link(memory("no collection"))
    wd.DatasetBuilder("a/trips", session).add_table("main", {"x": [1]}).publish()
    with pytest.raises(BadInputError, match="is not a collection"):
        wd.collection("a/trips", store=session).add("1.png", CAT)


def test_versions_do_not_change_and_nothing_is_copied(tmp_path: Path) -> None:
    store = memory("versions")
    collection = two_versions(link(store))
    sizes = {info.key: info.size_bytes for info in store.list_objects("blobs")}
    collection.create_version("v3")
    assert {info.key: info.size_bytes for info in store.list_objects("blobs")} == sizes
    collection.remove("cat.png")
    collection.add("dog.png", jpeg(tmp_path / "x.png", 9), replace=True)
    assert collection.read("cat.png", "v1") == CAT
    assert collection.read("dog.png", "v1") == DOG
    assert collection.read("dog.png") == png(9)
    assert collection.annotations("dog.png") == [], "a replaced file keeps annotations of the old one"
    with pytest.raises(ObjectNotFoundError):
        collection.read("cat.png")
    names = [(version.name, version.snapshot_type, str(version.state)) for version in collection.versions()]
    assert sorted(names) == [
        ("training-job-7", "training", "valid"),
        ("v1", "manual", "valid"),
        ("v2", "manual", "valid"),
        ("v3", "manual", "valid"),
    ]
    restored = collection.restore("v1")
    assert restored.version == collection.dataset("v1").version == collection.head.version


def test_compare_counts_files_annotations_and_classes() -> None:
    collection = two_versions(link(memory("compare")))
    with collection.changes("edit") as change:
        change.remove("cat.png")
        change.add("dog.png", png(5), annotations=[wd.Label("dog"), wd.Label("pet")], replace=True)
    found = collection.compare("v1", "HEAD")
    assert (found.added, found.removed, found.changed) == (("bird.png",), ("cat.png",), ("dog.png",))
    assert found.images == (2, 2)
    assert found.classes == {"bird": (0, 1), "cat": (2, 0), "dog": (1, 1), "pet": (0, 1)}
    assert (found.added_annotations, found.removed_annotations) == (3, 3)


def test_statistics_count_classes_by_split() -> None:
    collection = two_versions(link(memory("statistics")))
    collection.add("again.png", CAT, annotations=[wd.Box("cat", 0, 0, 1, 1)], split="val")
    found = collection.statistics()
    assert (found.images, found.annotations, found.labeled_images) == (4, 5, 4)
    assert found.splits == {"train": 2, "val": 2}
    assert found.logical_bytes - found.stored_bytes == len(CAT)
    cat = next(one for one in found.classes if one.class_name == "cat")
    assert (cat.annotations, cat.images, cat.by_kind) == (3, 2, {"box": 2, "label": 1})
    assert cat.images_by_split == {"train": 1, "val": 1}


def test_one_change_is_one_commit_or_none() -> None:
    collection = two_versions(link(memory("changes")))
    before = collection.head.version
    with pytest.raises(ObjectNotFoundError), collection.changes("fails") as change:
        change.remove([change.add("x.png", BIRD).path, "absent.png"])
    assert collection.head.version == before
    with collection.changes("many") as change:
        change.add("x.png", io.BytesIO(png(7)), tags=["night"])
        change.annotate("x.png", [wd.Label("cat")])
        change.set("cat.png", split="test", tags=["b"])
        change.remove("dog.png")
    assert len(collection.head.history()) == len(collection.dataset("v2").history()) + 1
    rows = {row["path"]: row for row in collection.head.table("images").raw().to_arrow().to_pylist()}
    assert rows["x.png"]["tags"] == ["night"]
    assert (rows["cat.png"]["split"], rows["cat.png"]["tags"]) == ("test", ["b"])
    assert rows["x.png"]["width"], rows["x.png"]["height"] == (8, 6)
    assert "dog.png" not in rows


@pytest.mark.parametrize(
    "path",
    [
        "../x.png",
        "/x.png",
        "a//b.png",
        "a/./b",
        "",
        "a\\b",
        "C:/x.png",
        "a\x00b",
        "a\nb",
        "x.",
        "a /b",
        "n" * 300,
        "e\u0301",
    ],
)
def test_hostile_paths_are_refused(path: str) -> None:
    store = memory("paths")
    with pytest.raises(BadInputError):
        wd.collection("a/pets", store=link(store)).add(path, CAT)


def test_existing_and_missing_paths_are_errors() -> None:
    collection = two_versions(link(memory("existing")))
    with pytest.raises(AlreadyExistsError, match=r"cat\.png"):
        collection.add("cat.png", DOG)
    with pytest.raises(ObjectNotFoundError, match=r"cot\.png"):
        collection.remove("cot.png")
    with pytest.raises(ObjectNotFoundError):
        collection.annotate("cot.png", [wd.Label("cat")])
    with pytest.raises(InvalidSourceError):
        collection.add("x.png", "no/such/file.png")


def test_a_training_job_pins_head_and_has_the_environment_of_the_platform() -> None:
    session = link(memory("training"))
    collection = two_versions(session)
    job = collection.job("7")
    assert job.version == collection.dataset("v1").version != collection.head.version
    assert (job.snapshot_id, job.task_type, job.status) == ("training-job-7", "detection", "running")
    assert job.snapshot_status_at_start == "valid"
    assert job.environment["SNAPSHOT_ID"] == "training-job-7"
    assert job.environment["ANNOTATIONS_PATH"] == "datasets/a/pets/snapshots/training-job-7.json"
    assert job.environment["IMAGES_PATH"] == "datasets/a/pets/images/"
    other = collection.start_training("classification", "resnet", job_id="8")
    assert [one.job_id for one in collection.jobs()] == ["7", "8"]
    assert other.version == collection.head.version
    assert collection.start_training("classification", "resnet", job_id="8") == other
    with pytest.raises(AlreadyExistsError):
        collection.start_training("detection", "resnet", job_id="8")
    assert collection.end_training("8", "failed").status == "failed"
    with pytest.raises(ConflictError):
        collection.end_training("8", "completed")
    with pytest.raises(NotFoundError):
        collection.job("9")


@pytest.mark.parametrize("name", ["HEAD", "training-job-1", "main", "a b", "n" * 120])
def test_names_with_a_meaning_are_no_versions(name: str) -> None:
    collection = two_versions(link(memory(f"names {name}")))
    with pytest.raises((BadInputError, AlreadyExistsError)):
        collection.create_version(name)


def test_states_of_head() -> None:
    collection = wd.collection("a/pets", store=link(memory("states")))
    collection.add("1.png", CAT)
    assert collection.state().state == "unlabeled"
    collection.annotate("1.png", [wd.Label("cat")])
    assert collection.state().state == "labeled"


def upload_source(root: Path, count: int = 7) -> Path:
    for number in range(count):
        jpeg(root / f"images/c{number % 2}/{number}.png", number)
    images = ", ".join(f'{{"id": {n}, "file_name": "c{n % 2}/{n}.png"}}' for n in range(count))
    notes = ", ".join(f'{{"image_id": {n}, "class_id": {n % 2}, "bbox": [0, 0, {n}, 1]}}' for n in range(count))
    classes = '[{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]'
    text = f'{{"format_version": "1.0", "classes": {classes}, "images": [{images}], "annotations": [{notes}]}}'
    (root / "annotations.json").write_text(text)
    return root


def test_an_upload_is_resumed_and_its_receipt_lists_what_is_stored(tmp_path: Path) -> None:
    store, root = memory("upload"), upload_source(tmp_path)
    wd.create_collection("a/pets", store=link(store))
    counting = faulty(store)
    killed = wd.collection("a/pets", store=link(faulty(store, KillAt(150)), 1))
    with pytest.raises(Killed):
        killed.upload(root, batch_files=2)
    collection = wd.collection("a/pets", store=link(counting, 2))
    assert 0 < len(collection.head.artifact()) < 7
    receipt = collection.upload(root, batch_files=2)
    assert 0 < receipt.added_files < 7
    assert receipt.version == collection.head.version
    for file in receipt.files:
        assert sha256_hex(collection.read(file.path)) == file.hash
    assert sorted(file.path for file in receipt.files) == sorted(f"c{n % 2}/{n}.png" for n in range(7))
    for number in range(7):
        (box,) = collection.annotations(f"c{number % 2}/{number}.png")
        assert box == wd.Box(["cat", "dog"][number % 2], 0, 0, number, 1)
    again = collection.upload(root)
    assert again.added_files == again.annotations == 0
    assert again.version == receipt.version


def test_an_upload_refuses_a_document_that_names_other_files(tmp_path: Path) -> None:
    root = upload_source(tmp_path)
    (root / "images/c0/0.png").unlink()
    collection = wd.collection("a/pets", store=link(memory("upload refused")))
    with pytest.raises(InvalidSourceError, match=r"c0/0\.png"):
        collection.upload(root)


def test_a_check_finds_files_that_are_gone_or_changed() -> None:
    store = memory("check")
    collection = two_versions(link(store))
    assert collection.check_integrity(deep=True).is_valid
    digest = sha256_hex(BIRD)
    key = f"blobs/{digest[:2]}/{digest[2:4]}/{digest}"
    store.replace(key, b"x" * len(BIRD))
    assert collection.check_integrity().is_valid, "sizes are equal, so only a deep check sees it"
    assert "bird.png" in collection.check_integrity(["v1", "HEAD"], deep=True).problems[0]
    store.delete(key)
    report = collection.check_integrity()
    assert {name: str(state) for name, state in report.states.items()} == {
        "HEAD": "broken",
        "v2": "broken",
        "v1": "valid",
        "training-job-7": "valid",
    }
    assert collection.state("v2").missing_images == ("bird.png",)
