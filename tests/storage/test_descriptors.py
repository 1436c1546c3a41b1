"""If these fail, a program that opens many datasets ends with "too many open files" at the usual limits."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.storage.cache.scenes import run_python
from warpdata.primitives.concurrency import descriptor_share
from warpdata.testing import S3Endpoint

FILES = {f"{n:02}.bin": bytes([n]) * 700 for n in range(31)}
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import warpdata as wd
store, count, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
kept, names = [], None
for number in range(count):
    dataset = wd.dataset("acme/media", store=store, mode=mode)
"""
READ_MEDIA = """
    cells = dataset.table().to_arrow()["path"].to_pylist()
    assert [len(cell.read_bytes()) for cell in cells] == [700] * 31
    kept.append(dataset if number % 2 else None)
"""
KEEP_ALL = """
    dataset.table().head(1)
    kept.append(dataset)
"""
REPORT = """
print(len(os.listdir("/proc/self/fd")))
"""


def publish(store: str) -> None:
    builder = wd.DatasetBuilder("acme/media", store).add_artifact("raw", dict(FILES), "files")
    builder.add_table("main", pa.table({"path": list(FILES)})).bind("main", "path", "raw").publish()


@pytest.mark.parametrize(
    ("body", "count"),
    [
        pytest.param(READ_MEDIA, 40, id="media"),
        pytest.param(KEEP_ALL, 400, id="kept"),
        pytest.param(READ_MEDIA, 200, id="more media", marks=pytest.mark.soak),
        pytest.param(KEEP_ALL, 2000, id="more kept", marks=pytest.mark.soak),
    ],
)
def test_many_local_datasets_fit_into_a_low_limit(tmp_path: Path, body: str, count: int) -> None:
    store = (tmp_path / "store").as_uri()
    publish(store)
    used = int(run_python(LIMITED + body + REPORT, store, count, "auto", timeout_s=120))
    assert used < 128


@pytest.mark.s3
@pytest.mark.parametrize(("body", "mode"), [(READ_MEDIA, "hybrid"), (KEEP_ALL, "remote")], ids=["media", "kept"])
def test_many_remote_datasets_fit_into_a_low_limit(
    s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch, body: str, mode: str
) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    publish(s3_url)
    count = 40 if body is READ_MEDIA else 300
    used = int(run_python(LIMITED + body + REPORT, s3_url, count, mode, timeout_s=120))
    assert used < 192


KEPT_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
import numpy as np
from pathlib import Path
from warpdata.tensors import narrow, open_tensors, write_tensors
from warpdata.wshard import Channel, Episode, open_wshard, save_wshard
directory, count, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
kept, shared = [], [directory / str(number) for number in range(8)]
rows = np.arange(4096, dtype=np.float32).reshape(1024, 4)
for path in shared:
    if kind == "tensors":
        write_tensors(path, {"x": rows}).close()
    else:
        save_wshard(Episode(id="e", length=1024, observations={"x": Channel("x", rows)}), path)
for number in range(count):
    kept.append((open_tensors if kind == "tensors" else open_wshard)(shared[number % 8]))
found = []
for opened in [*kept[:300], *kept[-300:]]:
    if kind == "tensors":
        found.append(opened.view({"x": [narrow(1, 1, 2)]}).materialize()["x"])  # strided, so the file is mapped
        assert np.array_equal(found[-1], rows[:, 1:3])
    else:
        found.append(opened["signal/x"].window(5, 9))
        assert np.array_equal(found[-1], rows[5:9])
print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.parametrize("kind", ["tensors", "episodes"])
def test_many_open_files_fit_into_a_low_limit(tmp_path: Path, kind: str) -> None:
    assert int(run_python(KEPT_FILES, tmp_path, 2000, kind, timeout_s=120)) < 192


def test_views_of_one_file_share_a_descriptor(tmp_path: Path) -> None:
    from warpdata.primitives.hashing import blob_key, sha256_hex
    from warpdata.storage import ByteRange, LocalStore

    data = os.urandom(600_000)
    store, key = LocalStore(tmp_path), blob_key(sha256_hex(data))
    store.create(key, data)
    before = _count()
    views = [store.read_range(key, ByteRange(n, 500_000 + n)) for n in range(50)]
    assert _count() - before <= 2
    assert all(view == data[n : 500_000 + n] for n, view in enumerate(views))


def test_the_share_follows_the_limit_of_the_system() -> None:
    assert descriptor_share(1.0, 10) == 10
    assert descriptor_share(1e-9, 100) == 8


def _count() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
