"""If this fails, rows with media lose their files when they are published again, or a store reveals its location."""

from __future__ import annotations

import base64
import getpass
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import BadInputError, CorruptError, InvalidSourceError, SchemaMismatchError
from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import Binding
from warpdata.testing import S3Endpoint
from warpdata.wshard import Channel, Episode, Timebase

FILES = {f"{name}.bin": name.encode() * 40 for name in "abcdef"}
ROWS = pa.table({"id": range(6), "kind": ["x", "y"] * 3, "file": sorted(FILES)})


def pets(store: Any, dataset_id: str = "ws/pets", files: dict[str, bytes] = FILES, **how: Any) -> wd.Dataset:
    """Publish a table whose column `file` refers into the artifact `raw`."""
    builder = wd.DatasetBuilder(dataset_id, store).add_table("main", ROWS).add_artifact("raw", dict(files), **how)
    builder.bind("main", "file", "raw").publish()
    return wd.dataset(dataset_id, store=store)


def contents(dataset: wd.Dataset, table: str | None = None, column: str = "file") -> dict[int, bytes]:
    rows = dataset.table(table).to_arrow()
    return {row: ref.read_bytes() for row, ref in zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True)}


def expected(ids: list[int]) -> dict[int, bytes]:
    return {row: FILES[ROWS["file"][row].as_py()] for row in ids}


# Published again


def joined(dataset: wd.Dataset) -> pa.Table:
    names = pa.table({"id": [5, 1], "name": ["five", "one"]})
    return dataset.table().to_arrow().join(names, "id", join_type="inner").sort_by("id")


CHANGES: dict[str, tuple[Callable[[wd.Dataset], Any], list[int]]] = {
    "filtered in SQL": (lambda dataset: dataset.table().filter("kind = 'y'").to_arrow(), [1, 3, 5]),
    "filtered in Arrow": (lambda dataset: dataset.table().to_arrow().filter(pc.field("id") < 2), [0, 1]),
    "joined": (joined, [1, 5]),
    "with another column": (
        lambda dataset: dataset.table().to_arrow().append_column("score", pa.array(np.arange(6.0))),
        [0, 1, 2, 3, 4, 5],
    ),
    "taken and repeated": (lambda dataset: dataset.table().to_arrow().take([4, 2]), [4, 2]),
    "no rows": (lambda dataset: dataset.table().filter("id < 0").to_arrow(), []),
    "a table of the dataset": (lambda dataset: dataset.table().filter("id > 3"), [4, 5]),
    "batches": (lambda dataset: dataset.table().batches(2), [0, 1, 2, 3, 4, 5]),
    "a list of parts": (lambda dataset: [dataset.table().head(2), dataset.table().filter("id = 5")], [0, 1, 5]),
    "through the stream protocol": (
        lambda dataset: pa.RecordBatchReader.from_stream(dataset.table().to_arrow()),
        [0, 1, 2, 3, 4, 5],
    ),
    "rows as dicts": (
        lambda dataset: [row for row in dataset.table().to_arrow().to_pylist() if row["id"] < 3],
        [0, 1, 2],
    ),
    "columns as lists": (
        lambda dataset: {name: values[4:] for name, values in dataset.table().to_arrow().to_pydict().items()},
        [4, 5],
    ),
    "a result of SQL": (
        lambda dataset: dataset.as_refs(dataset.table().duckdb().filter("id % 5 = 0").to_arrow_table()),
        [0, 5],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["the same store", "another store"])
def test_rows_with_media_are_published_again_with_their_media(change: str, where: str, tmp_path: Path) -> None:
    source = pets(f"{tmp_path}/one")
    store = f"{tmp_path}/one" if where == "the same store" else f"{tmp_path}/two"
    make, ids = CHANGES[change]
    done = wd.DatasetBuilder("ws/again", store).add_table("main", make(source)).publish()
    again = wd.dataset("ws/again", store=store)
    assert again.manifest.bindings == (Binding("main", "file", "raw", "file"),)
    assert contents(again) == expected(ids)
    assert not wd.verify(again).problems
    if where == "the same store":
        assert done.uploaded_files <= 1, "only the rows are new"
        assert again.manifest.artifacts == source.manifest.artifacts


def test_the_other_store_needs_nothing_of_the_first_one(tmp_path: Path) -> None:
    source = pets(f"{tmp_path}/one")
    wd.DatasetBuilder("ws/again", f"{tmp_path}/two").add_table("main", source.table().head(3)).publish()
    (tmp_path / "one").rename(tmp_path / "gone")
    script = (
        "import sys, warpdata as wd\n"
        "rows = wd.dataset('ws/again', store=sys.argv[1]).table().to_arrow()\n"
        "print([ref.read_bytes() for ref in rows['file'].to_pylist()])"
    )
    done = subprocess.run([sys.executable, "-c", script, f"{tmp_path}/two"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(list(expected([0, 1, 2]).values()))


def test_the_same_rows_are_the_same_version_wherever_they_come_from(tmp_path: Path) -> None:
    versions = set()
    for number in range(3):
        source = pets(f"{tmp_path}/{number}")
        rows = source.table().filter("id > 1").to_arrow()
        target = f"{tmp_path}/{number}" if number < 2 else f"{tmp_path}/elsewhere"
        versions.add(wd.DatasetBuilder("ws/again", target).add_table("main", rows).publish().version)
    plain = wd.DatasetBuilder("ws/again", f"{tmp_path}/plain").add_table("main", ROWS.slice(2))
    versions.add(plain.add_artifact("raw", dict(FILES)).bind("main", "file", "raw").publish().version)
    assert len(versions) == 1


@pytest.mark.parametrize("how", [{"kind": "files"}, {"compression": "zstd"}, {"shard_bytes": 100}])
def test_artifacts_of_every_kind_are_carried(how: dict[str, Any], tmp_path: Path) -> None:
    source = pets(f"{tmp_path}/one", **how)
    for number in range(2):  # also what was carried once
        store = f"memory://{tmp_path.name}-{number}"
        done = wd.DatasetBuilder("ws/pets", store).add_table("main", source.table()).publish()
        assert done.version == source.version, "a whole table keeps its shards"
        source = wd.dataset("ws/pets", store=store)
        assert contents(source) == expected([0, 1, 2, 3, 4, 5])
        assert not wd.verify(source).problems


def test_an_artifact_and_a_table_can_be_given_as_they_are(tmp_path: Path) -> None:
    source = pets(f"{tmp_path}/one")
    builder = wd.DatasetBuilder("ws/again", f"{tmp_path}/two").add_table("plain", source.table().raw())
    builder.add_artifact("photos", source.artifact("raw")).bind("plain", "file", "photos", "image").publish()
    again = wd.dataset("ws/again", store=f"{tmp_path}/two")
    assert (again.tables, again.artifacts) == (("plain",), ("photos",))
    assert contents(again) == expected([0, 1, 2, 3, 4, 5])
    with pytest.raises(BadInputError, match="published as it is"):
        wd.DatasetBuilder("ws/again").add_artifact("raw", source.artifact("raw"), compression="zstd")


def test_a_whole_table_of_any_file_is_copied_byte_for_byte(tmp_path: Path) -> None:
    for number in range(20):  # enough shards for a page
        rows = ROWS.slice(number % 6).append_column("part", pa.array([number] * (6 - number % 6)))
        pq.write_table(rows, tmp_path / f"{number:02d}.parquet", version="1.0", compression="gzip")
    builder = wd.DatasetBuilder("ws/foreign", f"{tmp_path}/one").add_table("main", tmp_path)
    builder.add_artifact("raw", dict(FILES)).bind("main", "file", "raw").publish()
    source = wd.dataset("ws/foreign", store=f"{tmp_path}/one")
    assert source.manifest.tables["main"].shards.pages
    done = wd.DatasetBuilder("ws/foreign", f"{tmp_path}/two").add_table("main", source.table()).publish()
    assert done.version == source.version
    copy = wd.dataset("ws/foreign", store=f"{tmp_path}/two")
    assert not wd.verify(copy).problems
    assert copy.table().raw().to_arrow().equals(source.table().raw().to_arrow())
    wd.DatasetBuilder("ws/foreign", f"{tmp_path}/two").append_table("main", source.table()).publish()
    assert wd.dataset("ws/foreign", store=f"{tmp_path}/two").table().count() == 2 * source.table().count()


def test_bind_names_the_artifact_of_a_reference_column(tmp_path: Path) -> None:
    source = pets(f"{tmp_path}/one")
    for name, ref_type in (("raw", "image"), ("photos", "file")):
        builder = wd.DatasetBuilder(f"ws/{name}", f"{tmp_path}/one").add_table("main", source.table().to_arrow())
        builder.bind("main", "file", name, ref_type).publish()
        again = wd.dataset(f"ws/{name}", store=f"{tmp_path}/one")
        assert again.manifest.bindings == (Binding("main", "file", name, ref_type),)
        assert contents(again) == expected([0, 1, 2, 3, 4, 5])


def test_a_copy_is_verified(tmp_path: Path) -> None:
    source = pets(f"{tmp_path}/one")
    shard = next(source.artifact("raw").shards())
    blob = tmp_path / "one" / blob_key(shard.hash)
    blob.chmod(0o644)
    blob.write_bytes(bytes(len(blob.read_bytes())))
    with pytest.raises(CorruptError, match=shard.hash):
        wd.DatasetBuilder("ws/again", f"{tmp_path}/two").add_table("main", source.table()).publish()
    assert wd.list_datasets(store=f"{tmp_path}/two") == []


def test_repair_never_deletes_the_only_copy(tmp_path: Path) -> None:
    store = f"{tmp_path}/one"
    source = pets(store)
    shard = next(source.artifact("raw").shards())
    blob = tmp_path / "one" / blob_key(shard.hash)
    blob.chmod(0o644)
    blob.write_bytes(bytes(len(blob.read_bytes())))
    with pytest.raises(CorruptError, match=shard.hash):
        wd.DatasetBuilder("ws/again", store).add_table("main", source.table()).publish(repair=True)
    assert blob.exists()
    wd.DatasetBuilder("ws/pets", f"{tmp_path}/two").add_artifact("raw", dict(FILES)).publish()
    valid = wd.dataset("ws/pets", store=f"{tmp_path}/two").artifact("raw")
    wd.DatasetBuilder("ws/again", store).add_artifact("raw", valid).publish(repair=True)
    assert not wd.verify(source).problems, "another store has the bytes"


def test_media_move_to_an_object_store(
    s3_server: S3Endpoint, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pets(f"{tmp_path}/one")
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    store = s3_url
    wd.DatasetBuilder("ws/again", store).add_table("main", source.table().filter("kind = 'x'")).publish()
    assert contents(wd.dataset("ws/again", store=store)) == expected([0, 2, 4])


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(picked=st.lists(st.integers(0, 5), max_size=12), twice=st.booleans())
def test_any_selection_of_rows_keeps_its_files(picked: list[int], twice: bool, tmp_path: Path) -> None:
    store = f"{tmp_path}/store"
    source = pets(store)
    rows = source.table().to_arrow().take(pa.array(picked, pa.int64()))
    rows = pa.concat_tables([rows, rows]) if twice else rows
    wd.DatasetBuilder("ws/again", store).add_table("main", rows).publish()
    read = wd.dataset("ws/again", store=store).table().to_arrow()["file"].to_pylist()
    assert [ref.read_bytes() for ref in read] == [FILES[sorted(FILES)[row]] for row in picked] * (1 + twice)


# Ambiguous


def test_arrow_does_not_join_references_into_different_files(tmp_path: Path) -> None:
    one = pets(f"{tmp_path}/one", "ws/one").table().to_arrow()
    two = pets(f"{tmp_path}/two", "ws/two", {path: data + b"!" for path, data in FILES.items()}).table().to_arrow()
    assert one.schema.field("file").type != two.schema.field("file").type
    with pytest.raises(pa.ArrowInvalid, match="different"):
        pa.concat_tables([one, two])


def test_one_name_never_means_two_artifacts(tmp_path: Path) -> None:
    store = f"{tmp_path}/store"
    one = pets(store, "ws/one")
    two = pets(store, "ws/two", {path: data + b"!" for path, data in FILES.items()})
    both = one.table().to_arrow().append_column("other", two.table().to_arrow()["file"])
    with pytest.raises(BadInputError, match="two artifacts of the name 'raw'") as raised:
        wd.DatasetBuilder("ws/both", store).add_table("main", both).publish()
    assert "bind('main', 'other', …)" in str(raised.value.hint)
    builder = wd.DatasetBuilder("ws/both", store).add_table("main", both)
    builder.bind("main", "other", "raw_two").publish()
    dataset = wd.dataset("ws/both", store=store)
    assert contents(dataset) == expected([0, 1, 2, 3, 4, 5])
    assert contents(dataset, column="other")[3] == expected([3])[3] + b"!"
    with pytest.raises(BadInputError, match="refers to two artifacts: 'raw' of ws/one@"):
        wd.DatasetBuilder("ws/x", store).add_table("main", [one.table(), two.table()]).publish()
    with pytest.raises(BadInputError, match="adds another 'raw'"):
        wd.DatasetBuilder("ws/x", store).add_table("main", one.table()).add_artifact("raw", dict(FILES)).publish()


def test_two_versions_with_the_same_files_are_one_artifact(tmp_path: Path) -> None:
    one, two = pets(f"{tmp_path}/one", "ws/one"), pets(f"{tmp_path}/two", "ws/two")
    wd.DatasetBuilder("ws/both", f"{tmp_path}/two").add_table("main", [one.table(), two.table()]).publish()
    both = wd.dataset("ws/both", store=f"{tmp_path}/two")
    assert (both.artifacts, both.table().count()) == (("raw",), 12)


def test_references_inside_of_lists_are_refused(tmp_path: Path) -> None:
    column = pets(f"{tmp_path}/one").table().to_arrow()["file"].combine_chunks()
    nested = pa.table({"files": pa.ListArray.from_arrays([0, 2, 6], column)})
    with pytest.raises(SchemaMismatchError, match="references inside of list"):
        wd.DatasetBuilder("ws/x", f"{tmp_path}/one").add_table("main", nested).publish()


def test_byte_ranges_and_nulls_are_published_again_from_python_rows(tmp_path: Path) -> None:
    store = f"{tmp_path}/one"
    source = pets(store)
    found = [source.artifact("raw").member(path) for path in ("b.bin", "e.bin")]
    ranges = [{"shard": at.shard, "offset": at.offset, "length": at.size_bytes, "xxh3": at.xxh3} for at in found]
    integers = [(name, pa.int64()) for name in ("shard", "offset", "length")]
    kind = pa.struct([*integers, ("xxh3", pa.uint64())])
    rows = pa.table({"id": [0, 1, 2], "at": pa.array([*ranges, None], kind)})
    builder = wd.DatasetBuilder("ws/ranges", store).add_table("main", rows)
    builder.add_artifact("raw", source.artifact("raw")).bind("main", "at", "raw").publish()
    again = wd.dataset("ws/ranges", store=store).table().to_arrow().to_pylist()
    wd.DatasetBuilder("ws/again", f"{tmp_path}/two").add_table("main", again).publish()
    read = wd.dataset("ws/again", store=f"{tmp_path}/two").table().to_arrow()["at"].to_pylist()
    assert [ref and ref.read_bytes() for ref in read] == [FILES["b.bin"], FILES["e.bin"], None]


def test_a_forged_cell_is_found(tmp_path: Path) -> None:
    column = pets(f"{tmp_path}/one").table().to_arrow()["file"].combine_chunks()
    forged = pa.ExtensionArray.from_storage(column.type, pa.array(["nowhere.bin"]))
    with pytest.raises(InvalidSourceError, match=r"'nowhere\.bin' is not in artifact 'raw'"):
        wd.DatasetBuilder("ws/x", f"{tmp_path}/one").add_table("main", pa.table({"file": forged})).publish()


# Appended


def test_rows_with_references_are_appended_to_a_bound_table(tmp_path: Path) -> None:
    store = f"{tmp_path}/one"
    source = pets(store)
    wd.DatasetBuilder("ws/pets", store).append_table("main", source.table().head(2)).publish()
    assert wd.dataset("ws/pets", store=store).table().count() == 8
    other = pets(f"{tmp_path}/two", "ws/other", {path: data + b"!" for path, data in FILES.items()})
    with pytest.raises(BadInputError, match="the rows refer to files of another artifact 'raw'"):
        wd.DatasetBuilder("ws/pets", store).append_table("main", other.table().head(1)).publish()
    wd.DatasetBuilder("ws/pets", store).append_table("more", source.table().head(1)).publish()
    grown = wd.dataset("ws/pets", store=store)
    assert contents(grown, "more") == expected([0])
    with pytest.raises(BadInputError, match="already has another 'raw'"):
        wd.DatasetBuilder("ws/pets", store).append_table("again", other.table().head(1)).publish()
    wd.DatasetBuilder("ws/pets", store).append_table("again", other.table().head(1)).bind(
        "again", "file", "raw_other"
    ).publish()
    assert contents(wd.dataset("ws/pets", store=store), "again") == {0: expected([0])[0] + b"!"}


# Nothing of the process is stored


def everything(directory: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield all objects of a store as they are, and Parquet files also decoded: their schemas and their rows."""
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield path, data
            if data.endswith(b"PAR1"):
                footer = pq.read_metadata(path).metadata or {}
                yield path, base64.b64decode(footer.get(b"ARROW:schema", b""))
                yield path, str([pq.read_table(path).to_pylist(), footer]).encode()


def test_no_stored_byte_reveals_a_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish every kind of content in many ways, then search every object for locations and state of the process."""
    monkeypatch.setenv("WARP_AUTHOR", "author")
    secret = tmp_path / "whereabouts-of-this-store"
    stores = [secret / "one", secret / "two"]
    images = secret / "source-images"
    images.mkdir(parents=True)
    for path, data in FILES.items():
        (images / path).write_bytes(data)
    for store in stores:
        builder = wd.DatasetBuilder("ws/pets", str(store)).add_table("main", ROWS)
        builder.add_artifact("raw", images).bind("main", "file", "raw", "image").publish()
    source = wd.dataset("ws/pets", store=str(stores[0]), mode="auto")
    rows = source.table().to_arrow()
    pq.write_table(rows, secret / "rows.parquet")
    steps = Channel("x", np.arange(4, dtype=np.float32).reshape(-1, 1))
    episode = Episode("ep", 4, "env", Timebase("ticks", 30.0), observations={"x": steps})
    wd.wshard.save_wshard(episode, secret / "one.wshard")
    for store in stores:
        shapes: list[Any] = [
            rows,
            rows.filter(pc.field("id") > 2),
            source.table(),
            [source.table().head(1), rows.to_batches()[0]],
            rows.to_reader(),
            pa.RecordBatchReader.from_stream(rows),
            secret / "rows.parquet",
        ]
        for number, shape in enumerate(shapes):
            builder = wd.DatasetBuilder(f"ws/again{number}", str(store)).add_table("main", shape)
            builder.add_artifact("more", source.artifact()).publish()
        builder = wd.DatasetBuilder("ws/rest", str(store)).add_table("main", secret / "rows.parquet", rewrite=True)
        builder.add_episodes("demos", [secret / "one.wshard"]).add_episodes("saved", episode)
        builder.add_tensors("weights", {"w": np.arange(8.0)}).publish(label="v1")
        wd.DatasetBuilder("ws/pets", str(store)).append_table("main", rows.slice(0, 1)).publish()
    assert count_clean(stores, tmp_path, source.version) > 100


def test_no_byte_of_an_edit_or_a_sample_reveals_a_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_AUTHOR", "author")
    secret = tmp_path / "whereabouts-of-this-store"
    store, other = f"{secret}/one", f"{secret}/two"
    dataset = pets(store)
    file = secret / "source.bin"
    file.write_bytes(b"new")
    with dataset.edit("change files") as edit:
        edit.add_files("raw", {"g.bin": file})
        edit.delete("main", "id = 3")
        edit.append("main", pa.table({"id": [9], "kind": ["x"], "file": ["g.bin"]}))
        edit.add_column("main", "score", wd.expr("id * 2"))
    writer = wd.create("ws/samples", wd.Schema(x=wd.Integer(), data=wd.File()), store=store)
    writer.append_many([{"x": n, "data": file} for n in range(3)])
    wd.copy("ws/pets", other, store=store, history=True)
    wd.copy("ws/pets", name="ws/copy", store=store)
    wd.rename("ws/copy", "ws/renamed", store=store)
    wd.pin("ws/pets", "job", store=store)
    wd.dataset("ws/pets", store=store).compact()
    wd.dataset("ws/pets", store=store).branch("side")
    wd.remove("ws/pets@side", store=store)
    wd.gc(store, keep="last 1", dry_run=False)
    assert count_clean([Path(store), Path(other)], tmp_path, dataset.version) > 40


def count_clean(stores: list[Path], tmp_path: Path, version: str) -> int:
    """Search all objects for locations and state of the process. Return how many there are."""
    words = ["whereabouts", str(tmp_path), "file://", "staging-", '"auto"', "warpdata.ref", sys.executable]
    words += [socket.gethostname(), str(Path.home()), f"/{getpass.getuser()}/", version]
    found = 0
    for directory in stores:
        for stored, data in everything(directory):
            found += 1
            for word in words:
                is_record = word == version and "datasets/ws/pets" in str(stored)
                assert is_record or word.encode() not in data, (stored, word)
    return found
