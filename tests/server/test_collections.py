"""If this fails, a collection behind the service differs from the same one without it, or a purge needs no proof."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

import warpdata as wd
from tests.collections.scenes import BIRD, CAT, DOG
from tests.server.conftest import Scene
from warpdata.server import Place, Role, set_role

API = "/api/v1"
ZOO = f"{API}/datasets/acme/zoo"
BOX = {"type": "box", "class_name": "cat", "bbox": [1, 2, 3, 4.5], "attributes": {"seen": True}}
SHAPES: list[dict[str, Any]] = [
    BOX,
    {"type": "box", "class_name": "cat", "bbox": [0, 0, 1, 1], "rotation": 30.0},
    {"type": "polygon", "class_name": "dog", "segmentation": [[0, 0, 4, 0, 4, 4], [1, 1, 2, 1, 2, 2]]},
    {"type": "mask", "class_name": "dog", "segmentation": {"size": [2, 3], "counts": [1, 2, 3]}},
    {"type": "keypoints", "class_name": "dog", "keypoints": [1, 2, 2, 3, 4, 0]},
    {"type": "label", "class_name": "outdoor"},
]


def say(scene: Scene, method: str, path: str, status: int, **options: Any) -> dict[str, Any]:
    """Send a request about the collection as its owner, and return the answer."""
    answer = scene["ana"].request(method, f"{ZOO}{path}", **options)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def upload(scene: Scene, files: dict[str, bytes]) -> str:
    started = say(scene, "POST", "/uploads", 201, json={})["id"]
    for path, data in files.items():
        headers = {"X-Content-SHA256": hashlib.sha256(data).hexdigest()}
        say(scene, "PUT", f"/uploads/{started}/files/{path}", 200, content=data, headers=headers)
    version: str = say(scene, "POST", f"/uploads/{started}/commit", 200, json={})["version"]
    return version


def make_zoo(scene: Scene) -> None:
    """Make a collection over HTTP, with the version `v1` and the training job 41."""
    say(scene, "POST", "/collection", 201, json={})
    upload(scene, {"cat.png": CAT, "dog.png": DOG})
    say(scene, "PUT", "/annotations/cat.png", 200, json={"annotations": [BOX]})
    say(scene, "POST", "/versions", 201, json={"name": "v1"})
    job = {"task_type": "detection", "model_name": "yolo", "job_id": "41"}
    say(scene, "POST", "/training-jobs", 201, json=job)


def test_from_the_first_upload_to_the_erasure_of_an_image(scene: Scene) -> None:
    make_zoo(scene)
    collection = wd.collection("acme/zoo", store=scene.store)
    job = say(scene, "GET", "/training-jobs/41", 200)
    assert job["snapshot_id"] == "training-job-41"
    addresses = {"WARP_STORE": "warp+http://127.0.0.1", "S3_ENDPOINT": "http://127.0.0.1/s3", "BUCKET_NAME": "acme"}
    assert job["environment"] == dict(collection.job("41").environment) | addresses  # and no path of the store
    assert job["environment"]["ANNOTATIONS_PATH"] == "datasets/acme/zoo/snapshots/training-job-41.json"
    assert say(scene, "GET", "/versions/HEAD/state", 200)["status"] == "labeled"

    removed = say(scene, "DELETE", "/images/cat.png", 200)
    assert (removed["status"], removed["version"]) == ("removed_from_head", collection.head.version)
    assert say(scene, "GET", "/versions/v1/state", 200)["status"] == "valid"
    assert scene["ana"].get(f"{ZOO}/images/cat.png", params={"ref": "v1"}).content == CAT

    asked = say(scene, "DELETE", "/images/cat.png", 409, params={"purge": True})
    impact = asked["impact"]
    assert asked["code"] == "confirmation_required"
    assert {one["label"] for one in impact["affected_snapshots"]} == {"v1", "training-job-41"}
    assert (impact["affected_jobs"], impact["options"]) == (["41"], ["mark_broken", "auto_repair", "cancel"])
    assert say(scene, "GET", "/images/cat.png/impact", 200) == impact

    decided = {"purge": True, "action": "auto_repair", "token": impact["impact_token"], "reason": "request 12"}
    assert say(scene, "DELETE", "/images/cat.png", 200, params=decided | {"action": "cancel"})["status"] == "cancelled"
    upload(scene, {"bird.png": BIRD})
    assert say(scene, "DELETE", "/images/cat.png", 409, params=decided)["code"] == "impact_changed"
    decided["token"] = say(scene, "GET", "/images/cat.png/impact", 200)["impact_token"]
    done = say(scene, "DELETE", "/images/cat.png", 200, params=decided)
    again = say(scene, "DELETE", "/images/cat.png", 200, params=decided)
    receipt = done["receipt"]
    assert again["receipt"] == receipt
    assert receipt["hashes"] == [hashlib.sha256(CAT).hexdigest()]
    assert (receipt["author"], receipt["reason"], receipt["is_clean"]) == ("ana", "request 12", True)
    assert (receipt["successors"], receipt["jobs"], receipt["remaining_keys"]) == (["v1-r1"], ["41"], [])

    state = say(scene, "GET", "/versions/v1/state", 200)
    assert (state["status"], state["repaired_by"], state["missing_images"]) == ("repaired_by", "v1-r1", ["cat.png"])
    assert say(scene, "GET", "/training-jobs/41", 200)["repaired_by"] == "v1-r1"
    assert scene["ana"].get(f"{ZOO}/images/cat.png", params={"ref": "v1"}).status_code >= 400
    actions = [one["action"] for one in scene["root"].get(f"{API}/audit").json()["entries"]]
    assert sorted(set(actions)) == [
        "annotate",
        "commit-upload",
        "create-collection",
        "create-version",
        "purge-image",
        "remove-image",
        "start-training",
    ]


def test_versions_are_those_of_the_library(local: Scene) -> None:
    make_zoo(local)
    collection = wd.collection("acme/zoo", store=local.store)
    first = say(local, "GET", "/versions", 200, params={"limit": 1})
    rest = say(local, "GET", "/versions", 200, params={"cursor": first["next_cursor"]})
    listed = [(one["name"], one["version"], one["status"]) for one in first["versions"] + rest["versions"]]
    assert listed == [(one.name, one.version, one.state.status) for one in collection.versions()]
    assert rest["next_cursor"] is None
    assert say(local, "GET", "/versions", 422, params={"cursor": "none"})["code"] == "token_mismatch"
    upload(local, {"bird.png": BIRD})
    assert say(local, "POST", "/versions", 409, json={"name": "v1"})["code"] == "already_exists"
    assert say(local, "POST", "/versions", 422, json={"name": "HEAD"})["code"] == "invalid_name"
    found = say(local, "GET", "/compare", 200, params={"from": "v1"})
    assert (found["added"], found["images"], found["classes"]) == (["bird.png"], [2, 3], {"cat": [1, 1]})
    counted = say(local, "GET", "/collection-stats", 200, params={"ref": "v1"})
    assert (counted["images"], counted["logical_bytes"]) == (2, len(CAT) + len(DOG))
    assert counted["classes"][0] | {"images_by_split": {}} == {
        "class_name": "cat",
        "annotations": 1,
        "images": 1,
        "by_kind": {"box": 1},
        "images_by_split": {},
    }


def test_a_training_job_is_started_and_ended_once(local: Scene) -> None:
    make_zoo(local)
    body, key = {"task_type": "detection", "model_name": "yolo"}, {"Idempotency-Key": "k"}
    made = say(local, "POST", "/training-jobs", 201, json=body, headers=key)
    assert say(local, "POST", "/training-jobs", 201, json=body, headers=key) == made
    assert len(say(local, "GET", "/training-jobs", 200)["training_jobs"]) == 2
    ended = say(local, "POST", "/training-jobs/41/end", 200, json={"status": "failed", "note": "no memory"})
    assert ended["status"] == "failed"
    assert say(local, "POST", "/training-jobs/41/end", 409, json={"status": "completed"})["code"] == "conflict"
    assert say(local, "GET", "/training-jobs/none", 404)["code"] == "not_found"


def test_annotations_of_every_kind_come_back(local: Scene) -> None:
    make_zoo(local)
    assert say(local, "PUT", "/annotations/dog.png", 200, json={"annotations": SHAPES})["annotations"] == SHAPES
    assert say(local, "GET", "/annotations", 200, params={"image": "dog.png"})["annotations"] == SHAPES
    assert say(local, "GET", "/annotations", 200, params={"image": "dog.png", "ref": "v1"})["annotations"] == []
    document = say(local, "GET", "/platform-format/annotations.json", 200)
    assert document == wd.collection("acme/zoo", store=local.store).annotations_document()
    named = [{key: one[key] for key in one if not key.endswith("id")} for one in document["annotations"]]
    assert named == [BOX, *SHAPES]
    assert say(local, "GET", "/platform-format/meta.json", 200, params={"ref": "v1"})["class_names"] == ["cat"]
    assert say(local, "PUT", "/annotations/dog.png", 200, json={"annotations": []})["annotations"] == []


@pytest.mark.parametrize(
    "changed",
    [
        {"bbox": [1, 2, -3, 4]},
        {"bbox": [1, 2, 3]},
        {"bbox": [1, 2, 3, 10**400]},
        {"type": "circle"},
        {"class_name": ""},
        {"note": "unknown key"},
        {"attributes": {"far": 2**60}},
        {"type": "mask", "bbox": None},
    ],
)
def test_annotations_that_cannot_work_are_refused(local: Scene, changed: dict[str, Any]) -> None:
    say(local, "POST", "/collection", 201, json={})
    upload(local, {"cat.png": CAT})
    before = wd.collection("acme/zoo", store=local.store).head.version
    say(local, "PUT", "/annotations/cat.png", 422, json={"annotations": [BOX | changed]})
    assert wd.collection("acme/zoo", store=local.store).head.version == before


def test_each_role_changes_what_it_may(local: Scene) -> None:
    make_zoo(local)
    answers = {}
    for role in (Role.VIEWER, Role.LABELER, Role.MAINTAINER):
        set_role(local.service, local.users["vera"], Place("acme", "zoo"), role)
        vera = local["vera"]
        answers[role.value] = [
            vera.get(f"{ZOO}/versions").status_code,
            vera.put(f"{ZOO}/annotations/cat.png", json={"annotations": [BOX]}).status_code,
            vera.post(f"{ZOO}/versions", json={"name": f"by-{role.value}"}).status_code,
            vera.delete(f"{ZOO}/images/cat.png", params={"purge": True}).status_code,
        ]
    assert answers == {
        "viewer": [200, 403, 403, 403],
        "labeler": [200, 200, 403, 403],
        "maintainer": [200, 200, 201, 409],
    }


def test_other_datasets_are_not_collections(local: Scene) -> None:
    for path in ("versions", "collection-stats", "training-jobs", "platform-format/meta.json"):
        answer = local["ana"].get(f"{API}/datasets/acme/pets/{path}")
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_input")
        assert re.search("is not a collection", answer.json()["detail"])
    assert local["ana"].delete(f"{API}/datasets/acme/pets/images/cats/1.png").status_code == 422
