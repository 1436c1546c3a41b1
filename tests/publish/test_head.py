"""If this fails, a publish drops a part of the dataset without a word, or uploads bytes that it then refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import link, memory, rows
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ColumnNotFoundError,
    ConflictError,
    ErrorKind,
    InvalidSourceError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.repository.manifest import Binding
from warpdata.storage import open_store
from warpdata.testing import FaultyStore
from warpdata.wshard import Channel, Episode, Timebase

FILES = {"a.bin": b"aaa", "b.bin": b"bbb"}
PATHS = pa.table({"file": [*FILES]})


def whole(store: Any, dataset_id: str = "a/b", without: str = "", first: int = 0) -> wd.DatasetBuilder:
    """Return a builder with an entry of every kind and a binding, or all of these but one."""
    builder = wd.DatasetBuilder(dataset_id, store).add_table("main", PATHS)
    if without != "tables":
        builder.add_table("other", rows(first))
    if without != "artifacts":
        builder.add_artifact("raw", dict(FILES))
    if without not in ("artifacts", "bindings"):
        builder.bind("main", "file", "raw")
    if without != "episodes":
        steps = Channel("x", np.arange(4, dtype=np.float32).reshape(-1, 1))
        builder.add_episodes("demos", Episode("ep", 4, "env", Timebase("ticks", 30.0), observations={"x": steps}))
    if without != "tensors":
        builder.add_tensors("weights", {"w": np.arange(4.0)})
    return builder


@pytest.fixture(autouse=True)
def published(tmp_path: Path) -> str:
    """The URL of a store with a whole dataset. Each test has its own."""
    url = f"{tmp_path}/store"
    whole(url).publish()
    return url


def opened(url: str) -> wd.Dataset:
    return wd.dataset("a/b", store=url)


def keys(url: str) -> list[str]:
    return sorted(item.key for item in wd.connect(url).reader.list_objects(""))


# A publish that would remove something


def test_a_publish_that_would_remove_something_says_what_and_changes_nothing(published: str) -> None:
    before, version = keys(published), opened(published).version
    with pytest.raises(BadInputError) as raised:
        wd.DatasetBuilder("a/b", published).add_table("new", rows(5)).publish()
    assert raised.value.kind is ErrorKind.WOULD_REMOVE
    for gone in ("table 'main'", "table 'other'", "artifact 'raw'", "episodes 'demos'", "tensors 'weights'"):
        assert gone in raised.value.message
    assert "keep=True" in str(raised.value.hint)
    assert "replace=True" in str(raised.value.hint)
    with pytest.raises(BadInputError, match="would remove"):
        wd.DatasetBuilder("a/b", published).add_table("new", rows(5)).plan()
    assert (keys(published), opened(published).version) == (before, version)


@pytest.mark.parametrize("section", ["tables", "artifacts", "episodes", "tensors", "bindings"])
def test_each_kind_of_entry_is_guarded(published: str, section: str) -> None:
    """Leave out one entry, then say so."""
    with pytest.raises(BadInputError, match="would remove") as raised:
        whole(published, without=section).publish()
    if section == "bindings":
        assert "the binding of main.file to 'raw'" in raised.value.message
        assert "Bind the columns" in str(raised.value.hint)
    assert whole(published, without=section).publish(replace=True).changed
    whole(published).publish()
    done = whole(published, without=section).publish(keep=True)
    assert not done.changed, "what is kept is what was there"


def test_replace_leaves_exactly_what_was_given(published: str) -> None:
    wd.DatasetBuilder("a/b", published).add_table("new", rows(5)).publish(replace=True)
    dataset = opened(published)
    assert (dataset.tables, dataset.artifacts, dataset.manifest.bindings) == (("new",), (), ())


def test_changing_content_is_no_removal(published: str) -> None:
    builder = whole(published)
    builder._sources["tables"]["other"] = (
        wd.DatasetBuilder("a/b", published).add_table("x", rows(9))._sources["tables"]["x"]
    )
    assert builder.publish().changed


def test_a_rival_that_adds_an_entry_is_a_conflict() -> None:
    """Between the check and the commit another writer adds a table. The publish must not remove it."""
    store = memory("rival-adds")
    wd.DatasetBuilder("a/b", link(store)).add_table("main", rows(0)).publish()

    class Overtaken(FaultyStore):
        has_rival = True

        def create(self, key: str, data: bytes) -> bool:
            if "/heads/" in key and self.has_rival:
                self.has_rival = False
                wd.DatasetBuilder("a/b", link(store, 5)).add_table("more", rows(7)).publish(keep=True)
            return super().create(key, data)

    with pytest.raises(ConflictError, match=r"another commit was first: .* would remove from a/b: table 'more'"):
        wd.DatasetBuilder("a/b", link(Overtaken(store), 1)).add_table("main", rows(50)).publish()


# Keeping the head


def test_keep_adds_and_replaces_entries_and_leaves_the_rest(published: str) -> None:
    before = opened(published).manifest
    wd.DatasetBuilder("a/b", published).add_table("new", rows(5)).add_table("other", rows(9)).publish(keep=True)
    after = opened(published).manifest
    assert set(after.tables) == {"main", "other", "new"}
    assert after.tables["other"] != before.tables["other"]
    assert (after.tables["main"], after.artifacts, after.episodes, after.tensors, after.bindings) == (
        before.tables["main"],
        before.artifacts,
        before.episodes,
        before.tensors,
        before.bindings,
    )
    again = wd.DatasetBuilder("a/b", published).add_table("new", rows(5)).publish(keep=True)
    assert not again.changed


def test_append_and_add_in_one_publish(published: str) -> None:
    builder = wd.DatasetBuilder("a/b", published).append_table("other", rows(100)).add_artifact("more", {"c.bin": b"c"})
    builder.append_table("notes", {"file": ["c.bin"]}).bind("notes", "file", "more").publish()
    dataset = opened(published)
    assert dataset.artifacts == ("more", "raw")
    assert dataset.table("other").count() == 8
    assert dataset.table("notes").to_arrow()["file"][0].as_py().read_bytes() == b"c"
    assert dataset.table("main").to_arrow()["file"][0].as_py().read_bytes() == b"aaa"


def test_a_stored_table_can_be_bound_later(published: str) -> None:
    wd.DatasetBuilder("a/b", published).add_table("late", PATHS).publish(keep=True)
    builder = wd.DatasetBuilder("a/b", published).add_artifact("raw2", dict(FILES))
    builder.bind("late", "file", "raw2").publish(keep=True)
    assert Binding("late", "file", "raw2", "file") in opened(published).manifest.bindings
    builder = wd.DatasetBuilder("a/b", published).add_artifact("raw3", {"a.bin": b"1"}).bind("late", "file", "raw3")
    with pytest.raises(InvalidSourceError, match=r"row 1 of the stored table 'late' .*'b\.bin' is not in"):
        builder.publish(keep=True)


def test_an_artifact_that_tables_need_is_not_replaced_by_a_smaller_one(published: str) -> None:
    builder = wd.DatasetBuilder("a/b", published).add_artifact("raw", {"a.bin": b"new"})
    with pytest.raises(InvalidSourceError, match=r"'b\.bin' is not in artifact 'raw'"):
        builder.publish(keep=True)
    larger = {**FILES, "c.bin": b"ccc"}
    wd.DatasetBuilder("a/b", published).add_artifact("raw", larger).publish(keep=True)
    assert len(opened(published).artifact("raw")) == 3


def test_a_replaced_table_with_references_of_another_artifact_is_bound_by_name(published: str) -> None:
    other = wd.DatasetBuilder("a/other", published).add_table("main", PATHS)
    other.add_artifact("raw", {path: data + b"!" for path, data in FILES.items()}).bind("main", "file", "raw").publish()
    rows_of_other = wd.dataset("a/other", store=published).table().to_arrow()
    with pytest.raises(BadInputError, match="refer to files of another artifact") as raised:
        wd.DatasetBuilder("a/b", published).add_table("main", rows_of_other).publish(keep=True)
    assert "bind('main', 'file', …)" in str(raised.value.hint)
    builder = wd.DatasetBuilder("a/b", published).add_table("main", rows_of_other)
    builder.bind("main", "file", "raw_other").publish(keep=True)
    assert opened(published).table("main").to_arrow()["file"][0].as_py().read_bytes() == b"aaa!"


def test_a_kept_binding_needs_its_column(published: str) -> None:
    with pytest.raises(ColumnNotFoundError, match="no column 'file' to bind"):
        wd.DatasetBuilder("a/b", published).add_table("main", rows(0)).publish(keep=True)


def test_keep_on_a_new_dataset_is_a_plain_publish(published: str) -> None:
    plain = whole(published, "a/plain").publish()
    kept = whole(f"{published}-2", "a/plain").publish(keep=True)
    assert plain.version == kept.version


def test_modes_that_contradict_are_refused(published: str) -> None:
    with pytest.raises(BadInputError, match="replace=True does not mix with append_table"):
        wd.DatasetBuilder("a/b", published).append_table("main", PATHS).publish(replace=True)
    with pytest.raises(BadInputError, match="replace=True does not mix with keep=True"):
        wd.DatasetBuilder("a/b", published).add_table("main", PATHS).publish(replace=True, keep=True)


# Checks before the upload

REFUSALS: dict[str, tuple[Callable[[Any], object], type[WarpError]]] = {
    "another expected version": (
        lambda store: whole(store).add_table("big", rows(0)).publish(expected_version="0" * 64),
        ConflictError,
    ),
    "an append of another type": (
        lambda store: wd.DatasetBuilder("a/b", store).append_table("other", {"n": ["text"]}).publish(),
        SchemaMismatchError,
    ),
    "an append of another column": (
        lambda store: wd.DatasetBuilder("a/b", store).append_table("other", {"m": [1]}).publish(),
        SchemaMismatchError,
    ),
    "an appended path that is not in the artifact": (
        lambda store: wd.DatasetBuilder("a/b", store).append_table("main", {"file": ["c.bin"]}).publish(),
        InvalidSourceError,
    ),
    "a removal": (lambda store: wd.DatasetBuilder("a/b", store).add_table("x", rows(77)).publish(), BadInputError),
    "a branch that does not exist": (lambda store: whole(store).publish(branch="nowhere"), WarpError),
    "a label of another version": (
        lambda store: wd.DatasetBuilder("a/b", store).append_table("other", rows(78)).publish(label="taken"),
        AlreadyExistsError,
    ),
    "a binding of an unknown table": (
        lambda store: wd.DatasetBuilder("a/b", store).add_table("x", rows(79)).bind("y", "n", "raw").publish(keep=True),
        BadInputError,
    ),
    "a binding of an unknown artifact": (
        lambda store: wd.DatasetBuilder("a/b", store).add_table("x", PATHS).bind("x", "file", "q").publish(keep=True),
        BadInputError,
    ),
    "an artifact that leaves references dangling": (
        lambda store: wd.DatasetBuilder("a/b", store).add_artifact("raw", {"a.bin": b"other"}).publish(keep=True),
        InvalidSourceError,
    ),
    "a message that is too long": (lambda store: whole(store).publish("m" * 10**6), BadInputError),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_publish_leaves_no_object(case: str, published: str) -> None:
    opened(published).snapshot("taken")
    before = keys(published)
    refused, error = REFUSALS[case]
    with pytest.raises(error):
        refused(published)
    assert keys(published) == before


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_publish_writes_nothing(case: str, tmp_path: Path) -> None:
    """Count the writes: an object that is written and deleted again would leave no trace in a listing."""
    inner = open_store(f"memory://refused-{tmp_path.name}", wd.load_settings())
    whole(link(inner)).publish()
    wd.DatasetBuilder("a/b", link(inner, 3)).append_table("other", rows(1)).publish(label="taken")
    counting = FaultyStore(inner)
    refused, error = REFUSALS[case]
    with pytest.raises(error):
        refused(link(counting, 4))
    written = [
        operation for operation in counting.log if operation.name in ("create", "create_file", "replace", "delete")
    ]
    assert written == []
