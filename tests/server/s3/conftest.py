"""A gateway on a loopback port over a small store, and clients of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
import uvicorn
from botocore.config import Config

import warpdata as wd
from warpdata.server.s3 import BucketFiles, KeyRight, KeyRing, KnownKey, S3Gateway, S3Grant, parse_grant
from warpdata.session import Session

JPEG = bytes.fromhex("ffd8ffc0001108") + (48).to_bytes(2, "big") + (64).to_bytes(2, "big") + bytes(12)
"""The header of a JPEG of 64 × 48 pixels."""
SECRET = "s" * 40


class Keys:
    """Access keys of a test by name, each with its grant."""

    def __init__(self) -> None:
        self.grants: dict[str, S3Grant] = {}

    def make(self, place: str, right: str = "ro") -> str:
        access_key = f"WDTEST{len(self.grants):014}"
        self.grants[access_key] = parse_grant(place, KeyRight(right))
        return access_key

    def find(self, access_key: str, ip: str) -> KnownKey | None:
        grant = self.grants.get(access_key)
        if grant is None:
            return None
        return KnownKey(access_key, SECRET, grant, "ana", ip, lambda _right, _dataset: True)

    recall = find


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_listening = threading.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.is_listening.set()


@contextmanager
def listening(app: Any, **options: Any) -> Iterator[str]:
    """Yield the address of an application while it answers."""
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off", **options)
    server = _Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.is_listening.wait(30)
        yield f"http{'s' if config.is_ssl else ''}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Gateway:
    """A running gateway: its store, its keys and its endpoint."""

    session: Session
    endpoint: str
    keys: Keys
    gateway: S3Gateway
    clients: list[Any] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.endpoint.split(":")[2].partition("/")[0])

    def client(self, place: str = "acme", right: str = "ro", access_key: str | None = None, **config: Any) -> Any:
        """Return a client of boto3 with a key of its own."""
        made = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=access_key or self.keys.make(place, right),
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}, **{"signature_version": "s3v4", **config}),
        )
        self.clients.append(made)
        return made


def fill(store: str) -> None:
    """Make a collection with two versions, a packed artifact, tables, and a dataset of another workspace."""
    pets = wd.collection("acme/pets", store=store)
    with pets.changes("first") as change:
        for number in range(5):
            change.add(
                f"cats/cat{number}.jpg", JPEG + bytes([number]), annotations=[wd.Box("cat", 1, 2, 3, 4 + number)]
            )
        change.add("empty.jpg", b"")
    pets.create_version("v1")
    with pets.changes("second") as change:
        change.add("dogs/dog 1 ü+&.jpg", JPEG + b"dog", annotations=[wd.Label("dog")])
        change.remove("cats/cat0.jpg")
    packed = {f"part-{at:02}/{at}.bin": bytes([at]) * 1000 for at in range(20)} | {"large.bin": large_content()}
    builder = wd.DatasetBuilder("acme/packed", store).add_artifact("files", packed, kind="tar_shards")
    builder.add_table("main", {"id": list(range(100)), "name": [f"row {at}" for at in range(100)]}).publish(label="v1")
    wd.DatasetBuilder("rival/secret", store).add_artifact("files", {"a": b"a"}, kind="files").publish()


def large_content() -> bytes:
    """Return the content of a member of several chunks."""
    return bytes(range(256)) * (9 * 4096)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that the tests of a module share. They do not write, except to the inbox."""
    with ExitStack() as stack:
        yield make_gateway(tmp_path_factory.mktemp("gateway"), stack)


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway of one test, which may write."""
    with ExitStack() as stack:
        yield make_gateway(tmp_path, stack)


def make_gateway(path: Path, stack: ExitStack, keys: KeyRing | None = None) -> Gateway:
    store = str(path / "store")
    fill(store)
    return serve_store(wd.connect(store), stack)


def serve_store(session: Session, stack: ExitStack, wrap: Callable[[S3Gateway], Any] = lambda app: app) -> Gateway:
    keys = Keys()
    app = S3Gateway(BucketFiles.over(session), keys, root="/s3")
    address = stack.enter_context(listening(wrap(app)))
    made = Gateway(session, f"{address}/s3", keys, app)
    stack.callback(lambda: [client.close() for client in made.clients])
    return made
