"""If this fails, an edit loses files of an artifact, invents some, reads others, or breaks rows that refer to them."""

from __future__ import annotations

import io
import secrets
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.edit import MergePolicy
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ConflictError,
    InvalidSourceError,
    MergeConflictError,
    NotFoundError,
    SchemaMismatchError,
)
from warpdata.limits import MEMBER_CHUNK_BYTES

Files = dict[str, bytes]

FORMS: dict[str, dict[str, Any]] = {
    "tar": {},
    "small tars": {"shard_bytes": 4},
    "zstd": {"compression": "zstd"},
    "files": {"kind": "files"},
}

paths = st.sampled_from(["a", "a/b", "a/c", "b/é", "c", "d/1", "d/2", "z"])
contents = st.binary(max_size=6)
steps = st.lists(st.tuples(paths, st.none() | contents), max_size=5)
"""Changes of one edit: a path with new content, or None to remove it."""


def publish(files: Files, form: str = "tar", **tables: pa.Table) -> wd.Dataset:
    """Publish an artifact in a store of its own."""
    store = f"memory://{secrets.token_hex(8)}"
    builder = wd.DatasetBuilder("acme/media", store).add_artifact("raw", files, **FORMS[form])
    for name, table in tables.items():
        builder.add_table(name, table).bind(name, "file", "raw")
    builder.publish()
    return reopen(store)


def reopen(store: str, address: str = "acme/media") -> wd.Dataset:
    return wd.dataset(address, store=store)


def store_of(dataset: wd.Dataset) -> str:
    return dataset.session.reader.url


def read_all(dataset: wd.Dataset) -> Files:
    """Read every file, and check that the index has no other shards than the members need."""
    artifact = dataset.artifact("raw")
    members = list(artifact.members())
    assert [member.path for member in members] == sorted((member.path for member in members), key=str.encode)
    assert {member.shard for member in members} == set(range(artifact.entry.shards.shard_count))
    assert len(artifact) == len(members)
    assert wd.verify("acme/media", store=store_of(dataset)).problems == ()
    return dict(zip([m.path for m in members], artifact.read_many([m.path for m in members]), strict=True))


def apply(edit: wd.Edit, files: Files, changes: list[tuple[str, bytes | None]]) -> Files:
    """Make each change if it is possible, and expect the right error otherwise. Return the files after it."""
    files = dict(files)
    for path, content in changes:
        if content is None and path in files:
            assert edit.remove_files("raw", [path]) == 1
            del files[path]
        elif content is None:
            with pytest.raises(NotFoundError, match="no member"):
                edit.remove_files("raw", [path])
        elif path in files:
            with pytest.raises(AlreadyExistsError):
                edit.add_files("raw", {path: content})
        else:
            assert edit.add_files("raw", {path: content}) == 1
            files[path] = content
    return files


@settings(max_examples=12)
@given(st.dictionaries(paths, contents, min_size=1), st.lists(steps, max_size=3), st.sampled_from(list(FORMS)))
def test_edits_equal_a_dictionary(files: Files, edits: list[list[tuple[str, bytes | None]]], form: str) -> None:
    dataset = publish(files, form)
    for changes in edits:
        with dataset.edit("change files") as edit:
            files = apply(edit, files, changes)
        dataset = reopen(store_of(dataset))
        assert dataset.version == edit.version
        assert read_all(dataset) == files


def merged(base: Files, ours: Files, theirs: Files, policy: str) -> Files | None:
    """Merge dictionaries; None for a conflict."""
    out: Files = {}
    for path in base | ours | theirs:
        before, mine, other = base.get(path), ours.get(path), theirs.get(path)
        if mine != before and other not in (before, mine):
            if policy == "fail":
                return None
            kept = mine if policy == "ours" else other
        else:
            kept = other if mine == before else mine
        if kept is not None:
            out[path] = kept
    return out


@settings(max_examples=20)
@example({"a": b"1"}, [("b/é", b"2"), ("c", b"3")], [("a/b", b"4"), ("z", b"5"), ("a", None)], "fail", "tar")
@example({"a": b"1", "z": b"2"}, [("a", None), ("a", b"3")], [("a", None), ("a", b"4"), ("c", b"5")], "theirs", "files")
@example({"a": b"1", "z": b"2"}, [("a", None)], [("a", None), ("a", b"4"), ("c", b"5")], "ours", "zstd")
@given(
    st.dictionaries(paths, contents, min_size=1),
    steps,
    steps,
    st.sampled_from(["fail", "ours", "theirs"]),
    st.sampled_from(list(FORMS)),
)
def test_merges_equal_dictionaries(
    base: Files,
    ours: list[tuple[str, bytes | None]],
    theirs: list[tuple[str, bytes | None]],
    policy: MergePolicy,
    form: str,
) -> None:
    dataset = publish(base, form)
    other = dataset.branch("other")
    with dataset.edit("ours") as edit:
        mine = apply(edit, base, ours)
    with other.edit("theirs", branch="other") as edit:
        its = apply(edit, base, theirs)
    expected = merged(base, mine, its, str(policy))
    head = reopen(store_of(dataset))
    if expected is None:
        with pytest.raises(MergeConflictError, match="file '"):
            head.merge("other", policy=policy)
        expected = mine
    else:
        head.merge("other", policy=policy)
    assert read_all(reopen(store_of(dataset))) == expected


def test_concurrent_edits_keep_the_files_of_both() -> None:
    dataset = publish({"a": b"1"})
    with dataset.edit("one") as first, dataset.edit("two") as second:
        first.add_files("raw", {"b": b"2"})
        second.add_files("raw", {"c": b"3"})
        second.remove_files("raw", ["a"])
    assert read_all(reopen(store_of(dataset))) == {"b": b"2", "c": b"3"}
    third = dataset.edit("three")
    third.add_files("raw", {"d": b"4"})
    with reopen(store_of(dataset)).edit("four") as fourth:
        fourth.add_files("raw", {"d": b"5"})
    with pytest.raises(ConflictError, match="file 'd' of artifact 'raw'"):
        third.save()
    third.discard()


@pytest.mark.parametrize("form", ["tar", "zstd", "files"])
def test_large_files_keep_their_chunks(form: str, tmp_path: Path) -> None:
    large = secrets.token_bytes(MEMBER_CHUNK_BYTES + 1000)
    (tmp_path / "big").write_bytes(large[::-1])
    dataset = publish({"a/large": large, "b": b"1"}, form)
    with dataset.edit("more") as edit:
        edit.add_files("raw", {"c/large": tmp_path / "big", "0": str(tmp_path / "big")})
        edit.remove_files("raw", ["b"])
    dataset = reopen(store_of(dataset))
    assert read_all(dataset) == {"a/large": large, "c/large": large[::-1], "0": large[::-1]}
    with dataset.artifact("raw").open("a/large") as file:
        file.seek(MEMBER_CHUNK_BYTES - 2)
        assert file.read(5) == large[MEMBER_CHUNK_BYTES - 2 : MEMBER_CHUNK_BYTES + 3]


def test_existing_tars_get_another_tar(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        info = tarfile.TarInfo("0.txt")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"old"))
    store = f"memory://{secrets.token_hex(8)}"
    builder = wd.DatasetBuilder("acme/media", store)
    builder.add_artifact("raw", [tmp_path / "0.tar"], "webdataset_shards").publish()
    with reopen(store).edit("more") as edit:
        edit.add_files("raw", {"1.txt": b"new"})
    dataset = reopen(store)
    assert read_all(dataset) == {"0.txt": b"old", "1.txt": b"new"}
    assert dataset.artifact("raw").entry.kind == "webdataset_shards"


def test_rows_and_their_files_go_together() -> None:
    dataset = publish({"a": b"1", "b": b"2"}, main=pa.table({"file": ["a", "b"]}))
    store = store_of(dataset)

    def refused(change: Callable[[wd.Edit], object], problem: str) -> None:
        with pytest.raises(InvalidSourceError, match=problem), reopen(store).edit("refused") as edit:
            change(edit)
        assert reopen(store).version == dataset.version

    refused(lambda edit: edit.remove_files("raw", ["a"]), "'a' is not in artifact 'raw'")
    refused(lambda edit: edit.append("main", {"file": ["c"]}), "'c' is not in artifact 'raw'")
    with dataset.edit("both") as edit:
        edit.append("main", {"file": ["c"]})
        edit.add_files("raw", {"c": b"3"})
        edit.delete("main", "file = 'a'")
        edit.remove_files("raw", ["a"])
    dataset = reopen(store)
    assert read_all(dataset) == {"b": b"2", "c": b"3"}
    assert [ref.read_bytes() for ref in dataset.table().to_arrow()["file"].to_pylist()] == [b"2", b"3"]


def test_a_bound_column_is_not_cast_to_a_type_without_references() -> None:
    """A committed one could not be read any more."""
    dataset = publish({"1": b"one"}, rows=pa.table({"file": ["1"]}))
    edit = dataset.edit()
    edit.cast("rows", "file", "int64")
    with pytest.raises(SchemaMismatchError, match="cannot hold references"):
        edit.save()
    edit.discard()
    with dataset.edit() as edit:
        edit.cast("rows", "file", "large_string")
    assert reopen(store_of(dataset)).table("rows")[0]["file"].read_bytes() == b"one"


def test_a_removal_is_checked_against_rows_of_other_writers() -> None:
    dataset = publish({"a": b"1", "b": b"2"}, main=pa.table({"file": ["a"]}))
    edit = dataset.edit("remove")
    edit.remove_files("raw", ["b"])
    with dataset.edit("append") as other:
        other.append("main", {"file": ["b"]})
    with pytest.raises(InvalidSourceError, match="'b' is not in"):
        edit.save()
    edit.discard()
    assert reopen(store_of(dataset)).version == other.version


def test_byte_ranges_stay_true() -> None:
    """Rows that name shards by number must never read another shard."""
    probe = publish({"a": b"1111", "b": b"2222", "c": b"3333"}, "files")
    cells = [{"shard": 2, "offset": 0, "length": 4}]
    store = f"memory://{secrets.token_hex(8)}"
    builder = wd.DatasetBuilder("acme/media", store).add_artifact("raw", probe.artifact("raw"))
    builder.add_table("main", pa.table({"file": cells})).bind("main", "file", "raw").publish()
    reopen(store).branch("other")
    with reopen(store).edit("remove") as edit:
        edit.remove_files("raw", ["a"])
    (ref,) = reopen(store).table().to_arrow()["file"].to_pylist()
    assert ref.read_bytes() == b"3333"
    with reopen(store, "acme/media@other").edit("add", branch="other") as edit:
        edit.add_files("raw", {"d": b"4444"})
    with pytest.raises(ConflictError, match="both sides changed 'raw'"):
        reopen(store).merge("other")


def test_a_new_artifact_and_invalid_files() -> None:
    dataset = publish({"a": b"1"})
    store = store_of(dataset)
    for files in ({"../x": b""}, {"x": 3}, {"x": "no such file"}, {"/x": b""}):
        with pytest.raises(BadInputError), dataset.edit("refused") as edit:
            edit.add_files("raw", files)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="no artifact 'rew'"), dataset.edit("refused") as edit:
        edit.remove_files("rew", ["a"])
    assert reopen(store).version == dataset.version
    with dataset.edit("create") as edit:
        edit.add_files("more", {"x": b"y"})
    assert reopen(store).artifact("more").read("x") == b"y"
    assert edit.summary.files_added == {"more": 1}


def test_old_shards_are_not_read_and_the_index_in_large_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = publish({f"{n:05d}": b"1" for n in range(10_000)})
    blobs = {shard.hash for shard in dataset.artifact("raw").shards()}
    seen: list[str] = []
    store = dataset.session.reader
    for name in ("read", "read_range", "read_ranges", "stream"):
        plain = getattr(type(store), name)

        def watched(self: Any, key: str, *rest: Any, plain: Any = plain, **keywords: Any) -> Any:
            seen.append(key)
            return plain(self, key, *rest, **keywords)

        monkeypatch.setattr(type(store), name, watched)
    with dataset.edit("more") as edit:
        edit.add_files("raw", {"new": b"1"})
        edit.remove_files("raw", ["00007"])
    assert seen
    assert not [key for key in seen if key.rpartition("/")[2] in blobs]
    assert len(seen) < 40


def test_a_function_reads_files_that_the_same_edit_has_added(tmp_path: Path) -> None:
    (tmp_path / "3").write_bytes(b"third")
    opened = publish({"1": b"one", "2": b"second"}, main=pa.table({"file": ["1", "2"]}))
    with opened.edit() as edit:
        edit.remove_files("raw", ["1"])
        edit.add_files("raw", {"1": b"another"})
        edit.add_files("raw", {"3": tmp_path / "3"})
        edit.append("main", {"file": ["3"]})
        edit.add_column("main", "size", lambda batch: [len(ref.read_bytes()) for ref in batch["file"].to_pylist()])
    newest = reopen(store_of(opened))
    assert newest.table().to_arrow()["size"].to_pylist() == [7, 6, 5]
    assert newest.artifact("raw").read("3") == b"third"
    assert newest.artifact("raw").read("1") == b"another"
    assert not wd.verify(newest).problems
