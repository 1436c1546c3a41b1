"""If this fails, one user of a machine reads, changes or blocks what belongs to another one.

Two ordinary users act, because everybody trusts the files of the superuser. A child process loads all modules, then
becomes one of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd
from tests.web_server import serving

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser can become another user"
)

OWNER, OTHER = 65533, 65534
CHILD = """
import json, os, sys, tempfile
import pyarrow as pa
import warpdata as wd
user, store, cache, act = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]

def publish(url):
    wd.DatasetBuilder("a/b", url).add_table("main", pa.table({"n": [user]})).publish(keep=True)

def read(**options):
    return wd.dataset("a/b", store=store, **options).table().to_arrow()["n"].to_pylist()

ACTS = {
    "read": read,
    "warm": lambda: wd.dataset("a/b", store=store).warm().blobs,
    "offline": lambda: read(mode="local"),
    "publish": lambda: publish(store),
}
# Load every module before the files of the superuser are out of reach.
os.environ["WARP_CACHE_DIR"] = tempfile.mkdtemp()
first = tempfile.mkdtemp()
publish("file://" + first)
wd.dataset("a/b", store="file://" + first).table().to_arrow()
if store.startswith("http"):
    read(), ACTS["warm"]()
os.environ["WARP_CACHE_DIR"] = cache
os.setgid(user), os.setuid(user)
try:
    print(json.dumps({"value": ACTS[act]()}))
except wd.errors.WarpError as error:
    print(json.dumps({"kind": error.kind, "message": error.message, "hint": error.hint or ""}))
"""


def act_as(user: int, store: str, cache: Path, act: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(user), store, str(cache), act],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that all users reach and may write to, as they may to `/tmp`."""
    path = Path(tempfile.mkdtemp(prefix="warp-users-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def published(shared: Path) -> Path:
    root = shared / "store"
    wd.DatasetBuilder("a/b", root.as_uri()).add_table("main", pa.table({"n": [1, 2, 3]})).publish()
    for path in [root, *root.rglob("*")]:
        os.chown(path, OWNER, OWNER)
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def test_a_cache_of_another_user_is_neither_read_nor_used(published: Path, shared: Path) -> None:
    cache = shared / "cache"
    with serving(published) as server:
        assert act_as(OWNER, server.url, cache, "warm")["value"] >= 1
        assert act_as(OWNER, server.url, cache, "offline")["value"] == [1, 2, 3]
        before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
        assert act_as(OTHER, server.url, cache, "read")["value"] == [1, 2, 3], "from the store"
        for act in ("warm", "offline"):
            refused = act_as(OTHER, server.url, cache, act)
            assert refused["kind"] == "access_denied", refused
            assert "belongs to another user" in refused["message"]
            assert "WARP_CACHE_DIR" in refused["hint"]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


@pytest.mark.parametrize("target", ["own", "foreign"])
def test_a_link_that_another_user_planted_is_not_followed(published: Path, shared: Path, target: str) -> None:
    victim = shared / "victim"
    victim.mkdir(0o755)
    os.chown(victim, OWNER if target == "own" else OTHER, -1)
    (shared / "cache").symlink_to(victim)
    os.chown(shared / "cache", OTHER, OTHER, follow_symlinks=False)
    with serving(published) as server:
        assert act_as(OWNER, server.url, shared / "cache", "read")["value"] == [1, 2, 3]
        refused = act_as(OWNER, server.url, shared / "cache", "warm")
        assert refused["kind"] == "access_denied", refused
        assert "another user" in refused["message"]
        assert "WARP_CACHE_DIR" in refused["hint"]
    assert list(victim.iterdir()) == []


def test_a_store_of_another_user_is_read_but_not_written(published: Path, shared: Path) -> None:
    before = sorted(published.rglob("*"))
    assert act_as(OTHER, published.as_uri(), shared / "cache", "read")["value"] == [1, 2, 3]
    refused = act_as(OTHER, published.as_uri(), shared / "cache", "publish")
    assert refused["kind"] == "access_denied", refused
    assert "permission denied" in refused["message"]
    assert refused["hint"]
    assert sorted(published.rglob("*")) == before
    assert act_as(OWNER, published.as_uri(), shared / "cache", "read")["value"] == [1, 2, 3]


def test_a_store_that_another_user_may_not_read_is_a_typed_error(published: Path, shared: Path) -> None:
    (published / "blobs").chmod(0o700)
    refused = act_as(OTHER, published.as_uri(), shared / "cache", "read")
    assert refused["kind"] == "access_denied", refused
    assert "permission denied" in refused["message"]
