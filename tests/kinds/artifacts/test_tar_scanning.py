"""If this fails, a valid archive loses members, or gets them under other names.

Archives by `tarfile` and by the `tar` program, in all their formats, are compared with the members that those list.
tests/malformed/test_tars.py has the archives that must be refused.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds.artifacts.scenes import member_paths
from tests.kinds.artifacts.tars import END, GNU, V7, archive, entry, extended, header, long_name, padded
from warpdata.kinds.artifacts import PackedShard, scan_tar
from warpdata.limits import MAX_MEMBER_NAME_BYTES, MEMBER_CHUNK_BYTES

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}

needs_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="this machine has no tar")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property: each writes its own files over those of the last."""
    return tmp_path_factory.mktemp("tars")


def scan(folder: Path, data: bytes) -> PackedShard:
    path = folder / "archive.tar"
    path.write_bytes(data)
    return scan_tar(path, 3)


def found_in(folder: Path, data: bytes) -> dict[str, bytes]:
    return contents_of(scan(folder, data), data)


def contents_of(shard: PackedShard, data: bytes) -> dict[str, bytes]:
    """Contents by the places that were found; every checksum is compared."""
    assert shard.fingerprint.blob.hash == sha256(data).hexdigest()
    assert shard.fingerprint.blob.byte_size == len(data)
    assert shard.fingerprint.quick == xxhash.xxh3_128_hexdigest(data)
    out = {}
    for found in shard.members:
        member = found.member
        assert (member.shard, member.stored_bytes) == (3, member.size_bytes)
        out[member.path] = data[member.offset : member.offset + member.size_bytes]
        if not found.chunks:
            assert member.xxh3 == xxhash.xxh3_64_intdigest(out[member.path])
    assert len(out) == len(shard.members)
    return out


def library_view(data: bytes) -> list[tuple[str, int, int]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(info.name.removeprefix("./"), info.size, info.offset_data) for info in tar if info.isreg()]


long_paths = member_paths.map(lambda path: path + "/d" * 70)
longest_paths = member_paths.map(lambda path: path + "/" + "n" * 300)
contents = st.binary(max_size=40) | st.integers(500, 1100).map(bytes)


@pytest.mark.parametrize("layout", FORMATS)
@given(data=st.data())
def test_members_are_those_the_library_sees(folder: Path, layout: str, data: st.DataObject) -> None:
    names = member_paths | long_paths | (longest_paths if layout != "ustar" else long_paths)
    made = data.draw(st.dictionaries(names, contents | st.none(), max_size=8))
    dotted = data.draw(st.sets(st.sampled_from(sorted(made)))) if made else set()
    listed = [(f"./{name}" if name in dotted else name, content) for name, content in made.items()]
    tar = archive([("./", None), *listed], FORMATS[layout])
    shard = scan(folder, tar)
    assert [(m.member.path, m.member.size_bytes, m.member.offset) for m in shard.members] == library_view(tar)
    assert contents_of(shard, tar) == {name: content for name, content in made.items() if content is not None}


def test_names_of_every_length_survive_every_format(tmp_path: Path) -> None:
    for layout in FORMATS.values():
        lengths = [1, 99, 100, 101, 155, 156, 255, 256, 257, 1000, MAX_MEMBER_NAME_BYTES]
        if layout == tarfile.USTAR_FORMAT:
            lengths = [1, 99, 100]
        made = {"é" * (length // 2) + "x" * (length % 2): b"x" * length for length in lengths}
        assert found_in(tmp_path, archive(made.items(), layout)) == made


def test_a_global_header_that_renames_nothing_is_passed_over(tmp_path: Path) -> None:
    made = {"a": b"1", "é": b"2"}
    tar = archive(made.items(), tarfile.PAX_FORMAT, {"comment": "a comment", "mtime": "1.5"})
    assert tar[156:157] == b"g"
    assert found_in(tmp_path, tar) == made
    assert found_in(tmp_path, entry("a") + extended({"comment": "within"}, b"g") + entry("b") + END) == {
        "a": b"",
        "b": b"",
    }


def test_an_archive_without_members_is_one(tmp_path: Path) -> None:
    assert found_in(tmp_path, END) == {}
    assert found_in(tmp_path, header("folder/", kind=b"5") + END) == {}


@pytest.mark.parametrize("zeros", [512, 513, 1024, 10240 - 1536, 3_000_000])
def test_any_number_of_zeros_may_end_an_archive(tmp_path: Path, zeros: int) -> None:
    assert found_in(tmp_path, entry("a", b"1") + bytes(zeros)) == {"a": b"1"}


def test_sizes_may_be_written_in_binary(tmp_path: Path) -> None:
    content = b"c" * 700
    size = b"\x80" + (700).to_bytes(11, "big")
    assert found_in(tmp_path, header("a", size_field=size) + padded(content) + END) == {"a": content}


def test_a_size_in_an_extended_header_wins(tmp_path: Path) -> None:
    """It is for files of 8 GiB and more, whose size does not fit the plain header."""
    tar = extended({"size": "700"}) + header("a", 0) + padded(b"c" * 700) + entry("b", b"2") + END
    assert found_in(tmp_path, tar) == {"a": b"c" * 700, "b": b"2"}


def test_old_headers_without_a_type_are_files_unless_they_end_with_a_slash(tmp_path: Path) -> None:
    tar = entry("folder/", kind=b"\0", magic=V7) + entry("folder/a", b"1", b"\0", magic=V7) + END
    assert found_in(tmp_path, tar) == {"folder/a": b"1"}


def test_a_long_name_decides_whether_an_old_header_is_a_folder(tmp_path: Path) -> None:
    """The plain header has room for 100 bytes, and the last of these may happen to be a slash."""
    short = "d" * 99 + "/"
    tar = long_name(short + "file") + entry(short, b"", b"\0", magic=GNU)
    tar += extended({"path": short + "other"}) + entry(short, b"", b"\0", magic=V7)
    tar += long_name(short + "folder/") + entry(short + "f", b"", b"\0", magic=GNU) + END
    assert found_in(tmp_path, tar) == {short + "file": b"", short + "other": b""}


def test_names_in_two_parts_are_put_together(tmp_path: Path) -> None:
    assert found_in(tmp_path, header("name", prefix=b"some/folder") + END) == {"some/folder/name": b""}


def test_times_in_a_gnu_header_are_not_taken_for_a_part_of_the_name(tmp_path: Path) -> None:
    tar = header("name", magic=GNU, prefix=b"15276311373\0" * 2) + END
    assert found_in(tmp_path, tar) == {"name": b""}


def test_owners_need_not_be_utf8(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.uname = "müller"
    tar = info.tobuf(tarfile.USTAR_FORMAT, "latin-1") + END
    assert found_in(tmp_path, tar) == {"a": b""}


def test_a_name_that_begins_like_a_compressed_file_is_just_a_name(tmp_path: Path) -> None:
    assert found_in(tmp_path, entry("BZh9.txt", b"1") + END) == {"BZh9.txt": b"1"}


@pytest.mark.parametrize("size", [MEMBER_CHUNK_BYTES - 1, MEMBER_CHUNK_BYTES, MEMBER_CHUNK_BYTES + 1, 9_000_000])
def test_large_members_are_chunked_as_packed_ones_are(tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    heard: list[int] = []
    path = tmp_path / "archive.tar"
    path.write_bytes(entry("film", content) + END)
    (found,) = scan_tar(path, 0, heard.append).members
    assert sum(heard) == path.stat().st_size
    pieces = [content[at : at + MEMBER_CHUNK_BYTES] for at in range(0, size, MEMBER_CHUNK_BYTES)]
    expected = [(len(piece), xxhash.xxh3_64_intdigest(piece)) for piece in pieces]
    assert [(chunk.stored_bytes, chunk.xxh3) for chunk in found.chunks] == (expected if len(pieces) > 1 else [])
    assert len(pieces) > 1 or found.member.xxh3 == expected[0][1]


def _gnu(folder: Path) -> list[str]:
    return ["--format=gnu"]


def _posix(folder: Path) -> list[str]:
    return ["--format=posix"]


def _ustar(folder: Path) -> list[str]:
    return ["--format=ustar"]


def _v7(folder: Path) -> list[str]:
    return ["--format=v7"]


def _incremental(folder: Path) -> list[str]:
    return ["--format=gnu", f"--listed-incremental={folder / 'snapshot'}", "--no-recursion"]


@needs_tar
@pytest.mark.parametrize("options", [_gnu, _posix, _ustar, _v7, _incremental])
def test_the_tar_program_is_understood(tmp_path: Path, options: Callable[[Path], list[str]]) -> None:
    made = {"a/b.txt": b"1", "a/é.txt": b"22", "empty": b"", "block": b"b" * 512}
    if options is not _v7:
        made["/".join(["deep" * 5] * 7)] = b"a name of more than 100 bytes"
    if options in (_gnu, _posix):
        made["x" * 200 + "/" + "y" * 200] = b"a name that fits no plain header"
    for path, content in made.items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(content)
    what = [f"./{path}" for path in made] if options is _incremental else ["."]
    command = ["tar", *options(tmp_path), "-cf", str(tmp_path / "made.tar"), "-C", str(tmp_path / "in"), *what]
    subprocess.run(command, capture_output=True, check=True)
    assert found_in(tmp_path, (tmp_path / "made.tar").read_bytes()) == made
