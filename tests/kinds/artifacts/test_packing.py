"""If this fails, the same files give another version on another machine, or an archive that other programs cannot read.

Packed shards are read back with `tarfile`, and with `tar` and `zstd` if they are installed.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from hashlib import shake_256
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds.artifacts.scenes import MIB, member_paths, recipes
from warpdata.errors import InvalidSourceError
from warpdata.kinds.artifacts import (
    MemberSource,
    PackedShard,
    ShardSpec,
    cut_by_content,
    cut_shards,
    list_sources,
    pack_file,
    pack_shard,
)
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import fingerprint_file

VIDEO = shake_256(b"video").digest(MEMBER_CHUNK_BYTES * 2 + 700)
FILES: dict[str, bytes] = {
    "a/empty": b"",
    "a/one": b"1",
    "a/block": b"b" * 512,
    "a/block and one": b"c" * 513,
    "chunk": VIDEO[:MEMBER_CHUNK_BYTES],
    "video": VIDEO,
    "just over a chunk": VIDEO[: MEMBER_CHUNK_BYTES + 1],
    "é": b"composed",
    "e\u0301": b"decomposed",
    "日本/語.txt": b"far",
    "99/" + "n" * 96: b"name of 99 bytes",
    "100/" + "n" * 96: b"name of 100 bytes",
    "101/" + "n" * 97: b"name of 101 bytes",
    "155/" + "d" * 151 + "/" + "n" * 100: b"fits the two parts of a plain header",
    "/".join(["deep"] * 80): b"name of 399 bytes",
    "x" * 200 + "/" + "y" * 200: b"long parts",
    "-rf *; 'quoted' \"name\"\\\n=": b"awkward",
}
COMPRESSIONS = [None, "zstd"]

needs_tar = pytest.mark.skipif(shutil.which("tar") is None, reason="this machine has no tar")
needs_zstd = pytest.mark.skipif(shutil.which("zstd") is None, reason="this machine has no zstd")


def packed(files: Mapping[str, bytes], compression: str | None = None) -> tuple[bytes, PackedShard]:
    out = io.BytesIO()
    shard = pack_shard(list_sources(files), 0, compression, out)
    return out.getvalue(), shard


def unpacked(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {info.name: _content(tar, info) for info in tar}


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    assert file is not None
    return file.read()


def decompressed(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())


# The same bytes everywhere


def test_order_times_modes_and_owners_do_not_matter(tmp_path: Path) -> None:
    files = {path: content for path, content in FILES.items() if len(path.encode()) < 200}
    folders = tmp_path / "first", tmp_path / "second"
    for number, folder in enumerate(folders):
        for path, content in reversed(files.items()) if number else files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            if number:
                file.chmod(0o755)
                os.utime(file, (1, 1))
                if os.geteuid() == 0:
                    os.chown(file, 1234, 4321)
    (first,), (second,), (third,) = (recipes(source) for source in (*folders, files))
    assert first.measure().fingerprint == second.measure().fingerprint == third.measure().fingerprint
    assert [found.member for found in first.measure().members] == [found.member for found in third.measure().members]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_measured_is_what_is_written(tmp_path: Path, compression: str | None) -> None:
    (recipe,) = recipes(FILES, compression=compression)
    heard: list[int] = []
    measured = recipe.measure(heard.append)
    recipe.write(tmp_path / "shard", measured.fingerprint)
    assert fingerprint_file(tmp_path / "shard") == measured.fingerprint
    assert sum(heard) == sum(map(len, FILES.values()))


def test_headers_say_nothing_but_path_and_size() -> None:
    archive, _ = packed(FILES)
    plain = tarfile.TarInfo()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for info in tar:
            assert (info.mode, info.uid, info.gid, info.mtime) == (0o644, 0, 0, 0)
            assert (info.uname, info.gname, info.linkname, info.devmajor) == ("", "", "", 0)
            assert (info.type, info.size) == (plain.type, len(FILES[info.name]))
            assert info.pax_headers.keys() <= {"path"}
            assert ("path" in info.pax_headers) == (len(info.name) > 100 or not info.name.isascii())


def test_an_archive_ends_with_two_blocks_of_zeros_and_nothing_after() -> None:
    archive, _ = packed({"a": b"x" * 512})
    assert len(archive) == 512 + 512 + 1024
    assert archive[1024:] == bytes(1024)


# Shards are standard archives


@given(st.dictionaries(member_paths, st.binary(max_size=1100), min_size=1, max_size=12), st.sampled_from(COMPRESSIONS))
def test_the_library_reads_what_was_packed(files: dict[str, bytes], compression: str | None) -> None:
    archive, shard = packed(files, compression)
    plain = decompressed(archive) if compression else archive
    assert unpacked(plain) == files
    assert [found.member.path for found in shard.members] == sorted(files, key=str.encode)
    assert plain == packed(files)[0]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_member_is_one_range_that_can_be_read_alone(compression: str | None) -> None:
    archive, shard = packed(FILES, compression)
    for found in shard.members:
        member, content = found.member, FILES[found.member.path]
        stored = archive[member.offset : member.offset + member.stored_bytes]
        assert member.size_bytes == len(content)
        assert (decompressed(stored) if compression and stored else stored) == content
        pieces = [content[at : at + MEMBER_CHUNK_BYTES] for at in range(0, len(content), MEMBER_CHUNK_BYTES)]
        if len(pieces) <= 1:
            assert not found.chunks
            assert member.xxh3 == xxhash.xxh3_64_intdigest(content)
            continue
        assert [chunk.xxh3 for chunk in found.chunks] == [xxhash.xxh3_64_intdigest(piece) for piece in pieces]
        assert sum(chunk.stored_bytes for chunk in found.chunks) == member.stored_bytes
        for chunk, piece in zip(found.chunks, pieces, strict=True):
            part, stored = stored[: chunk.stored_bytes], stored[chunk.stored_bytes :]
            assert (decompressed(part) if compression else part) == piece


def test_a_compressed_shard_is_the_plain_one_compressed() -> None:
    archive, _ = packed(FILES, "zstd")
    assert decompressed(archive) == packed(FILES)[0]
    assert len(archive) < len(decompressed(archive))


@needs_zstd
def test_the_zstd_program_gives_the_plain_archive_back(tmp_path: Path) -> None:
    (tmp_path / "shard.tar.zst").write_bytes(packed(FILES, "zstd")[0])
    run = subprocess.run(["zstd", "-dc", "shard.tar.zst"], cwd=tmp_path, capture_output=True, check=True)  # noqa: S607
    assert run.stdout == packed(FILES)[0]


@needs_tar
def test_the_tar_program_unpacks_it(tmp_path: Path) -> None:
    (tmp_path / "shard.tar").write_bytes(packed(FILES)[0])
    (tmp_path / "out").mkdir()
    command = ["tar", "-xf", "shard.tar", "-C", "out"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert run.stderr == b""
    out = tmp_path / "out"
    found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert found == FILES


def test_a_file_that_is_its_own_shard_is_kept_as_it_is() -> None:
    for path, content in FILES.items():
        out = io.BytesIO()
        (found,) = pack_file(MemberSource(path, content, len(content)), 5, out).members
        assert out.getvalue() == content
        assert (found.member.shard, found.member.offset, found.member.stored_bytes) == (5, 0, len(content))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_large_file_is_packed_with_flat_memory(tmp_path: Path, compression: str | None) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 * MIB)
    (recipe,) = recipes(tmp_path, compression=compression)
    tracemalloc.start()
    try:
        shard = recipe.measure()
        assert tracemalloc.get_traced_memory()[1] < 4 * MEMBER_CHUNK_BYTES
    finally:
        tracemalloc.stop()
    assert len(shard.members[0].chunks) == 16


# Which files share a shard


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_shards_are_cut_in_order_and_within_bounds(sizes: list[int], shard_bytes: int) -> None:
    sources = [MemberSource(f"{number:03d}", Path("unread"), size) for number, size in enumerate(sizes)]
    shards = cut_shards(sources, shard_bytes)
    assert [source for shard in shards for source in shard] == sources
    totals = [sum(source.size_bytes for source in shard) for shard in shards]
    for shard, total in zip(shards, totals, strict=True):
        assert shard
        assert total <= shard_bytes or len(shard) == 1
    for (before, after), total in zip(pairwise(shards), totals, strict=False):
        assert total + after[0].size_bytes > shard_bytes, f"{before} had room"


def test_shards_depend_on_what_came_before_only() -> None:
    """So that adding files at the end keeps the first shards, which are then not sent again."""
    sizes = [(7 * number) % 31 for number in range(200)]
    sources = [MemberSource(f"{number:03d}", Path("unread"), size) for number, size in enumerate(sizes)]
    assert cut_shards(sources, 64)[:5] == cut_shards(sources[:150], 64)[:5]


SIZED = st.lists(st.integers(0, 50), max_size=80)


@given(SIZED)
def test_cutting_by_content_keeps_order_and_bounds(sizes: list[int]) -> None:
    sources = [MemberSource(f"{number:03d}", Path("unread"), size) for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.kinds.artifacts.tar_pack.ARTIFACT_CUT_BYTES", 100)
        shards = cut_by_content(sources)
    assert [source for shard in shards for source in shard] == sources
    assert all(shard and sum(source.size_bytes for source in shard) <= 100 for shard in shards)
    for shard, after in pairwise(shards):
        total = sum(source.size_bytes for source in shard)
        assert total >= 25 or total + after[0].size_bytes > 100, "no shard is small for no reason"


def test_files_that_come_and_go_change_few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.kinds.artifacts.tar_pack.ARTIFACT_CUT_BYTES", 1000)
    sources = [MemberSource(f"{number:05d}", Path("unread"), 20 + number % 7) for number in range(5000)]
    before = [tuple(shard) for shard in cut_by_content(sources)]
    assert 300 < 5000 * 23 / len(before) < 700, "about half of the limit"
    for gone in (0, 17, 1234, 4999):
        after = {tuple(shard) for shard in cut_by_content(sources[:gone] + sources[gone + 1 :])}
        assert len(after - set(before)) <= 6, "of some two hundred"


# Files that change while they are published


def _grow(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"!")


def _shrink(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _change(file: Path) -> None:
    file.write_bytes(b"other content"[: file.stat().st_size].ljust(file.stat().st_size, b"."))


def _vanish(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("disturb", [_grow, _shrink, _change, _vanish])
@pytest.mark.parametrize("size", [20, MEMBER_CHUNK_BYTES, MEMBER_CHUNK_BYTES + 20])
def test_a_file_that_changes_after_it_was_measured_is_refused(
    tmp_path: Path, disturb: Callable[[Path], None], size: int, compression: str | None
) -> None:
    file = tmp_path / "files" / "restless"
    file.parent.mkdir()
    file.write_bytes(bytes(size))
    (recipe,) = recipes(file, compression=compression)
    measured = recipe.measure()
    disturb(file)
    with pytest.raises(InvalidSourceError, match="restless"):
        recipe.write(tmp_path / "shard", measured.fingerprint)


@pytest.mark.parametrize("disturb", [_grow, _shrink, _vanish])
def test_among_many_the_one_that_changed_size_is_named(tmp_path: Path, disturb: Callable[[Path], None]) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"content")
    sources = list_sources(tmp_path)
    disturb(tmp_path / "b")
    with pytest.raises(InvalidSourceError) as caught:
        ShardSpec(tuple(sources), 0, None).measure()
    assert str(tmp_path / "b") in caught.value.message
    assert str(tmp_path / "c") not in caught.value.message


def test_among_many_a_change_of_content_is_narrowed_to_the_shard(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name in "abc":
        (tmp_path / "files" / name).write_bytes(b"content")
    (recipe,) = recipes(tmp_path / "files")
    measured = recipe.measure()
    _change(tmp_path / "files" / "b")
    with pytest.raises(InvalidSourceError, match=r"files/a … .*files/c"):
        recipe.write(tmp_path / "shard", measured.fingerprint)
