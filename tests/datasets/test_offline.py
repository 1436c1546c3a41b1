"""If this fails, mode `local` reaches the network: on a plane it hangs, and on a cluster it costs money."""

from __future__ import annotations

import io
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import warpdata as wd
from tests.cli.scenes import run
from tests.kinds.episodes.scenes import make_episode
from tests.web_server import WebServer, serving
from warpdata.edit import SampleDiff
from warpdata.errors import DeniedError, NotCachedError, UnsupportedError, WarpError
from warpdata.settings import Settings, load_settings

NAMES = [f"{n}.png" for n in range(6)]


def image(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish every kind of payload, with a history of three commits and a label."""
    directory = tmp_path_factory.mktemp("origin")
    settings = Settings(directory.as_uri(), directory / "cache")
    for turn in range(2):
        builder = wd.DatasetBuilder("acme/all", directory.as_uri(), settings=settings)
        builder.add_table("main", pa.table({"id": range(turn, turn + 6), "image": NAMES}))
        builder.add_artifact("raw", {name: image(n) for n, name in enumerate(NAMES)}, "files")
        builder.bind("main", "image", "raw", "image")
        builder.add_episodes("demos", [make_episode(0, 5), make_episode(1, 9)])
        builder.add_tensors("model", {"weight": np.arange(12, dtype=np.float32).reshape(3, 4)})
        builder.publish(f"turn {turn}", label="v1" if turn == 0 else None)
    return directory


@pytest.fixture
def server(root: Path) -> Iterator[WebServer]:
    with serving(root) as server:
        yield server


@pytest.fixture
def settings(server: WebServer, tmp_path: Path) -> Settings:
    return replace(load_settings(), store_url=server.url, cache_dir=tmp_path / "cache", timeout_s=5, max_retries=0)


@pytest.fixture
def offline(settings: Settings, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Warm the dataset, then forbid sockets: those of Python by a patch, those of libraries by counting requests."""
    for address in ("acme/all", "acme/all@v1"):
        wd.dataset(address, settings=settings).warm()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    server.requests.clear()
    server.fault = "down"
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("WARP_STORE", settings.store_url)
    monkeypatch.setenv("WARP_CACHE_DIR", str(settings.cache_dir))
    monkeypatch.setenv("WARP_MODE", "local")
    yield replace(settings, mode="local")
    assert server.requests == [], "mode local asked the store"


def read_table(dataset: wd.Dataset) -> None:
    table = dataset.table()
    assert table.count() == 6
    assert table.head(2).num_rows == 2
    assert table.filter("id > 3").to_arrow().num_rows == 3
    assert table.select(["id"]).pandas().shape == (6, 1)
    assert table.raw().polars().shape == (6, 2)
    assert len(table.duckdb().fetchall()) == 6
    assert table.take([1, 4]).num_rows == 2
    assert sum(batch.num_rows for batch in table.batches(2)) == 6
    assert len(list(table.batch_dicts(3))) == 2
    assert [group.num_rows for group in table.row_groups()] == [6]
    assert list(table.filter("id > 3").row_numbers()) == [3, 4, 5]
    assert table.schema is not None


def read_media(dataset: wd.Dataset) -> None:
    artifact = dataset.artifact()
    assert [member.path for member in artifact.members()] == NAMES
    assert artifact.read_many(NAMES) == [image(n) for n in range(6)]
    assert artifact.open(NAMES[1]).read() == image(1)
    ref = dataset.table().to_arrow()["image"][3].as_py()
    assert ref.as_numpy()[0, 0, 0] == 3
    assert ref.local_path().read_bytes() == image(3)
    assert wd.read_many([ref]) == [image(3)]
    assert ref.size == len(image(3))
    with pytest.raises(UnsupportedError):
        ref.signed_url()


def read_streams(dataset: wd.Dataset) -> None:
    batches = list(dataset.stream(batch_size=2, shuffle=False).epoch(0))
    assert len(batches) == 3
    assert sum(len(batch["id"]) for batch in dataset.to_torch(batch_size=2)) >= 6
    mixed = wd.mix({dataset.stream(batch_size=2): 1.0})
    assert next(iter(mixed)) is not None


def read_episodes(dataset: wd.Dataset) -> None:
    episodes = dataset.episodes()
    assert [episode.load().length for episode in episodes] == [5, 9]
    assert episodes.table().count() == 2
    for episode in episodes:
        episode.verify()
    assert episodes.filter("length > 5").numbers.tolist() == [1]
    windows = episodes.windows(keys={"ctrl": (0, 2)}, batch_size=2)
    assert next(iter(windows)) is not None


def read_tensors(dataset: wd.Dataset) -> None:
    tensors = dataset.tensors()
    assert tensors.names() == ["weight"]
    assert tensors.view().materialize()["weight"].tolist()[2] == [8.0, 9.0, 10.0, 11.0]
    tensors.verify()


def read_records(dataset: wd.Dataset) -> None:
    history = dataset.history()
    assert [revision.message for revision in history][-1] == "turn 0"
    assert dataset.history(limit=1) == history[:1]
    assert wd.verify(dataset).problems == ()
    with pytest.raises(NotCachedError):
        wd.find_commit("acme/all", "unknown transaction")
    assert dataset.info() is not None
    assert list(dataset.blobs())
    assert dataset.diff(dataset).changes == ()
    assert dataset.io_stats.requests == 0


def read_queries(dataset: wd.Dataset) -> None:
    """Queries, samples, comparisons and copies; the environment chooses store and mode."""
    assert wd.sql("SELECT count(*) AS n FROM 'acme/all'").to_pylist() == [{"n": 6}]
    with wd.sql_reader("SELECT id FROM 'acme/all@v1'") as reader:
        assert reader.read_all().num_rows == 6
    assert dataset.sample(2).count() == 2
    assert dataset.table().sample_ids().tolist() == list(range(6))
    earlier = wd.dataset("acme/all@main~1")
    assert earlier.version == wd.dataset("acme/all@v1").version
    changes = wd.diff("acme/all@v1", "acme/all", by="sample")
    assert isinstance(changes, SampleDiff)
    assert len(list(changes.rows())) == 6
    with tempfile.TemporaryDirectory() as directory:
        assert wd.copy("acme/all", f"{directory}/copy").version == wd.dataset("acme/all").version
        assert wd.export("acme/all", f"{directory}/rows").rows == 6


READS = [read_table, read_media, read_streams, read_episodes, read_tensors, read_records, read_queries]


@pytest.mark.parametrize("read", READS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("address", ["acme/all", "acme/all@v1"])
def test_everything_that_is_cached_is_readable(
    offline: Settings, address: str, read: Callable[[wd.Dataset], None]
) -> None:
    dataset = wd.dataset(address, settings=offline)
    if read is read_table and address.endswith("v1"):
        assert dataset.table().count() == 6
        return
    read(dataset)


def edited(dataset: wd.Dataset) -> None:
    with dataset.edit("change") as edit:
        edit.delete("main", "id = 3")


def appended(settings: Settings) -> None:
    with wd.open_writer("acme/all", settings=settings).append() as sample:
        sample["id"], sample["image"] = 7, image(7)


def test_writes_and_listings_are_refused(offline: Settings, tmp_path: Path) -> None:
    dataset = wd.dataset("acme/all", settings=offline)
    rows = pa.table({"id": [9]})

    def builder() -> wd.DatasetBuilder:
        return wd.DatasetBuilder("acme/all", settings=offline)

    writes: list[Callable[[], object]] = [
        lambda: dataset.snapshot("v2"),
        lambda: dataset.branch("side"),
        lambda: builder().append_table("main", rows).publish(),
        lambda: builder().add_table("main", rows).publish(),
        lambda: builder().add_table("main", rows).publish(repair=True),
        lambda: builder().add_table("main", rows).plan(),
        lambda: edited(dataset),
        dataset.compact,
        lambda: dataset.restore("v1"),
        lambda: appended(offline),
        lambda: wd.copy("acme/all", name="acme/copy", settings=offline),
        lambda: wd.rename("acme/all", "acme/new", settings=offline),
        lambda: wd.remove("acme/all@v1", settings=offline),
        lambda: wd.gc(dry_run=False, settings=offline),
        lambda: wd.pin("acme/all", "job", settings=offline),
    ]
    for write in writes:
        with pytest.raises(DeniedError, match="mode 'local'") as caught:
            write()
        assert "another mode" in (caught.value.hint or "")
    asks: list[Callable[[], object]] = [
        lambda: wd.list_datasets(settings=offline),
        lambda: wd.dataset("acme/other", settings=offline),
        lambda: wd.create("acme/other", wd.Schema(x=wd.Integer()), settings=offline),
        lambda: wd.gc(settings=offline),
        lambda: wd.pins(settings=offline),
        lambda: wd.unpin("job", settings=offline),
    ]
    for ask in asks:
        with pytest.raises(NotCachedError):
            ask()
    with pytest.raises(WarpError):
        dataset.warm()


def test_what_is_not_cached_names_the_command(offline: Settings, settings: Settings) -> None:
    dataset = wd.dataset("acme/all", settings=offline)
    assert dataset.session.cache is not None
    dataset.session.cache.clear()
    asks: list[Callable[[], object]] = [
        lambda: dataset.table().to_arrow(),
        lambda: dataset.table().duckdb().fetchall(),
        lambda: dataset.artifact().read(NAMES[0]),
        dataset.tensors,
        lambda: wd.verify(dataset),
    ]
    for ask in asks:
        with pytest.raises(NotCachedError) as caught:
            ask()
        assert "warp warm" in (caught.value.hint or "")


COMMANDS: list[tuple[list[str], set[int]]] = [
    (["info", "acme/all"], {0}),
    (["schema", "acme/all"], {0}),
    (["head", "acme/all"], {0}),
    (["inspect", "acme/all"], {0}),
    (["stream", "acme/all", "--batch-size", "2"], {0}),
    (["members", "acme/all"], {0}),
    (["cat", "acme/all", "raw", "0.png"], {0, 2}),
    (["log", "acme/all"], {0}),
    (["diff", "acme/all@v1", "acme/all"], {0}),
    (["verify", "acme/all"], {0}),
    (["episodes", "ls", "acme/all"], {0}),
    (["episodes", "verify", "acme/all"], {0}),
    (["tensors", "ls", "acme/all"], {0}),
    (["tensors", "verify", "acme/all"], {0}),
    (["cache", "stats"], {0}),
    (["cache", "verify"], {0}),
    (["doctor"], {0}),
    (["find-commit", "acme/all", "no-such-transaction"], {3}),
    (["list-remote"], {3}),
    (["label", "acme/all", "v3"], {4, 6}),
    (["branch", "acme/all", "side"], {4, 6}),
    (["sql", "SELECT id FROM 'acme/all'"], {0}),
    (["diff", "acme/all@v1", "acme/all", "--by", "sample"], {0}),
    (["merge", "acme/all", "v1"], {0}),
    (["delete", "acme/all", "--where", "id = 3", "--yes"], {6}),
    (["compact", "acme/all"], {6}),
    (["restore", "acme/all", "v1"], {6}),
    (["rename", "acme/all", "acme/new"], {6}),
    (["rm", "acme/all@v1", "--yes"], {6}),
    (["gc"], {3}),
    (["pin", "ls"], {3}),
]


@pytest.mark.parametrize(("command", "codes"), COMMANDS, ids=[" ".join(command) for command, _ in COMMANDS])
def test_commands_use_no_network(offline: Settings, command: list[str], codes: set[int]) -> None:
    result = run(*command)
    assert result.exit_code in codes, (result.exit_code, result.output)
