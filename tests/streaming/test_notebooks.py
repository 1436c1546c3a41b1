"""If this fails, a transform that is defined in a notebook cell kills the workers of a loader without a reason.

A notebook runs cells in a module `__main__` that no file defines. Workers of an object store cannot be forked, so
they receive the transform by pickle.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import MissingExtraError
from warpdata.primitives.worker_pickle import PortableFunction
from warpdata.testing import S3Endpoint

pytest.importorskip("torch", reason="the extra warpdata[torch] is not installed")

ROWS = 12
OFFSET = 100

OPEN = """
import json, threading
import warpdata as wd
from warpdata.errors import BadInputError

def ids(**keywords):
    dataset = wd.dataset("a/t", store=STORE, settings=wd.load_settings())
    loader = dataset.to_torch(batch_size=4, num_workers=2, columns=["id"], **keywords)
    return sorted(value for batch in loader.epoch(0) for value in batch["id"].tolist())
"""

SHIFTED = """
offset = 100
def shifted(sample):
    return {"id": sample["id"] + offset}
print(json.dumps(ids(transform=shifted)))
"""

CELL = (
    SHIFTED
    + """
print(json.dumps(ids(transform=lambda sample: {"id": sample["id"] + 100})))

def shift_by(offset):
    return lambda sample: {"id": sample["id"] + offset}
print(json.dumps(ids(transform=shift_by(100))))

class Shift:
    def __init__(self, offset):
        self.offset = offset
    def __call__(self, sample):
        return {"id": sample["id"] + self.offset}
print(json.dumps(ids(transform=Shift(100))))

lock = threading.Lock()
def locked(sample):
    with lock:
        return sample

class Name:
    pass
def named(sample):
    return {"id": sample["id"], "name": Name()}

for refused in (locked, named):
    try:
        ids(transform=refused)
    except BadInputError as error:
        print(json.dumps([error.message, error.hint]))
"""
)
"""Transforms of all kinds, then one that cannot be pickled, and one whose result cannot be."""


@pytest.fixture
def environment(s3_url: str, s3_server: S3Endpoint, tmp_path: Path) -> dict[str, str]:
    settings = s3_server.settings(cache_dir=tmp_path)
    wd.DatasetBuilder("a/t", s3_url, settings=settings).add_table("main", pa.table({"id": range(ROWS)})).publish()
    keys = settings.s3
    return {
        **os.environ,
        "WARP_STORE": s3_url,
        "WARP_CACHE_DIR": str(tmp_path),
        "AWS_ENDPOINT_URL": keys.endpoint_url or "",
        "AWS_ACCESS_KEY_ID": keys.access_key_id or "",
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key or "",
        "AWS_REGION": keys.region or "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def code_of(environment: dict[str, str], cell: str) -> str:
    return OPEN.replace("STORE", repr(environment["WARP_STORE"])) + textwrap.dedent(cell)


def test_a_transform_of_a_cell_reaches_the_workers(environment: dict[str, str]) -> None:
    """The code runs like a cell: compiled from text, in a `__main__` without a file."""
    cell = f"exec(compile({code_of(environment, CELL)!r}, '<cell 1>', 'exec'), globals())"
    ran = subprocess.run(
        [sys.executable, "-c", cell], capture_output=True, text=True, check=False, env=environment, timeout=100
    )
    assert ran.returncode == 0, ran.stderr
    *shifted, locked, named = map(json.loads, ran.stdout.splitlines())
    assert shifted == [list(range(OFFSET, OFFSET + ROWS))] * 4
    for message, hint in (locked, named):
        assert "worker processes" in message
        assert "num_workers=0" in hint


def test_a_program_from_standard_input_has_workers(environment: dict[str, str]) -> None:
    """Its `__main__` claims the file `<stdin>`, which workers cannot open."""
    ran = subprocess.run(
        [sys.executable, "-"],
        input=code_of(environment, SHIFTED),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == list(range(OFFSET, OFFSET + ROWS))


def test_a_script_returns_objects_of_its_own_classes(environment: dict[str, str], tmp_path: Path) -> None:
    """Workers import a script, so its classes are the same on both sides."""
    body = """
        class Name(str):
            pass
        def named(sample):
            return {"name": Name(sample["id"])}
        if __name__ == "__main__":
            dataset = wd.dataset("a/t", store=STORE, settings=wd.load_settings())
            loader = dataset.to_torch(batch_size=4, num_workers=1, transform=named)
            assert all(type(name) is Name for batch in loader.epoch(0) for name in batch["name"])
    """
    script = tmp_path / "script.py"
    store = environment["WARP_STORE"]
    script.write_text(code_of(environment, body).replace("STORE", repr(store)))
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, env=environment, timeout=100
    )
    assert ran.returncode == 0, ran.stderr


def test_without_cloudpickle_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    assert pickle.loads(pickle.dumps(PortableFunction(len)))("abc") == 3  # noqa: S301
    with pytest.raises(MissingExtraError, match=r"cloudpickle(.|\n)*\[torch\]"):
        pickle.dumps(PortableFunction(lambda: None))
