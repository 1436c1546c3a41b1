"""If this fails, replicas that share a store and a database lose a write, or fail under each other's load."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

import warpdata as wd
from tests.collections.scenes import png
from tests.server.conftest import Scene
from tests.server.postgresql import new_database
from warpdata.server import Scope, create_app, create_user, find_tampering, first_user, open_service
from warpdata.server.database import AuditRow, JobRow
from warpdata.server.jobs import JobWorker

API = "/api/v1"
ZOO = f"{API}/datasets/acme/zoo"


@contextmanager
def replicas(scene: Scene, url: str, count: int) -> Iterator[list[TestClient]]:
    """Yield clients of so many services, each with a connection pool of its own, over one store and database."""
    headers = {"Authorization": f"Bearer {scene.token('ana')}"}
    with ExitStack() as stack:
        services = [stack.enter_context(open_service(wd.connect(scene.store), url)) for _ in range(count)]
        clients = [TestClient(create_app(one), base_url="http://127.0.0.1", headers=headers) for one in services]
        for client in clients:  # the routes are built by the first request, which is not for several threads
            assert client.get(f"{API}/nothing").status_code == 404
        yield clients


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_writers_of_replicas_lose_nothing(scene: Scene, database_url: str, count: int) -> None:
    """Each replica changes the same collection; heads, names, jobs and the audit log are shared."""
    scene["ana"].post(f"{ZOO}/collection", json={}).raise_for_status()

    def work(numbered: tuple[int, TestClient]) -> list[int]:
        number, client = numbered
        upload = client.post(f"{API}/datasets/acme/zoo/uploads", json={"key": f"u{number}"}).json()["id"]
        base = f"{ZOO}/uploads/{upload}"
        data = png(number)
        sent = client.put(
            f"{base}/files/{number}.png", content=data, headers={"X-Content-SHA256": hashlib.sha256(data).hexdigest()}
        )
        statuses = [sent.status_code, client.post(f"{base}/commit", json={}).status_code]
        statuses.append(client.post(f"{API}/datasets/acme/pets/labels", json={"name": f"v{number}"}).status_code)
        statuses.append(client.post(f"{ZOO}/jobs", json={"kind": "integrity"}).status_code)
        return statuses

    with replicas(scene, database_url, count) as clients, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, enumerate(clients * (8 // count))))
    assert found == [[200, 200, 201, 202]] * 8
    collection = wd.collection("acme/zoo", store=scene.store)
    assert {member.path for member in collection.head.artifact("images").members()} == {f"{at}.png" for at in range(8)}
    assert find_tampering(scene.service) is None
    with scene.service.database.read() as db:
        actions = [row.action for row in db.scalars(select(AuditRow))]
    assert actions.count("commit-upload") == actions.count("create-label") == actions.count("start-integrity") == 8


def test_workers_of_several_processes_share_the_jobs(scene: Scene, database_url: str) -> None:
    """No job runs twice, however many workers claim at the same moment."""
    ids = [scene["ana"].post(f"{API}/datasets/acme/pets/jobs", json={"kind": "verify"}).json()["id"] for _ in range(12)]
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        services = [stack.enter_context(open_service(wd.connect(scene.store), database_url)) for _ in range(6)]
        workers = [JobWorker(one) for one in services]

        def drain(worker: JobWorker) -> int:
            count = 0
            while worker.run_next():
                count += 1
            return count

        assert sum(pool.map(drain, workers)) == 12
    with scene.service.database.read() as db:
        rows = {row.id: row for row in db.scalars(select(JobRow))}
    assert [(rows[one].state, rows[one].attempts) for one in ids] == [("done", 1)] * 12


def test_fifty_writers_on_sqlite(local: Scene, tmp_path: Path) -> None:
    """Two processes of 25 threads, as far as the database can tell: a pool of connections each."""
    url = f"sqlite:///{tmp_path}/local.db"

    def write(numbered: tuple[int, TestClient]) -> int:
        number, client = numbered
        return client.post(f"{API}/datasets/acme/pets/labels", json={"name": f"w{number}"}).status_code

    with replicas(local, url, 2) as clients, ThreadPoolExecutor(50) as pool:
        found = list(pool.map(write, enumerate(clients * 25)))
    assert found == [201] * 50
    assert find_tampering(local.service) is None


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_processes_behind_one_port_survive_kills(
    make_scene: Callable[..., Scene], postgresql: str, tmp_path: Path
) -> None:
    """Eight processes on a real PostgreSQL answer while some of them are killed. What was acknowledged is there."""
    url = new_database(postgresql)
    scene = make_scene(url)
    token = scene.token("ana", Scope.WRITE)
    command = [sys.executable, "-m", "warpdata.cli", "serve", "--workers", "8", "--port", "0", "--json"]
    command += ["--database", url, "--store", scene.store, "--log-format", "json"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            assert process.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                text += process.stdout.readline().decode()
            address = json.loads(text)["url"]
            made, lost = _write_under_kills(process.pid, address, token)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    names = {label.name for label in wd.connect(scene.store).catalog.labels("acme/pets")}
    assert made <= names
    assert len(made) > 50
    assert lost < 40
    assert find_tampering(scene.service) is None


def _write_under_kills(parent: int, address: str, token: str) -> tuple[set[str], int]:
    """Create labels from eight threads while children die. Return the names that were acknowledged."""
    made: set[str] = set()
    lost = 0

    def write(name: str) -> Any:
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=30) as client:
            try:
                answer = client.post(f"{API}/datasets/acme/pets/labels", json={"name": name})
            except httpx.HTTPError:
                return None  # its process was killed
            assert answer.status_code in (201, 409), answer.text
            return name if answer.status_code == 201 else None

    with ThreadPoolExecutor(8) as pool:
        for turn in range(4):
            futures = [pool.submit(write, f"t{turn}-{at}") for at in range(25)]
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            os.kill(int(children[turn % len(children)]), signal.SIGKILL)
            for future in futures:
                name = future.result()
                if name is None:
                    lost += 1
                else:
                    made.add(name)
    return made, lost


def test_processes_that_start_a_new_service_agree_on_its_first_user(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look before either has created the user."""
    with open_service(wd.connect(str(tmp_path / "store")), database_url) as service:
        made: list[Any] = []

        def late(*given: Any, **named: Any) -> Any:
            made.append(create_user(*given, **named))
            return create_user(*given, **named)

        monkeypatch.setattr("warpdata.server.serving.create_user", late)
        assert first_user(service).id == made[0].id
