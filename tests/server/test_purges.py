"""If this fails, a purge or repair as a job loses its decision, or cannot be followed, stopped and finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.collections.scenes import CAT, DOG
from tests.server.conftest import Scene
from tests.server.test_collections import make_zoo, say
from warpdata.server.jobs import JobWorker
from warpdata.server.jobs.queue import log

JOBS = "/api/v1/jobs"


def decide(scene: Scene, action: str = "auto_repair") -> dict[str, Any]:
    token = say(scene, "GET", "/images/cat.png/impact", 200)["impact_token"]
    return {"path": "cat.png", "action": action, "token": token, "reason": "request 12"}


def job(scene: Scene, found: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = scene["ana"].get(f"{JOBS}/{found['id']}").json()
    return answer


def test_a_purge_is_a_job_with_a_receipt(scene: Scene) -> None:
    make_zoo(scene)
    body, key = decide(scene), {"Idempotency-Key": "p1"}
    started = say(scene, "POST", "/purges", 202, json=body, headers=key)
    assert say(scene, "POST", "/purges", 202, json=body, headers=key) == started
    assert say(scene, "GET", "/purges", 200)["purges"] == []
    assert JobWorker(scene.service).run_next()
    done = job(scene, started)
    assert (done["state"], done["result"]["is_clean"], done["done"]) == ("done", True, done["total"])
    lines = [line["text"] for line in scene["ana"].get(f"{JOBS}/{started['id']}/log").json()["lines"]]
    assert lines == [f"step {name}" for name in ("branches", "marks", "successors", "erasure", "receipt")]
    (purge,) = say(scene, "GET", "/purges", 200)["purges"]
    assert say(scene, "GET", f"/purges/{purge['purge_id']}", 200) == purge
    assert (purge["status"], purge["author"], purge["receipt"]["jobs"]) == ("finished", "ana", ["41"])
    assert not [path for path in Path(scene.store).rglob("*") if path.is_file() and CAT in path.read_bytes()]
    entry = scene["root"].get("/api/v1/audit").json()["entries"][0]
    assert (entry["action"], entry["actor"]) == ("purge-image", "ana")
    say(scene, "GET", "/purges/" + "0" * 36, 404)


def test_a_stale_token_starts_no_job(local: Scene) -> None:
    make_zoo(local)
    body = decide(local)
    say(local, "POST", "/versions", 201, json={"name": "v2"})
    assert say(local, "POST", "/purges", 409, json=body)["code"] == "impact_changed"
    assert local["ana"].get(JOBS).json()["jobs"] == []


def test_an_impact_that_changes_before_the_job_runs_fails_it(local: Scene) -> None:
    make_zoo(local)
    started = say(local, "POST", "/purges", 202, json=decide(local))
    say(local, "POST", "/versions", 201, json={"name": "v2"})
    JobWorker(local.service).run_next()
    assert job(local, started)["error"]["code"] == "impact_changed"
    assert say(local, "GET", "/purges", 200)["purges"] == []
    assert wd.collection("acme/zoo", store=local.store).read("cat.png") == CAT


def test_a_purge_that_was_cancelled_half_way_is_resumed(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    make_zoo(local)
    started = say(local, "POST", "/purges", 202, json=decide(local))

    def cancel_at(service: Any, job_id: str, text: str) -> None:
        log(service, job_id, text)
        if text == "step successors":
            assert local["ana"].post(f"{JOBS}/{job_id}/cancel").status_code == 202

    monkeypatch.setattr("warpdata.server.jobs.run._REPORT_S", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr("warpdata.server.jobs.run.log", cancel_at)
        JobWorker(local.service).run_next()
    assert job(local, started)["state"] == "cancelled"
    (purge,) = say(local, "GET", "/purges", 200)["purges"]
    assert (purge["status"], purge["receipt"]) == ("unfinished", None)
    assert local["ana"].post(f"{JOBS}/{started['id']}/resume").json()["state"] == "queued"
    JobWorker(local.service).run_next()
    assert job(local, started)["state"] == "done"
    assert local["ana"].post(f"{JOBS}/{started['id']}/resume").status_code == 409
    assert say(local, "GET", "/purges", 200)["purges"][0]["receipt"]["is_clean"]


def test_a_purge_that_was_cancelled_in_the_queue_changes_nothing(local: Scene) -> None:
    make_zoo(local)
    started = say(local, "POST", "/purges", 202, json=decide(local))
    local["ana"].post(f"{JOBS}/{started['id']}/cancel")
    assert not JobWorker(local.service).run_next()
    assert say(local, "GET", "/purges", 200)["purges"] == []
    assert say(local, "GET", "/images/cat.png/impact", 200)["in_head"]


def test_lost_files_are_found_and_repaired_by_jobs(local: Scene) -> None:
    make_zoo(local)
    lost = next(path for path in Path(local.store).rglob("*") if path.is_file() and path.read_bytes() == CAT)
    lost.chmod(0o644)
    lost.unlink()
    check = say(local, "POST", "/jobs", 202, json={"kind": "integrity"})
    repair = say(local, "POST", "/jobs", 202, json={"kind": "repair"})
    worker = JobWorker(local.service)
    assert worker.run_next()
    assert worker.run_next()
    found, done = job(local, check), job(local, repair)
    assert found["result"]["problems"] > 0
    assert done["result"]["successors"] == {"training-job-41": "v1-r1", "v1": "v1-r1"}, done
    assert say(local, "GET", "/versions/v1/state", 200)["status"] == "repaired_by"
    collection = wd.collection("acme/zoo", store=local.store)
    assert [member.path for member in collection.head.artifact().members()] == ["dog.png"]
    assert collection.read("dog.png", "v1-r1") == DOG


def test_annotations_and_names_change_only_as_seen(local: Scene) -> None:
    make_zoo(local)
    seen = local["ana"].get("/api/v1/datasets/acme/zoo/annotations", params={"image": "cat.png"}).headers["etag"]
    body = {"annotations": [{"type": "label", "class_name": "dog"}]}
    refused = say(local, "PUT", "/annotations/cat.png", 409, json=body, headers={"If-Match": '"' + "0" * 64 + '"'})
    assert refused["code"] == "conflict"
    say(local, "PUT", "/annotations/cat.png", 200, json=body, headers={"If-Match": seen})
    say(local, "PUT", "/annotations/cat.png", 409, json=body, headers={"If-Match": seen})
    ref = local["ana"].get("/api/v1/datasets/acme/zoo/refs/v1")
    assert (ref.json()["kind"], ref.headers["etag"]) == ("label", f'"{ref.json()["version"]}"')
    say(local, "DELETE", "/refs/v1", 409, headers={"If-Match": '"' + "0" * 64 + '"'})
    url = "/api/v1/datasets/acme/zoo/refs/v1"
    assert local["ana"].delete(url, headers={"If-Match": ref.headers["etag"]}).status_code == 204
