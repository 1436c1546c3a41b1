"""If this fails, samples are lost, appended twice, or stored as something else than what the program gave."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ColumnNotFoundError,
    SchemaMismatchError,
    UnsupportedError,
    WarpError,
)
from warpdata.primitives.hashing import sha256_hex
from warpdata.samples.media_files import extension_of
from warpdata.testing import S3Endpoint
from warpdata.wshard import Episode, Timebase

JPEG, PNG, WAV = b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"RIFF\x00\x00\x00\x00WAVE"

SCHEMA = wd.Schema(
    image=wd.Image(),
    clip=wd.Audio(),
    label=wd.Categorical(required=True),
    text=wd.Text(),
    tags=wd.Tags(),
    ts=wd.Timestamp(),
    emb=wd.Embedding(3),
    half=wd.Embedding(2, "float16"),
    number=wd.Integer(),
    score=wd.Float(),
    ok=wd.Boolean(),
    small=pa.int16(),
)


def new_store() -> str:
    return f"memory://{secrets.token_hex(8)}"


def test_every_type_of_field_comes_back(tmp_path: Path) -> None:
    store = new_store()
    lake = wd.create("acme/lake", SCHEMA, store=store)
    assert lake.dataset.table().count() == 0
    (tmp_path / "a.wav").write_bytes(WAV + b"1")
    moment = datetime(2026, 11, 1, 12, 0, 0, 123456, timezone(timedelta(hours=2)))
    with lake.append() as s:
        s.image, s.clip, s.label, s.text = JPEG + b"1", tmp_path / "a.wav", "cat", "é"
        s.tags, s.ts, s.emb, s.half = ("a", "b"), moment, [1, 2, 3], np.array([1.5, 2], np.float32)
        s.number, s.score, s.ok, s.small = np.int32(7), 2, np.bool_(True), -5
    with lake.append() as s:
        s["label"] = "dog"
    first, second = lake.dataset.table().to_arrow().to_pylist()
    assert (first.pop("image").read_bytes(), first.pop("clip").read_bytes()) == (JPEG + b"1", WAV + b"1")
    assert first == {
        "label": "cat",
        "text": "é",
        "tags": ["a", "b"],
        "ts": moment.astimezone(UTC),
        "emb": [1, 2, 3],
        "half": [1.5, 2],
        "number": 7,
        "score": 2.0,
        "ok": True,
        "small": -5,
    }
    assert second == {name: "dog" if name == "label" else None for name in SCHEMA.fields}
    assert lake.dataset.version == wd.dataset("acme/lake", store=store).version
    assert wd.verify("acme/lake", store=store).problems == ()
    paths = [member.path for name in ("image", "clip") for member in lake.dataset.artifact(name).members()]
    assert [Path(path).suffix for path in paths] == [".jpg", ".wav"]


WRONG: list[tuple[dict[str, Any], type[WarpError], str]] = [
    ({"lable": "x"}, ColumnNotFoundError, "'lable'"),
    ({}, BadInputError, "'label' is required"),
    ({"label": None}, BadInputError, "'label' is required"),
    ({"label": 3}, SchemaMismatchError, "'label': expected a string, found int 3"),
    ({"text": "\ud800"}, SchemaMismatchError, "valid Unicode"),
    ({"tags": "abc"}, SchemaMismatchError, "'tags': expected a list of strings"),
    ({"tags": [1]}, SchemaMismatchError, "'tags'"),
    ({"ts": datetime(2026, 1, 1)}, SchemaMismatchError, "no time zone"),
    ({"ts": "2026-01-01"}, SchemaMismatchError, "'ts': expected a datetime"),
    ({"emb": [1, 2]}, SchemaMismatchError, r"'emb': .* the shape \(2,\)"),
    ({"emb": ["a", "b", "c"]}, SchemaMismatchError, "'emb': expected a vector of 3 numbers"),
    ({"emb": [1e60, 0, 0]}, SchemaMismatchError, "too large for float32"),
    ({"half": [1e6, 0]}, SchemaMismatchError, "too large for float16"),
    ({"number": True}, SchemaMismatchError, "'number': expected an integer, found bool True"),
    ({"number": 1.5}, SchemaMismatchError, "'number'"),
    ({"number": 2**63}, SchemaMismatchError, "64 bits"),
    ({"score": "1"}, SchemaMismatchError, "'score': expected a number"),
    ({"ok": 1}, SchemaMismatchError, "'ok': expected True or False"),
    ({"small": 40_000}, SchemaMismatchError, "'small': expected a value of type int16"),
    ({"image": 7}, SchemaMismatchError, "'image': expected image content"),
    ({"image": "no such file.jpg"}, SchemaMismatchError, "'no such file.jpg' is not a file"),
]


def test_wrong_values_are_named_and_nothing_is_written() -> None:
    lake = wd.create("acme/lake", SCHEMA, store=new_store())
    version = lake.dataset.version
    for wrong, error, problem in WRONG:
        sample = {"label": "x", **wrong} if wrong else {}
        with pytest.raises(error, match=f"sample 1: .*{problem}"):
            lake.append_many([{"label": "good"}, sample])
    others: list[Any] = [None, 3, [("label", "x")]]
    for other in others:
        with pytest.raises(SchemaMismatchError, match="sample 0: expected a mapping"):
            lake.append_many([other])
    with pytest.raises(ColumnNotFoundError, match="lable"), lake.append() as s:
        s.lable = "x"
    with pytest.raises(BadInputError, match="'label' is required"), lake.append():
        pass
    with pytest.raises(BadInputError, match="batch_rows=0"):
        lake.append_many([], batch_rows=0)
    assert lake.refresh().version == version


def test_wrong_schemas() -> None:
    store = new_store()
    wrong: list[dict[str, Any]] = [{}, {"a": 3}, {"a": wd.Text}, {"a/b": wd.Image()}]
    for fields in wrong:
        with pytest.raises(BadInputError):
            wd.Schema(**fields)
    embeddings: list[tuple[Any, str]] = [(0, "float32"), (3, "int8"), (2.0, "float32")]
    for dim, dtype in embeddings:
        with pytest.raises(BadInputError):
            wd.Embedding(dim, dtype)
    wd.create("acme/lake", wd.Schema(a=wd.Text()), store=store)
    with pytest.raises(AlreadyExistsError, match="acme/lake exists"):
        wd.create("acme/lake", wd.Schema(a=wd.Text()), store=store)
    cells = pa.table({"file": [{"shard": 0, "offset": 0, "length": 1}]})
    builder = wd.DatasetBuilder("acme/ranges", store).add_table("main", cells).add_artifact("raw", {"a": b"1"})
    builder.bind("main", "file", "raw").publish()
    with pytest.raises(UnsupportedError, match="'file' refers to byte ranges"):
        wd.open_writer("acme/ranges", store=store)


def test_the_schema_is_read_from_the_table() -> None:
    store = new_store()
    lake = wd.create("acme/lake", SCHEMA, store=store)
    assert wd.open_writer("acme/lake", store=store).schema == lake.schema
    assert lake.schema.arrow() == SCHEMA.arrow()


def test_equal_bytes_are_stored_once() -> None:
    lake = wd.create("acme/lake", wd.Schema(image=wd.Image(), n=wd.Integer()), store=new_store())
    assert lake.append_many(({"image": PNG + bytes([n % 3]), "n": n} for n in range(30)), batch_rows=7) == 30
    assert lake.append_iter([{"image": PNG + b"\x01"}, {"image": PNG + b"\x07"}]) == 2
    artifact = lake.dataset.artifact("image")
    assert len(artifact) == 4
    assert len(list(artifact.shards())) == 2  # one of the first batch, and one of the last append
    rows = lake.dataset.table().to_arrow()["image"].to_pylist()
    assert [ref.read_bytes() for ref in rows[:30]] == [PNG + bytes([n % 3]) for n in range(30)]


def test_writers_at_the_same_time() -> None:
    store = new_store()
    first = wd.create("acme/lake", wd.Schema(image=wd.Image()), store=store)
    second = wd.open_writer("acme/lake", store=store)
    for number in range(3):
        first.append_many([{"image": JPEG + bytes([number])}, {"image": b"same"}])
        second.append_many([{"image": PNG + bytes([number])}, {"image": b"same"}])
    dataset = first.refresh()
    assert dataset.table().count() == 12
    assert len({ref.read_bytes() for ref in dataset.table().to_arrow()["image"].to_pylist()}) == 7
    assert wd.verify("acme/lake", store=store).problems == ()


class StopError(Exception):
    """Ends an append in the middle."""


def failing(count: int, at: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        if number == at:
            raise StopError
        yield {"n": number, "image": b"%d" % number}


@settings(max_examples=6)
@given(st.integers(0, 12), st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=3), st.integers(1, 5))
def test_an_interrupted_append_goes_on_where_it_stopped(
    count: int, stops: list[tuple[int, int]], batch_rows: int
) -> None:
    store = new_store()
    wd.create("acme/lake", wd.Schema(n=wd.Integer(), image=wd.Image()), store=store)
    with mock.patch("warpdata.samples.writer._MAX_BATCH_ROWS", 100):  # a smaller search
        interrupt_and_repeat(store, count, stops, batch_rows)


def interrupt_and_repeat(store: str, count: int, stops: list[tuple[int, int]], batch_rows: int) -> None:
    for at, rows in stops:
        if at < count:
            with pytest.raises(StopError):
                wd.open_writer("acme/lake", store=store).append_many(failing(count, at), batch_rows=rows, key="k")
    writer = wd.open_writer("acme/lake", store=store)
    done = writer.dataset.table().count()
    assert writer.append_many(failing(count, -1), batch_rows=batch_rows, key="k") == count - done
    assert writer.append_many(failing(count, -1), batch_rows=batch_rows, key="k") == 0
    rows = writer.dataset.table().to_arrow()
    assert rows["n"].to_pylist() == list(range(count))
    assert [ref.read_bytes() for ref in rows["image"].to_pylist()] == [b"%d" % n for n in range(count)]
    if done:
        with pytest.raises(BadInputError, match="are committed with the key 'k'"):
            writer.append_many([], batch_rows=batch_rows, key="k")


KILLED = """
import os, signal, sys
import warpdata as wd

def samples():
    for number in range(20):
        if number == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        yield {"n": number, "image": b"%d" % number}

wd.open_writer("acme/lake", store=sys.argv[1]).append_many(samples(), batch_rows=6, key="load")
"""


def test_a_killed_append_has_every_sample_once(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    wd.create("acme/lake", wd.Schema(n=wd.Integer(), image=wd.Image()), store=store)
    done = subprocess.run([sys.executable, "-c", KILLED, store], check=False, timeout=90)
    assert done.returncode == -signal.SIGKILL
    writer = wd.open_writer("acme/lake", store=store)
    assert writer.dataset.table().count() == 12
    assert writer.append_many(failing(20, -1), batch_rows=6, key="load") == 8
    dataset = wd.dataset("acme/lake", store=store)
    assert dataset.table().to_arrow()["n"].to_pylist() == list(range(20))
    assert len(dataset.artifact("image")) == 20
    assert len(list(dataset.history())) == 1 + 4


TRACED = """
import sys, tracemalloc
import warpdata as wd
lake = wd.create("acme/lake", wd.Schema(image=wd.Image()), store=sys.argv[1])
lake.append_many([{"image": b"warm up"}])
tracemalloc.start()
lake.append_many({"image": number.to_bytes(8) * 2**17} for number in range(48))
print(tracemalloc.get_traced_memory()[1])
"""


def test_memory_does_not_grow_with_the_media(tmp_path: Path) -> None:
    """In a process of its own, because the traced memory is that of all threads."""
    store = (tmp_path / "store").as_uri()
    done = subprocess.run([sys.executable, "-c", TRACED, store], check=True, capture_output=True, timeout=90)
    assert int(done.stdout) < 16 * 2**20
    dataset = wd.dataset("acme/lake", store=store)
    assert dataset.artifact("image").entry.shards.data_bytes > 48 * 2**20


def test_extensions() -> None:
    assert [extension_of(head) for head in (JPEG, PNG, WAV, b"", b"????ftypisom", b"text")] == [
        ".jpg",
        ".png",
        ".wav",
        ".bin",
        ".mp4",
        ".bin",
    ]


@pytest.mark.s3
def test_on_s3(s3_server: S3Endpoint, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    lake = wd.create("acme/lake", wd.Schema(image=wd.Image(), n=wd.Integer()), store=s3_url)
    lake.append_many(({"image": JPEG + bytes([n]), "n": n} for n in range(9)), batch_rows=4, key="a")
    with lake.append() as s:
        s.image, s.n = JPEG + b"last", 9
    dataset = lake.dataset
    other = dataset.branch("other")
    with other.edit("more", branch="other") as edit:
        edit.add_files("image", {"by hand": b"1"})
        edit.append("main", [{"image": "by hand", "n": 10}])
    with dataset.edit("less") as edit:
        runs = [Episode(f"e{n}", 2, "Env", Timebase("ticks", 10.0), rewards=np.full(2, n, np.float32)) for n in (0, 1)]
        edit.add_episodes("runs", runs)
        edit.remove_episodes("runs", ["e0"])
        edit.delete("main", "n = 0")
        edit.remove_files("image", [f"image/{sha256_hex(JPEG + bytes([0]))}.jpg"])
    merged = wd.dataset("acme/lake", store=s3_url).merge("other")
    rows = merged.table().to_arrow()
    assert sorted(rows["n"].to_pylist()) == list(range(1, 11))
    expected = {*(JPEG + bytes([n]) for n in range(1, 9)), JPEG + b"last", b"1"}
    assert {ref.read_bytes() for ref in rows["image"].to_pylist()} == expected
    assert len(merged.artifact("image")) == 10
    (run,) = merged.episodes("runs")
    assert run.read(["reward"])["reward"].tolist() == [1, 1]
    assert wd.verify("acme/lake", store=s3_url).problems == ()
