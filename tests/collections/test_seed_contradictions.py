"""If this fails, a contradiction of the platform's document is back: each test is one that had to be settled.

docs/decisions/0050-collections-are-datasets.md lists the choices.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import warpdata as wd
from tests.collections.scenes import CAT, DOG, jpeg, objects, png, two_versions
from tests.faults.scenes import link, memory
from warpdata.collections import Annotation
from warpdata.errors import BadInputError, ConflictError, CorruptError, ErrorKind, NotFoundError
from warpdata.formats.labels import parse_annotations
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import canonical_json


def test_a_replaced_image_changes_no_snapshot() -> None:
    collection = two_versions(link(memory("seed replaced")))
    collection.add("cat.png", DOG, replace=True)
    assert collection.read("cat.png", "training-job-7") == CAT


def test_checksums_are_those_of_the_bytes_and_documents_are_canonical() -> None:
    collection = two_versions(link(memory("seed hashes")))
    integrity = collection.snapshot_document("v1")["integrity"]
    assert integrity["image_checksums"]["cat.png"] == f"sha256:{sha256_hex(CAT)}"
    annotations = collection.snapshot_document("v1")["annotations"]
    shuffled = json.loads(json.dumps(dict(reversed(annotations.items()))))
    digest = sha256_hex(canonical_json(shuffled, fractions=True))
    assert integrity["annotations_hash"] == f"sha256:{digest}"


def test_a_snapshot_belongs_to_its_dataset_and_two_may_have_the_same_version_name() -> None:
    session = link(memory("seed names"))
    for name in ("a/b", "a/b-v1"):
        wd.collection(name, store=session).add("1.png", png(len(name)))
    wd.collection("a/b", store=session).create_version("v1-v1")
    wd.collection("a/b-v1", store=session).create_version("v1")
    assert wd.collection("a/b", store=session).read("1.png", "v1-v1") == png(3)
    assert wd.collection("a/b-v1", store=session).read("1.png", "v1") == png(6)


@pytest.mark.parametrize("path", ["../../other/images/cat.png", "..%2fcat.png", "/etc/passwd"])
def test_a_path_is_looked_up_and_is_never_part_of_a_key(path: str) -> None:
    collection = two_versions(link(memory(f"seed path {path}")))
    with pytest.raises((NotFoundError, BadInputError)):
        collection.read(path)
    assert not any("cat.png" in key for key in objects(collection.session.writer))


@pytest.mark.parametrize("image_id", [0, 1, "0"])
def test_the_image_id_0_is_an_id(image_id: object) -> None:
    document = {
        "classes": [{"id": 0, "name": "cat"}],
        "images": [{"id": image_id, "file_name": "a.png"}],
        "annotations": [{"image_id": image_id, "class_id": 0, "bbox": [0, 0, 1, 1]}],
    }
    parsed = parse_annotations(json.dumps(document).encode(), "annotations.json")
    assert parsed.images["a.png"].annotations == [wd.Box("cat", 0, 0, 1, 1)]


def test_a_purge_removes_the_annotations_of_image_0_everywhere() -> None:
    collection = two_versions(link(memory("seed image 0")))
    assert collection.annotations_document("v1")["images"][0] == {
        "id": 0,
        "file_name": "cat.png",
        "width": 8,
        "height": 6,
        "split": "train",
    }
    collection.purge("cat.png", "auto_repair", token=collection.impact("cat.png").token)
    for ref in ("HEAD", "v1-r1", "v2-r1"):
        document = collection.annotations_document(ref)
        assert {one["class_name"] for one in document["annotations"]} <= {"dog", "bird"}


def test_a_repaired_snapshot_is_not_valid_again_and_the_job_keeps_its_pin() -> None:
    collection = two_versions(link(memory("seed repaired")))
    pinned = collection.job("7").version
    collection.purge("cat.png", "auto_repair", token=collection.impact("cat.png").token)
    job = collection.job("7")
    assert job.version == pinned == collection.dataset("training-job-7").version
    assert (job.snapshot.state, job.snapshot.repaired_by) == ("snapshot-repaired", "v1-r1")
    assert job.snapshot_status_at_start == "valid"
    with pytest.raises(ConflictError) as caught:
        collection.restore("v1")
    assert caught.value.kind is ErrorKind.VERSION_BROKEN
    collection.restore("v1-r1")


def test_a_second_deletion_adds_to_the_missing_images() -> None:
    collection = two_versions(link(memory("seed missing")))
    for path in ("cat.png", "dog.png"):
        collection.purge(path, "mark_broken", token=collection.impact(path).token)
    state = collection.state("v2")
    assert (state.missing_images, state.missing_count, state.status) == (("cat.png", "dog.png"), 2, "broken")
    token = collection.impact("bird.png").token
    collection.purge("bird.png", "auto_repair", token=token)
    assert str(collection.state("v2")) == "repaired_by:v2-r1"
    assert collection.dataset("v2-r1").artifact().entry.member_count == 0


def test_bytes_are_measured_and_not_estimated() -> None:
    collection = wd.collection("a/pets", store=link(memory("seed bytes")))
    with collection.changes("twice") as change:
        change.add("1.png", CAT)
        change.add("2.png", CAT)
    found = collection.statistics()
    assert (found.logical_bytes, found.stored_bytes) == (2 * len(CAT), len(CAT))


def test_task_type_belongs_to_the_job() -> None:
    collection = two_versions(link(memory("seed task")))
    collection.start_training("classification", "resnet", job_id="8")
    assert [job.task_type for job in collection.jobs()] == ["detection", "classification"]
    assert "task_type" not in json.dumps([collection.meta_document(), collection.annotations_document()])


def test_a_document_written_is_a_document_read(tmp_path: Path) -> None:
    session = link(memory("seed round trip"))
    drawn: list[Annotation] = [
        wd.Box("cat", 0.5, 1, 2, 3, rotation=10.5),
        wd.Polygon("cat", [[(0, 0), (1, 0), (1, 1)], [(0, 0), (2, 0), (2, 2)]]),
        wd.Mask("sky", {"size": [2, 3], "counts": [1, 2, 3]}),
        wd.Keypoints("dog", [(1, 2, 1)], attributes={"side": "left"}),
        wd.Label("indoor"),
    ]
    first = wd.collection("a/first", store=session)
    first.add("sub/0.png", png(0), annotations=drawn, split="val", tags=["night"])
    (tmp_path / "annotations.json").write_text(json.dumps(first.annotations_document()))
    jpeg(tmp_path / "images/sub/0.png", 0)
    second = wd.collection("a/second", store=session)
    second.upload(tmp_path)
    assert second.annotations("sub/0.png") == drawn
    (row,) = second.head.table("images").raw().to_arrow().to_pylist()
    assert (row["split"], row["tags"]) == ("val", ["night"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"images": 5}, "no list of images"),
        ({"images": [{"id": 1}]}, "no file_name"),
        ({"images": [{"file_name": "../x"}]}, "not a plain relative path"),
        ({"images": [{"file_name": "a"}, {"file_name": "a"}]}, "repeats"),
        ({"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]}, "not unique"),
        ({"annotations": [{"image_id": 9, "class_id": 0}]}, "not listed"),
        ({"annotations": [{"image_id": 0, "class_id": 7}]}, "not a listed class"),
        ({"annotations": [{"image_id": 0}]}, "no class"),
        ({"annotations": [{"image_id": 0, "class_id": 0, "bbox": [1, 2, 3]}]}, "x, y, width and height"),
        ({"annotations": [{"image_id": 0, "class_id": 0, "type": "cuboid"}]}, "cuboid"),
        ({"classes": [{"id": 0}]}, "no name"),
        ({"classes": "cat"}, "classes is not a list"),
    ],
)
def test_wrong_documents_are_refused_with_the_place(change: dict[str, object], problem: str) -> None:
    valid = {"classes": [{"id": 0, "name": "cat"}], "images": [{"id": 0, "file_name": "a.png"}], "annotations": []}
    parse_annotations(json.dumps(valid).encode(), "x")
    with pytest.raises(CorruptError, match=problem):
        parse_annotations(json.dumps({**valid, **change}).encode(), "x")


def test_members_that_are_not_known_are_kept_as_attributes() -> None:
    document = {"images": [{"file_name": "a.png", "annotation": {"class": "cat", "score": 0.5, "note": "blurred"}}]}
    parsed = parse_annotations(json.dumps(document).encode(), "x")
    assert parsed.images["a.png"].annotations == [wd.Label("cat", attributes={"score": 0.5, "note": "blurred"})]


def test_a_repair_of_one_file_does_not_repair_the_loss_of_another() -> None:
    collection = two_versions(link(memory("seed half repaired")))
    collection.purge("cat.png", "auto_repair", token=collection.impact("cat.png").token)
    collection.purge("dog.png", "mark_broken", token=collection.impact("dog.png").token)
    assert str(collection.state("v1")) == str(collection.state("v1-r1")) == "broken"
    assert collection.state("v1").repaired_by is None
