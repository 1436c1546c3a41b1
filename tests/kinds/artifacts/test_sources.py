"""If this fails, a file of a directory is skipped silently, or a member path leaves its directory.

Every source becomes a list of files with member paths, or an error that names the invalid one.
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from tests.kinds.artifacts.scenes import member_paths, recipes
from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.kinds.artifacts import FilesInput, check_member_path, list_sources, write_index
from warpdata.kinds.artifacts.source_files import read_pieces
from warpdata.limits import MAX_MEMBER_NAME_BYTES


def named(source: FilesInput, prefix: str = "") -> dict[str, bytes]:
    found = list_sources(source, prefix)
    assert [member.path for member in found] == sorted((member.path for member in found), key=str.encode)
    contents = {member.path: b"".join(read_pieces(member)) for member in found}
    assert {member.path: member.size_bytes for member in found} == {path: len(data) for path, data in contents.items()}
    return contents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    for path, content in {"b": b"1", "a/x": b"22", "a/é/y": b"", "a.b": b"4444", ".hidden": b"5"}.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(content)
    (made / "no files in here" / "nor here").mkdir(parents=True)
    return made


FOUND = {"b": b"1", "a/x": b"22", "a/é/y": b"", "a.b": b"4444", ".hidden": b"5"}


def test_a_folder_gives_every_file_below_it(folder: Path) -> None:
    assert named(folder) == named(str(folder)) == FOUND


def test_a_prefix_goes_before_every_path(folder: Path) -> None:
    assert named(folder, "images/") == {f"images/{path}": content for path, content in FOUND.items()}


def test_files_are_called_by_their_last_name(folder: Path) -> None:
    assert named([folder / "b", str(folder / "a" / "x")]) == {"b": b"1", "x": b"22"}
    assert named(folder / "b") == {"b": b"1"}
    assert named(file for file in [folder / "a" / "x"]) == {"x": b"22"}


def test_a_mapping_chooses_names_and_may_hold_bytes(folder: Path) -> None:
    given_names = {"z/from file": folder / "a" / "x", "from text": str(folder / "b"), "bytes": b"own", "no bytes": b""}
    assert named(given_names) == {"z/from file": b"22", "from text": b"1", "bytes": b"own", "no bytes": b""}


def test_the_home_folder_may_be_written_as_a_tilde(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert named("~/a") == {"x": b"22", "é/y": b""}
    assert named(["~/b"]) == {"b": b"1"}
    assert named({"name": "~/b"}) == {"name": b"1"}


def test_a_link_to_a_file_is_the_file(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "a" / "x")
    assert named(folder) == {**FOUND, "link": b"22"}
    assert named([folder / "link"]) == {"link": b"22"}


def test_a_folder_that_is_a_link_itself_may_be_given(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "also").symlink_to(folder)
    assert named(tmp_path / "also") == FOUND


def test_a_deep_folder_needs_no_deep_stack(tmp_path: Path) -> None:
    deep = "d/" * 150
    (tmp_path / deep).mkdir(parents=True)
    (tmp_path / deep / "file").write_bytes(b"x")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = [member.path for member in list_sources(tmp_path)]
    finally:
        sys.setrecursionlimit(before)
    assert found == [f"{deep}file"]


# Refused


def _link_to_folder(folder: Path) -> None:
    (folder / "culprit").symlink_to(folder / "a")


def _link_to_nothing(folder: Path) -> None:
    (folder / "culprit").symlink_to(folder / "nothing")


def _link_to_itself(folder: Path) -> None:
    (folder / "culprit").symlink_to("culprit")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "culprit")


def _socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(folder)
        try:
            made.bind("culprit")
        finally:
            os.chdir(here)


def _device(folder: Path) -> None:
    (folder / "culprit").symlink_to("/dev/null")


@pytest.mark.parametrize("spoil", [_link_to_folder, _link_to_nothing, _link_to_itself, _pipe, _socket, _device])
def test_what_is_no_plain_file_is_refused_by_name(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder)
    with pytest.raises(InvalidSourceError, match="culprit"):
        list_sources(folder)
    if spoil is not _link_to_folder:
        with pytest.raises(InvalidSourceError, match="culprit"):
            list_sources([folder / "culprit"])


def test_a_file_name_that_is_not_utf8_is_refused_by_name(folder: Path) -> None:
    try:
        (folder / os.fsdecode(b"caf\xe9")).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system knows no such names")
    with pytest.raises(BadInputError, match=r"caf\\udce9") as caught:
        list_sources(folder)
    assert str(caught.value).encode(), "the message itself can be printed"


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    with pytest.raises(InvalidSourceError, match="empty contains no file"):
        list_sources(tmp_path / "empty")
    with pytest.raises(InvalidSourceError, match="contains no file"):
        list_sources({})


@pytest.mark.parametrize("missing", ["nowhere", "nowhere/file", "folder/b/below a file", "zero\0byte"])
def test_a_path_that_is_not_there_is_refused(folder: Path, missing: str) -> None:
    for source in (folder.parent / missing, [folder.parent / missing], {"name": folder.parent / missing}):
        with pytest.raises(InvalidSourceError, match=r"nowhere|below a file|zero\\x00byte"):
            list_sources(source)


FORBIDDEN = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../up",
    "a/../b",
    "a/..",
    ".",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "//a",
    "zero\0byte",
    "half a \ud800 pair",
    "n" * (MAX_MEMBER_NAME_BYTES + 1),
    "é" * (MAX_MEMBER_NAME_BYTES // 2 + 1),
]


@pytest.mark.parametrize("path", FORBIDDEN, ids=lambda path: repr(path)[:30])
def test_a_name_that_is_not_allowed_is_refused_and_shown(path: str) -> None:
    with pytest.raises(BadInputError) as caught:
        list_sources({path: b"content"})
    assert repr(path[:80])[1:-1] in caught.value.message
    assert "the mapping" in caught.value.message


def test_a_prefix_outside_the_artifact_is_refused(folder: Path) -> None:
    for prefix in ("/", "../", "a//"):
        with pytest.raises(BadInputError, match=prefix):
            list_sources(folder, prefix)


@pytest.mark.parametrize("path", ["n" * MAX_MEMBER_NAME_BYTES, "...", "..a", "a..", " ", "\n", "a\\..\\b", "C:x"])
def test_a_name_that_only_looks_odd_is_allowed(path: str) -> None:
    assert check_member_path(path, "here") == path


@given(member_paths)
def test_a_name_is_kept_as_it_is(path: str) -> None:
    assert check_member_path(path, "here") == path
    assert list(named({path: b"x"})) == [path]


def test_two_files_of_one_name_are_refused_and_both_are_named(folder: Path, tmp_path: Path) -> None:
    """Not while listing, as two archives may well be called alike; but before anything is sent."""
    (folder / "a" / "b").write_bytes(b"another")
    (recipe,) = recipes([folder / "b", folder / "a" / "b"])
    with pytest.raises(InvalidSourceError) as caught:
        write_index(recipe.measure().members, 1, tmp_path / "members")
    assert "'b'" in caught.value.message
    assert str(folder / "b") in caught.value.message
    assert str(folder / "a" / "b") in caught.value.message


def test_every_refusal_is_the_callers_to_mend() -> None:
    assert issubclass(BadInputError, BadInputError)
    assert issubclass(InvalidSourceError, BadInputError)
