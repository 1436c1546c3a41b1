"""If this fails, work that the service has accepted is lost, or done twice."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

import warpdata as wd
from tests.server.conftest import Scene
from warpdata.errors import StoreUnavailableError
from warpdata.server.database import JobRow
from warpdata.server.jobs import KINDS, JobRun, JobWorker
from warpdata.server.jobs.queue import finish

API = "/api/v1"
PETS = f"{API}/datasets/acme/pets"


def start(scene: Scene, **headers: str) -> dict[str, Any]:
    answer = scene["ana"].post(f"{PETS}/jobs", json={"kind": "verify"}, headers=headers)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def state(scene: Scene, job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = scene["ana"].get(f"{API}/jobs/{job['id']}").json()
    return found


def test_a_job_runs_once(scene: Scene) -> None:
    job = start(scene)
    worker = JobWorker(scene.service)
    assert worker.run_next()
    assert not worker.run_next()
    done = state(scene, job)
    assert (done["state"], done["attempts"], done["result"]["problems"]) == ("done", 1, 0)
    events = [row["id"] for row in scene["ana"].get(f"{API}/jobs").json()["jobs"]]
    assert events == [job["id"]]


def test_damage_is_reported(local: Scene) -> None:
    dataset = wd.dataset("acme/pets", store=local.store)
    blob = dataset.artifact("images").shard_of("cats/1.png")
    path = next(Path(local.store).rglob(f"*{blob.hash}*"))
    path.chmod(0o644)
    path.write_bytes(b"x" * blob.byte_size)
    job = start(local)
    JobWorker(local.service).run_next()
    assert state(local, job)["result"]["problems"] > 0
    assert blob.hash in local["ana"].get(f"{API}/jobs/{job['id']}/log").json()["lines"][0]["text"]


def test_the_job_of_a_dead_worker_goes_on(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    job, dead = start(scene), JobWorker(scene.service)
    seen: list[Any] = []

    def dies(run: JobRun) -> dict[str, Any]:
        run.save({"at": 7})
        with scene.service.database.write() as db:  # half a minute passes without a heartbeat
            db.execute(update(JobRow).values(heartbeat="2000-01-01T00:00:00.000Z"))
        monkeypatch.setitem(KINDS, "verify", lives)
        assert JobWorker(scene.service).run_next()
        return {"by": "the dead"}

    def lives(run: JobRun) -> dict[str, Any]:
        seen.append(run.checkpoint)
        finish(scene.service, job["id"], dead._id, result={"by": "the dead"})  # it was only slow, and is ignored
        return {"by": "the living"}

    monkeypatch.setitem(KINDS, "verify", dies)
    assert dead.run_next()
    done = state(scene, job)
    assert (seen, done["result"], done["attempts"]) == ([{"at": 7}], {"by": "the living"}, 2)


def test_workers_share_a_queue(scene: Scene) -> None:
    jobs = [start(scene) for _ in range(6)]
    workers = [JobWorker(scene.service) for _ in range(3)]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(state(scene, job)["state"] != "done" for job in jobs):
        time.sleep(0.1)
    for worker in workers:
        worker.stop()
    assert [(one["state"], one["attempts"]) for one in (state(scene, job) for job in jobs)] == [("done", 1)] * 6


def test_a_job_is_cancelled(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = start(local)
    assert local["ana"].post(f"{API}/jobs/{waiting['id']}/cancel").json()["state"] == "cancelled"
    assert not JobWorker(local.service).run_next()
    running = start(local)

    def work(run: JobRun) -> dict[str, Any]:
        assert local["ana"].post(f"{API}/jobs/{running['id']}/cancel").status_code == 202
        run.save({})
        raise AssertionError("the job went on")

    monkeypatch.setitem(KINDS, "verify", work)
    JobWorker(local.service).run_next()
    assert state(local, running)["state"] == "cancelled"


def test_a_failed_job_says_why(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(run: JobRun) -> dict[str, Any]:
        raise StoreUnavailableError("the bucket is gone")

    monkeypatch.setitem(KINDS, "verify", fails)
    job = start(local)
    JobWorker(local.service).run_next()
    assert state(local, job)["error"]["code"] == "store_unavailable"


def test_a_repeated_request_starts_one_job(scene: Scene) -> None:
    first, again = (start(scene, **{"Idempotency-Key": "k1"}) for _ in range(2))
    assert first == again
    assert len(scene["ana"].get(f"{API}/jobs").json()["jobs"]) == 1
    other = scene["ana"].post(f"{PETS}/jobs", json={"kind": "verify", "ref": "main"}, headers={"Idempotency-Key": "k1"})
    assert other.status_code == 409
    assert start(scene, **{"Idempotency-Key": "k2"})["id"] != first["id"]


KILLED = """
import os, signal, sys
import warpdata as wd
from warpdata.server import open_service
from warpdata.server.jobs import KINDS, JobWorker

def dies(run):
    run.save({"at": 1})
    os.kill(os.getpid(), signal.SIGKILL)

KINDS["verify"] = dies
with open_service(wd.connect(sys.argv[1]), sys.argv[2]) as service:
    JobWorker(service).run_next()
"""


def test_kill_during_a_job(local: Scene, tmp_path: Path) -> None:
    job = start(local)
    url = f"sqlite:///{tmp_path}/local.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, local.store, url], check=False, timeout=100)
    assert killed.returncode == -signal.SIGKILL
    assert state(local, job)["state"] == "running"
    assert not JobWorker(local.service).run_next()  # its worker may still live
    with local.service.database.write() as db:
        db.execute(update(JobRow).values(heartbeat="2000-01-01T00:00:00.000Z"))
    assert JobWorker(local.service).run_next()
    assert (state(local, job)["state"], state(local, job)["attempts"]) == ("done", 2)


def upload(scene: Scene, dataset: str, files: dict[str, bytes]) -> str:
    base = f"{API}/datasets/{dataset}/uploads"
    upload_id: str = scene["ana"].post(base, json={}).json()["id"]
    for path, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        answer = scene["ana"].put(
            f"{base}/{upload_id}/files/{path}", content=data, headers={"X-Content-SHA256": digest}
        )
        assert answer.json() == {"path": path, "sha256": digest, "size_bytes": len(data)}, answer.text
    return f"{base}/{upload_id}"


def test_an_upload_is_one_commit(scene: Scene) -> None:
    files = {"new/a.png": b"a", "new/b.png": b"b" * 100_000, "c": b""}
    base = upload(scene, "acme/pets", files)
    before = scene["ana"].get(f"{PETS}/head").json()
    done = scene["ana"].post(f"{base}/commit", json={"message": "more"}).json()
    assert sorted(one["path"] for one in done["files"]) == sorted(files)
    for path, data in files.items():
        assert scene["ana"].get(f"{PETS}/images/{path}").content == data
    again = scene["ana"].post(f"{base}/commit", json={"message": "more"}).json()
    assert (
        again["version"] == done["version"] == scene["ana"].get(f"{PETS}/head").json()["version"] != before["version"]
    )
    commits = scene["ana"].get(f"{PETS}/commits").json()["commits"]
    assert (commits[0]["author"], commits[0]["message"]) == ("ana", "more")
    assert len(commits) == 2
    assert not [path for path in Path(scene.store).rglob("service/uploads/*/*") if path.is_file()]


def test_an_upload_makes_a_dataset(local: Scene) -> None:
    base = upload(local, "acme/fresh", {"a/1.png": b"1"})
    assert local["ana"].post(f"{base}/commit", json={}).status_code == 200
    assert local["ana"].get(f"{API}/datasets/acme/fresh/images/a/1.png").content == b"1"


def test_wrong_bytes_and_hostile_names_are_refused(local: Scene) -> None:
    base = upload(local, "acme/pets", {})
    for path, digest in (("a", "0" * 64), ("..%2fx", None), ("a%2f..%2fb", None), ("%2fabs", None), ("a%00b", None)):
        headers = {"X-Content-SHA256": digest or hashlib.sha256(b"x").hexdigest()}
        answer = local["ana"].put(f"{base}/files/{path}", content=b"x", headers=headers)
        assert answer.status_code in (404, 422), (path, answer.text)
    assert local["ana"].get(base).json()["files"] == []
    large = local["ana"].put(f"{base}/files/a", content=b"x", headers={"Content-Length": str(2**40)})
    assert large.status_code == 413
    assert local["ana"].post(f"{base}/commit", json={}).status_code == 422


def test_an_upload_survives_a_kill_before_its_commit_is_written(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dataset has the commit, and the database does not know it yet."""
    base = upload(local, "acme/pets", {"new/a.png": b"a"})

    def kill(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("warpdata.server.uploads.commit._mark_committed", kill)
        with pytest.raises(RuntimeError):
            local["ana"].post(f"{base}/commit", json={})
    head = local["ana"].get(f"{PETS}/head").json()["version"]
    assert local["ana"].post(f"{base}/commit", json={}).json()["version"] == head
    assert len(local["ana"].get(f"{PETS}/commits").json()["commits"]) == 2


def test_sql_reads_published_tables_only(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    query = 'SELECT label, count(*) AS n, max(score) AS s FROM "acme/pets" WHERE number > ? GROUP BY 1 ORDER BY 1'
    answer = local["vera"].post(f"{API}/sql", json={"query": query, "parameters": [2]})
    assert answer.json()["rows"] == [["cat", 4, "NaN"], ["dog", 3, 4.0]]
    for bad in ("SELECT * FROM read_csv('/etc/passwd')", "DROP TABLE x", "SELECT 1; SELECT 2", "COPY x TO '/tmp/x'"):
        assert local["vera"].post(f"{API}/sql", json={"query": bad}).status_code == 422
    monkeypatch.setattr("warpdata.server.sql_process._TIMEOUT_S", 0.01)
    slow = local["vera"].post(f"{API}/sql", json={"query": "SELECT 1"})
    assert (slow.status_code, slow.json()["code"]) == (422, "limit_exceeded")


@pytest.mark.skipif(not hasattr(os, "kill"), reason="signals of POSIX")
def test_a_stopped_worker_gives_its_job_back(local: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = JobWorker(local.service)

    def work(run: JobRun) -> dict[str, Any]:
        worker.stop()
        run.save({"at": 3})
        raise AssertionError("the worker went on")

    monkeypatch.setitem(KINDS, "verify", work)
    job = start(local)
    worker.run_next()
    assert (state(local, job)["state"], state(local, job)["attempts"]) == ("queued", 0)
