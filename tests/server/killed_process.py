"""A process that is killed with SIGKILL at its n-th step, and one that goes on after it.

A step is a write to the store or a commit of the database. Children are forked from a process that has imported
everything and opened nothing, so a kill costs no start of Python. `python -m tests.server.killed_process SCENE ROOT
STRIDE` kills at every `STRIDE`-th step, and prints how often.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import tarfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401 - before the forks
import pyarrow as pa  # noqa: F401
from sqlalchemy import event, select, update
from starlette.testclient import TestClient

import warpdata as wd
from tests.collections.scenes import BIRD, CAT, DOG, two_versions
from warpdata.server import NewToken, Scope, Service, create_app, create_token, create_user, find_user, open_service
from warpdata.server.database import JobRow
from warpdata.server.jobs import JobWorker

API = "/api/v1/datasets/a/pets"
WRITES = ("create", "create_file", "replace", "replace_file", "delete", "delete_many")
Act = Callable[[Service, Path], None]


@contextmanager
def opened(root: Path) -> Iterator[Service]:
    with open_service(wd.connect(str(root / "store")), f"sqlite:///{root}/service.db") as service:
        yield service


def client(service: Service) -> TestClient:
    user = find_user(service, "ana")
    secret = create_token(service, user.id, NewToken("t", Scope.MANAGE, 1, None)).secret
    return TestClient(create_app(service), base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {secret}"})


def drain(service: Service) -> None:
    """Run all jobs, also those of the process that was killed."""
    with service.database.write() as db:
        db.execute(update(JobRow).where(JobRow.state == "running").values(heartbeat="2000-01-01T00:00:00.000Z"))
    worker = JobWorker(service)
    while worker.run_next():
        pass


def jobs(service: Service, kind: str) -> list[JobRow]:
    with service.database.read() as db:
        return list(db.scalars(select(JobRow).where(JobRow.kind == kind)))


def prepare(root: Path) -> None:
    two_versions(wd.connect(str(root / "store")))
    with opened(root) as service:
        create_user(service, "ana", is_admin=True)


def files_of(root: Path, content: bytes) -> list[Path]:
    return [path for path in (root / "store").rglob("*") if path.is_file() and content in path.read_bytes()]


def start_purge(service: Service, root: Path) -> None:
    ana = client(service)
    token = ana.get(f"{API}/images/cat.png/impact").json()["impact_token"]
    body = {"path": "cat.png", "action": "auto_repair", "token": token, "reason": "request 12"}
    answer = ana.post(f"{API}/purges", json=body)
    assert answer.status_code == 202, answer.text
    (root / "acknowledged").touch()
    JobWorker(service).run_next()


def finish_purge(service: Service, root: Path) -> None:
    drain(service)
    if not jobs(service, "purge"):
        assert not (root / "acknowledged").exists(), "an acknowledged job was lost"
        start_purge(service, root)
    assert [job.state for job in jobs(service, "purge")] == ["done"], [job.error for job in jobs(service, "purge")]
    (purge,) = client(service).get(f"{API}/purges").json()["purges"]
    assert (purge["status"], purge["receipt"]["is_clean"], purge["reason"]) == ("finished", True, "request 12")
    assert files_of(root, CAT) == []
    collection = wd.collection("a/pets", store=str(root / "store"))
    states = {one.name: str(one.state) for one in collection.versions()}
    assert (states["v1"], states["v2"], states["v1-r1"]) == ("repaired_by:v1-r1", "repaired_by:v2-r1", "valid")
    assert collection.read("dog.png") == collection.read("dog.png", "v1") == DOG


def prepare_repair(root: Path) -> None:
    prepare(root)
    (lost,) = files_of(root, CAT)
    lost.chmod(0o644)
    lost.unlink()
    found = wd.collection("a/pets", store=str(root / "store")).check_integrity()
    assert not found.is_valid


def start_repair(service: Service, root: Path) -> None:
    assert client(service).post(f"{API}/jobs", json={"kind": "repair"}).status_code == 202
    (root / "acknowledged").touch()
    JobWorker(service).run_next()


def finish_repair(service: Service, root: Path) -> None:
    drain(service)
    if not jobs(service, "repair"):
        assert not (root / "acknowledged").exists(), "an acknowledged job was lost"
        start_repair(service, root)
    assert [job.state for job in jobs(service, "repair")] == ["done"], [job.error for job in jobs(service, "repair")]
    collection = wd.collection("a/pets", store=str(root / "store"))
    states = {one.name: str(one.state) for one in collection.versions()}
    assert (states["v1"], states["v2"], states["v1-r1"]) == ("repaired_by:v1-r1", "repaired_by:v2-r1", "valid")
    assert sorted(states) == ["training-job-7", "v1", "v1-r1", "v2", "v2-r1"]
    files = {member.path for member in collection.head.artifact().members()}
    assert files == {"bird.png", "dog.png"}
    assert collection.check_integrity(["HEAD", "v1-r1", "v2-r1"]).is_valid


UPLOADED = {f"new/{name}.png": BIRD + name.encode() for name in "abcd"}


def send(service: Service, root: Path) -> None:
    """Upload and commit, going on where an earlier process was killed. Acknowledged receipts are noted."""
    ana, noted = client(service), root / "upload"
    if not noted.exists():
        noted.write_text(ana.post(f"{API}/uploads", json={}).json()["id"])
    base = f"{API}/uploads/{noted.read_text()}"
    there = {one["path"]: one["sha256"] for one in ana.get(base).json()["files"]}
    for receipt in (root / "receipts").read_text().splitlines() if (root / "receipts").exists() else []:
        path, digest = json.loads(receipt)
        assert there[path] == digest, "an acknowledged file was lost"
    for path, data in UPLOADED.items():
        if path not in there:
            digest = hashlib.sha256(data).hexdigest()
            answer = ana.put(f"{base}/files/{path}", content=data, headers={"X-Content-SHA256": digest})
            assert answer.status_code == 200, answer.text
            with (root / "receipts").open("a") as file:
                file.write(json.dumps([path, digest]) + "\n")
    answer = ana.post(f"{base}/commit", json={"message": "batch"})
    assert answer.status_code == 200, answer.text


def finish_upload(service: Service, root: Path) -> None:
    send(service, root)
    collection = wd.collection("a/pets", store=str(root / "store"))
    for path, data in UPLOADED.items():
        assert collection.read(path) == data
    messages = [entry.message for entry in collection.head.history()]
    assert messages.count("batch") == 1, messages
    assert not [path for path in (root / "store").rglob("service/uploads/*/*") if path.is_file()]


ARCHIVED = {f"many/{name}.png": DOG + name.encode() for name in "abc"}
LARGE = b"large" * 100
PART = 200


def tar_of(files: dict[str, bytes]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as out:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return body.getvalue()


def send_parts(service: Service, root: Path) -> None:
    """Send an archive and a file in parts, and commit them with labels. Goes on from what the service has."""
    ana, noted = client(service), root / "offset"
    base = f"{API}/uploads/{ana.post(f'{API}/uploads', json={'key': 'parts'}).json()['id']}"
    upload = ana.get(base).json()
    if upload["version"] is None:
        ana.post(f"{base}/archive", content=tar_of(ARCHIVED)).raise_for_status()
        names = {"filename": "large.bin", "sha256": hashlib.sha256(LARGE).hexdigest()}
        pairs = ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in names.items())
        begun = ana.post(f"{base}/partial", headers={"Upload-Length": str(len(LARGE)), "Upload-Metadata": pairs})
        url, offset = begun.headers["location"], int(begun.headers["upload-offset"])
        if not any(one["path"] == "large.bin" for one in upload["files"]):
            assert offset >= (int(noted.read_text()) if noted.exists() else 0), "acknowledged bytes were lost"
        kind = {"Content-Type": "application/offset+octet-stream"}
        while offset < len(LARGE):
            headers = {**kind, "Upload-Offset": str(offset)}
            answer = ana.patch(url, content=LARGE[offset : offset + PART], headers=headers)
            assert answer.status_code == 204, answer.text
            offset = int(answer.headers["upload-offset"])
            noted.write_text(str(offset))
    said = {"path": "many/a.png", "split": "val", "annotations": [{"type": "label", "class_name": "dog"}]}
    answer = ana.post(f"{base}/commit", json={"message": "parts", "images": [said], "remove": ["cat.png"]})
    assert answer.status_code == 200, answer.text


def finish_parts(service: Service, root: Path) -> None:
    send_parts(service, root)
    collection = wd.collection("a/pets", store=str(root / "store"))
    for path, data in {**ARCHIVED, "large.bin": LARGE}.items():
        assert collection.read(path) == data
    assert collection.annotations("many/a.png") == [wd.Label("dog")]
    assert "cat.png" not in collection.head.artifact("images")
    messages = [entry.message for entry in collection.head.history()]
    assert messages.count("parts") == 1, messages
    send_parts(service, root)
    assert not [path for path in (root / "store").rglob("service/uploads/*/*") if path.is_file()]


SCENES: dict[str, tuple[Callable[[Path], None], Act, Act]] = {
    "purge": (prepare, start_purge, finish_purge),
    "repair": (prepare_repair, start_repair, finish_repair),
    "upload": (prepare, send, finish_upload),
    "parts": (prepare, send_parts, finish_parts),
}


def count_steps(service: Service, kill_at: int | None) -> list[int]:
    """Count the steps of this process, and kill it at one of them."""
    steps = [0]

    def step() -> None:
        steps[0] += 1
        if steps[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    kind: Any = type(service.session.writer)
    for name in WRITES:
        setattr(kind, name, _counted(getattr(kind, name), step))
    event.listen(service.database.engine, "commit", lambda _: step())
    return steps


def _counted(method: Callable[..., Any], step: Callable[[], None]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        done = method(*given, **named)
        step()
        return done

    return call


def in_child(work: Callable[[], object]) -> int:
    """Run in a forked process, and return how it ended: 0, or the number of a signal, negative."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(name: str, root: Path, stride: int) -> int:
    make, act, finish = SCENES[name]
    prepared = root / "prepared"
    prepared.mkdir(parents=True)
    assert in_child(lambda: make(prepared)) == 0

    def fresh() -> Path:
        shutil.rmtree(root / "work", ignore_errors=True)
        shutil.copytree(prepared, root / "work")
        return root / "work"

    def run(work: Path, kill_at: int | None, counted: Path | None = None) -> None:
        with opened(work) as service:
            steps = count_steps(service, kill_at)
            act(service, work)
            if counted is not None:
                counted.write_text(str(steps[0]))

    def go_on(work: Path) -> None:
        with opened(work) as service:
            finish(service, work)

    work = fresh()
    assert in_child(lambda: run(work, None, root / "steps")) == 0
    assert in_child(lambda: go_on(work)) == 0
    kills = range(1, int((root / "steps").read_text()) + 1, stride)
    for at in kills:
        work = fresh()
        assert in_child(partial(run, work, at)) == -signal.SIGKILL, at
        assert in_child(partial(go_on, work)) == 0, f"not whole after a kill at step {at}"
    return len(kills)


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
