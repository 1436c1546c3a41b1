"""A service over a small store, with SQLite and with PostgreSQL, and clients of several users."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

import warpdata as wd
from tests.server.postgresql import new_database, running_postgresql
from tests.server.robots import publish_robots
from warpdata.server import (
    NewToken,
    Place,
    Role,
    Scope,
    Service,
    ServiceOptions,
    create_app,
    create_token,
    create_user,
    open_service,
    set_role,
    synchronize,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL of this machine, on a free loopback port, without its database."""
    with running_postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/service.db"
    return new_database(request.getfixturevalue("postgresql"))


@dataclass
class Scene:
    """A service over a store with `acme/pets` and `rival/secret`, and clients by user."""

    service: Service
    store: str
    clients: dict[str, TestClient] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)

    def token(self, user: str, scope: Scope = Scope.MANAGE, reach: Place | None = None) -> str:
        return create_token(self.service, self.users[user], NewToken("test", scope, 30, reach)).secret

    def client(self, secret: str | None) -> TestClient:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        return TestClient(self.app, base_url="http://127.0.0.1", headers=headers, follow_redirects=False)

    @cached_property
    def app(self) -> FastAPI:
        """The application. Making it costs more than most tests, so all clients share it."""
        return create_app(self.service)

    def __getitem__(self, user: str) -> TestClient:
        if user not in self.clients:
            self.clients[user] = self.client(self.token(user))
        return self.clients[user]


def publish(store: str, dataset_id: str, rows: int = 10) -> None:
    """Publish a table whose column `path` refers to images."""
    files = {f"cats/{at}.png": PNG + bytes([at]) for at in range(rows)}
    table = pa.table(
        {
            "path": list(files),
            "label": ["cat" if at % 2 else "dog" for at in range(rows)],
            "score": [float("nan") if at == 3 else at / 2 for at in range(rows)],
            "number": list(range(rows)),
        }
    )
    builder = wd.DatasetBuilder(dataset_id, store).add_table("main", table)
    builder.add_artifact("images", files, kind="files").bind("main", "path", "images", "image").publish(author="ana")


@pytest.fixture
def make_scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    """Returns a function that makes a scene with a database."""
    opened: list[AbstractContextManager[Service]] = []

    def make(database_url: str, options: ServiceOptions | None = None) -> Scene:
        store = str(tmp_path / "store")
        if not opened:
            publish(store, "acme/pets")
            publish(store, "rival/secret", 3)
        context = open_service(wd.connect(store), database_url, options)
        opened.append(context)
        service = context.__enter__()
        scene = Scene(service, store)
        for name, is_admin in (("root", True), ("ana", False), ("vera", False), ("rita", False)):
            scene.users[name] = create_user(service, name, is_admin=is_admin).id
        for name, workspace, role in (
            ("ana", "acme", Role.OWNER),
            ("vera", "acme", Role.VIEWER),
            ("rita", "rival", Role.OWNER),
        ):
            set_role(service, scene.users[name], Place(workspace), role)
        synchronize(service)
        return scene

    yield make
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture
def scene(make_scene: Callable[..., Scene], database_url: str) -> Scene:
    """The service with each kind of database. `ana` owns acme, `vera` reads it, `rita` owns rival, `root` all."""
    return make_scene(database_url)


@pytest.fixture(scope="session")
def robot_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `acme/robots`, published once."""
    store = tmp_path_factory.mktemp("robots") / "store"
    publish_robots(str(store))
    return store


@pytest.fixture
def robots(local: Scene, robot_store: Path) -> Scene:
    """The service over a copy of the store with `acme/robots` too."""
    shutil.copytree(robot_store, local.store, dirs_exist_ok=True)
    synchronize(local.service)
    return local


@pytest.fixture
def local(make_scene: Callable[..., Scene], tmp_path: Path) -> Scene:
    """The service with SQLite alone, for what does not depend on the database."""
    return make_scene(f"sqlite:///{tmp_path}/local.db")
