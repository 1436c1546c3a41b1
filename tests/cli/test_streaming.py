"""If this fails, `warp stream` loses or changes rows, or never ends."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import os
import signal
import socket
import subprocess
import time
from contextlib import closing

import pyarrow as pa
import pytest

import warpdata as wd
from tests.cli.scenes import PROGRAM, publish, run, run_program, trips
from warpdata.cli.commands.stream import FORMATS

MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 500, tzinfo=datetime.UTC)


def every_type() -> pa.Table:
    return pa.table(
        {
            "whole": pa.array([2**63, None], pa.uint64()),
            "real": [float("nan"), 1e300],
            "truth": [True, None],
            "text": ['a "quoted", text\n', ""],
            "bytes": [b"\x00\xff", None],
            "decimal": [decimal.Decimal("1.20"), None],
            "moment": pa.array([MOMENT, None], pa.timestamp("us", "Europe/Paris")),
            "fine": pa.array([1, None], pa.timestamp("ns")),
            "far": pa.array([2**53, None], pa.timestamp("s")),
            "day": [datetime.date(2024, 2, 29), None],
            "clock": pa.array([1, None], pa.time64("ns")),
            "span": pa.array([1500, None], pa.duration("ms")),
            "list": pa.array([[MOMENT], None], pa.list_(pa.timestamp("us", "UTC"))),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)),
            "struct": [{"a": 1, "b": "x"}, None],
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "word": pa.array(["x", None]).dictionary_encode(),
            "nothing": pa.nulls(2),
        }
    )


EXPECTED_JSON = {
    "whole": 2**63,
    "real": None,
    "truth": True,
    "text": 'a "quoted", text\n',
    "bytes": "AP8=",
    "decimal": "1.20",
    "moment": "2024-02-29 12:30:01.000500Z",
    "fine": "1970-01-01 00:00:00.000000001",
    "day": "2024-02-29",
    "clock": "00:00:00.000000001",
    "span": 1500,
    "list": ["2024-02-29 12:30:01.000500Z"],
    "fixed": [1, 2],
    "struct": {"a": 1, "b": "x"},
    "map": [["k", 1]],
    "word": "x",
    "nothing": None,
}


def written(name: str, table: pa.Table) -> bytes:
    sink = io.BytesIO()
    FORMATS[name](table.to_batches(max_chunksize=1), table.schema, sink)
    return sink.getvalue()


def test_arrow_keeps_every_type() -> None:
    table = every_type()
    read = pa.ipc.open_stream(written("arrow", table)).read_all()
    assert read.schema.equals(table.schema, check_metadata=True)
    assert read.drop(["real"]).equals(table.drop(["real"]))


def test_json_lines_of_every_type() -> None:
    first, second = [json.loads(line) for line in written("jsonl", every_type()).splitlines()]
    far = first.pop("far")
    assert first == EXPECTED_JSON
    assert isinstance(far, str)
    assert second["real"] == 1e300
    assert second["text"] == ""
    assert all(second[name] is None for name in set(second) - {"real", "text"})


def test_csv_encodes_nested_values_as_json() -> None:
    header, first, second = list(csv.reader(io.StringIO(written("csv", every_type()).decode(), newline="")))
    assert header == every_type().column_names
    cells = dict(zip(header, first, strict=True))
    assert cells["text"] == 'a "quoted", text\n'
    assert cells["bytes"] == "AP8="
    assert cells["moment"] == "2024-02-29 12:30:01.000500Z"
    assert json.loads(cells["struct"]) == {"a": 1, "b": "x"}
    assert json.loads(cells["fixed"]) == [1, 2]
    assert cells["span"] == "1500"
    assert set(second) == {"", "1e+300"}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_stream_without_rows(name: str) -> None:
    data = written(name, trips().slice(0, 0))
    if name == "arrow":
        assert pa.ipc.open_stream(data).read_all().schema == trips().schema
    else:
        assert data == (b'"id","fare","note"\n' if name == "csv" else b"")


def test_stream_round_trip() -> None:
    publish(table=trips(count=1000))
    arrow = run("stream", "acme/trips", "--format", "arrow", "--batch-size", "64")
    table = pa.ipc.open_stream(arrow.stdout_bytes).read_all()
    assert table.equals(trips(count=1000))
    lines = run("stream", "acme/trips", "--columns", "id", "--filter", "id % 2 = 1", "--limit", "3").stdout
    assert [json.loads(line) for line in lines.splitlines()] == [{"id": 1}, {"id": 3}, {"id": 5}]
    assert len(run("stream", "acme/trips", "--format", "csv").stdout.splitlines()) == 1001


def test_shards_cover_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    publish(table=trips(count=103))
    seen = []
    for rank in range(4):
        seen.extend(run("stream", "acme/trips", "--columns", "id", "--shard", f"{rank}/4").stdout.splitlines())
    assert sorted(json.loads(line)["id"] for line in seen) == list(range(103))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    auto = run("stream", "acme/trips", "--shard", "auto").stdout
    assert auto == run("stream", "acme/trips", "--shard", "1/4").stdout


@pytest.fixture
def long_dataset() -> None:
    """Publish far more rows than fit into a pipe."""
    wd.DatasetBuilder("acme/long").add_table("main", trips(count=300_000)).publish()


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.usefixtures("long_dataset")
def test_stream_ends_silently_on_closed_pipe(name: str) -> None:
    with subprocess.Popen(
        [*PROGRAM, "stream", "acme/long", "--format", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.read(10)
        program.stdout.close()
        assert program.stderr.read() == b""
        assert program.wait(timeout=30) == 0


@pytest.mark.parametrize(
    "args", [["--help"], ["list-remote"], ["info", "acme/trips"], ["info", "acme/trips", "--json"]]
)
def test_closed_pipe_is_silent_for_every_output(args: list[str]) -> None:
    publish()
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run([*PROGRAM, *args], stdout=write_end, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.usefixtures("long_dataset")
def test_ctrl_c_ends_blocked_stream(name: str) -> None:
    with subprocess.Popen(
        [*PROGRAM, "stream", "acme/long", "--format", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.read(10)
        time.sleep(0.2)
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=20) == 130
        assert program.stderr.read() == b"interrupted\n"


def test_ctrl_c_ends_wait_for_hanging_store() -> None:
    """The storage library does not react to signals, so Python alone would wait a minute."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        with subprocess.Popen(
            [*PROGRAM, "info", "acme/trips", "--store", "s3://bucket/x"], stderr=subprocess.PIPE, env=environment
        ) as program:
            listener.settimeout(30)
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                program.send_signal(signal.SIGINT)
                assert program.wait(timeout=15) == 130
            assert program.stderr is not None
            assert program.stderr.read() == b"interrupted\n"


def test_arrow_stream_through_pipe() -> None:
    publish()
    done = subprocess.run(
        [*PROGRAM, "stream", "acme/trips", "--format", "arrow"], capture_output=True, timeout=60, check=True
    )
    assert pa.ipc.open_stream(done.stdout).read_all().equals(trips())
    assert done.stderr == b""
    assert run_program("stream", "acme/trips", "--limit", "0").stdout == ""
