"""If this fails, damaged bytes stay damaged although a copy exists, or a schedule starts nothing or too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import warpdata as wd
from tests.collections.scenes import CAT, DOG
from tests.server.conftest import Scene
from warpdata.primitives.hashing import sha256_hex
from warpdata.server import Service, ServiceOptions
from warpdata.server.jobs import JobWorker
from warpdata.server.jobs.schedules import ensure_daily_scrub, start_due_jobs

API = "/api/v1"
ZOO = f"{API}/datasets/acme/zoo"


def at(scene: Scene, seconds: float) -> Service:
    later = scene.service.session.clock() + timedelta(seconds=seconds)
    return replace(scene.service, session=replace(scene.service.session, clock=lambda: later))


def jobs(scene: Scene) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scene["root"].get(f"{API}/jobs").json()["jobs"]
    return found


def damage(scene: Scene, data: bytes, put: bytes | None) -> Path:
    (path,) = [one for one in Path(scene.store).rglob(f"*{sha256_hex(data)}*") if one.is_file()]
    path.chmod(0o644)
    path.unlink() if put is None else path.write_bytes(put)
    return path


def test_a_scrub_heals_before_it_marks(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    """A mirror has one of two damaged files: only a version with the other one is broken."""
    mirror = str(tmp_path / "mirror")
    scene = make_scene(f"sqlite:///{tmp_path}/s.db", ServiceOptions(mirrors=(mirror,)))
    collection = wd.collection("acme/zoo", store=scene.store)
    collection.add("cat.png", CAT)
    collection.create_version("v1")
    wd.copy("acme/zoo", mirror, store=scene.store)
    collection.add("dog.png", DOG)
    collection.create_version("v2")
    damage(scene, CAT, b"y" * len(CAT))
    damage(scene, DOG, None)
    ensure_daily_scrub(scene.service)
    ensure_daily_scrub(scene.service)
    assert start_due_jobs(scene.service) == 0
    assert start_due_jobs(at(scene, 25 * 3600)) == 1
    assert start_due_jobs(at(scene, 50 * 3600)) == 0, "the first scrub has not ended"
    assert JobWorker(scene.service).run_next()
    (job,) = jobs(scene)
    assert (job["state"], job["result"]["repaired"]) == ("done", 1), job
    assert job["result"]["problems"] == 1
    states = {one.name: str(one.state) for one in collection.versions()}
    assert states == {"v1": "valid", "v2": "broken"}
    assert collection.read("cat.png", "v1") == CAT
    assert start_due_jobs(at(scene, 80 * 3600)) == 1


def test_a_purged_file_does_not_come_back(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    mirror = str(tmp_path / "mirror")
    scene = make_scene(f"sqlite:///{tmp_path}/s.db", ServiceOptions(mirrors=(mirror,)))
    collection = wd.collection("acme/zoo", store=scene.store)
    collection.add("cat.png", CAT)
    collection.create_version("v1")
    wd.copy("acme/zoo", mirror, store=scene.store)
    collection.purge("cat.png", "mark_broken", token=collection.impact("cat.png").token)
    job = scene["ana"].post(f"{ZOO}/jobs", json={"kind": "scrub"}).json()
    assert JobWorker(scene.service).run_next()
    done = scene["ana"].get(f"{API}/jobs/{job['id']}").json()
    assert (done["state"], done["result"]["repaired"], done["result"]["problems"]) == ("done", 0, 0), done
    assert not [one for one in Path(scene.store).rglob(f"*{sha256_hex(CAT)}") if one.is_file()]


def test_garbage_is_previewed_and_collected(scene: Scene) -> None:
    session = wd.connect(scene.store)
    for number in range(3):
        wd.DatasetBuilder("acme/waste", session).add_table("main", {"x": [number] * 1000}).publish(replace=True)
    assert scene["ana"].post(f"{API}/jobs", json={"kind": "gc"}).status_code == 404
    scene["root"].post(f"{API}/jobs", json={"kind": "gc", "keep": "last 1"}).raise_for_status()
    assert JobWorker(scene.service).run_next()
    preview = jobs(scene)[0]
    assert preview["state"] == "done", preview
    assert preview["result"]["garbage_bytes"] > 0
    assert preview["result"]["deleted_count"] == 0
    assert scene["root"].post(f"{API}/jobs", json={"kind": "gc", "keep": "nonsense"}).status_code == 422
    assert len(list(session.writer.list_objects("blobs"))) > 0


def test_schedules_belong_to_their_dataset(scene: Scene) -> None:
    ana = scene["ana"]
    ana.post(f"{ZOO}/collection", json={}).raise_for_status()
    made = ana.post(f"{ZOO}/schedules", json={"kind": "integrity", "every_s": 300})
    assert made.status_code == 201, made.text
    one = f"{API}/schedules/{made.json()['id']}"
    assert scene["rita"].get(f"{API}/schedules").json()["schedules"] == []
    for client, status in (("rita", 404), ("vera", 403)):
        assert scene[client].patch(one, json={"is_active": False}).status_code == status
        assert scene[client].delete(one).status_code == status
    assert start_due_jobs(at(scene, 301)) == 1
    assert JobWorker(scene.service).run_next()
    (job,) = jobs(scene)
    assert (job["kind"], job["state"], job["dataset"]) == ("integrity", "done", "zoo"), job
    assert ana.patch(one, json={"is_active": False}).json()["is_active"] is False
    assert start_due_jobs(at(scene, 9000)) == 0
    assert ana.delete(one).status_code == 204
    assert ana.get(f"{API}/schedules").json()["schedules"] == []
    assert ana.post(f"{API}/schedules", json={"kind": "scrub"}).status_code == 404
    assert scene["root"].post(f"{API}/schedules", json={"kind": "scrub"}).status_code == 201
    assert ana.post(f"{ZOO}/schedules", json={"kind": "integrity", "every_s": 1}).status_code == 422


@pytest.mark.parametrize("put", [b"", b"other bytes"])
def test_another_key_of_the_store_holds_the_bytes(local: Scene, put: bytes) -> None:
    """After a collection, content that is needed again has a second key."""
    collection = wd.collection("acme/zoo", store=local.store)
    collection.add("cat.png", CAT)
    collection.create_version("v1")
    path = damage(local, CAT, put)
    path.with_name(f"{path.name}.0badcafe").write_bytes(CAT)
    local["ana"].post(f"{ZOO}/jobs", json={"kind": "scrub"}).raise_for_status()
    assert JobWorker(local.service).run_next()
    assert jobs(local)[0]["result"]["repaired"] == 1
    assert path.read_bytes() == CAT
