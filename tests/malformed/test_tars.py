"""If this fails, a corrupt or hostile archive is accepted as a shorter one, and members are lost silently.

There is one archive for each rule of "Existing tars" in docs/specs/artifacts.md. Each has one fault, and is
refused with the name of a member near the fault. Then every byte of a valid archive is changed in turn.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kinds.artifacts.tars import BLOCK, END, GNU, archive, entry, extended, header, long_name, padded, sealed
from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.kinds.artifacts import scan_tar
from warpdata.limits import MAX_TAR_EXTENSION_BYTES

FIRST = entry("first", b"1" * 700)
LAST = entry("last", b"3" * 700)
CULPRIT = entry("culprit", b"2" * 700)


def within(part: bytes) -> bytes:
    """An archive that is valid before and after."""
    return FIRST + part + LAST + END


def scan(folder: Path, data: bytes) -> list[tuple[str, int]]:
    path = folder / "archive.tar"
    path.write_bytes(data)
    return listed(path)


def listed(path: Path) -> list[tuple[str, int]]:
    return [(found.member.path, found.member.size_bytes) for found in scan_tar(path, 0).members]


def test_without_a_fault_they_are_taken(tmp_path: Path) -> None:
    assert scan(tmp_path, FIRST + CULPRIT + LAST + END) == [("first", 700), ("culprit", 700), ("last", 700)]


REFUSED: dict[str, tuple[bytes, str]] = {
    # Cut short, or longer than it says
    "nothing at all": (b"", "its beginning"),
    "less than a block": (FIRST[:100], "its beginning"),
    "ends in the content": (FIRST + CULPRIT[: BLOCK + 300], "culprit"),
    "ends after the header": (FIRST + CULPRIT[:BLOCK], "culprit"),
    "ends in the padding": (FIRST + CULPRIT[: BLOCK + 900], "culprit"),
    "ends in the next header": (FIRST + CULPRIT + LAST[:100], "culprit"),
    "no mark of the end": (FIRST + CULPRIT, "culprit"),
    "half a mark of the end": (FIRST + CULPRIT + bytes(BLOCK - 1), "culprit"),
    "bytes after the end": (FIRST + CULPRIT + END + b"x", "culprit"),
    "members after the end": (within(CULPRIT + bytes(BLOCK)), "culprit"),
    "bytes long after the end": (FIRST + CULPRIT + bytes(3_000_000) + b"x", "culprit"),
    # Headers that are wrong
    "a size too large": (within(header("culprit", 1700) + padded(b"2" * 700)), "culprit"),
    "a size too small": (within(header("culprit", 100) + padded(b"2" * 700)), "culprit"),
    "a size beyond everything": (within(header("culprit", 8**11 - 1) + padded(b"2" * 700)), "culprit"),
    "a binary size beyond everything": (
        within(header("culprit", size_field=b"\x80" + b"\xff" * 11) + padded(b"2" * 700)),
        "culprit",
    ),
    "a negative size": (within(header("culprit", size_field=b"\xff" * 12)), "first"),
    "a size that is no number": (within(header("culprit", size_field=b"twelve")), "first"),
    "a wrong checksum": (within(b"X" + CULPRIT[1:]), "first"),
    "no header": (within(b"\x01" * BLOCK), "first"),
    # What is no plain file
    "a symbolic link": (within(entry("culprit", kind=b"2")), "'culprit' is a symbolic link"),
    "a hard link": (within(entry("culprit", kind=b"1")), "'culprit' is a hard link"),
    "a character device": (within(entry("culprit", kind=b"3")), "'culprit' is a device"),
    "a block device": (within(entry("culprit", kind=b"4")), "'culprit' is a device"),
    "a pipe": (within(entry("culprit", kind=b"6")), "'culprit' is a pipe"),
    "a sparse file of GNU": (within(entry("culprit", b"2", b"S", magic=GNU)), "'culprit' is a sparse"),
    "a part of a larger file": (
        within(entry("culprit", b"2", b"M", magic=GNU)),
        "'culprit' is of the unk",
    ),
    "a label": (entry("culprit", b"", b"V", magic=GNU) + LAST + END, "'culprit' is of the unknown type"),
    "a list of a directory": (
        entry("culprit", b"Yname\0\0", b"D", magic=GNU) + LAST + END,
        "'culprit' is of the unknown",
    ),
    "a link with a long target": (
        FIRST + long_name("t" * 200, b"K") + entry("culprit", kind=b"2", magic=GNU) + END,
        "'culprit' is a symbolic link",
    ),
    "a sparse file of pax 0": (
        FIRST + extended({"GNU.sparse.size": "9", "GNU.sparse.numblocks": "0"}) + CULPRIT + END,
        "'culprit' is a sparse",
    ),
    "a sparse file of pax 1": (
        FIRST
        + extended({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "culprit"})
        + entry("GNUSparseFile.7/culprit", b"2")
        + END,
        "'culprit' is a sparse",
    ),
    "all files sparse": (within(extended({"GNU.sparse.major": "1"}, b"g")), "first"),
    # Names
    "an absolute path": (FIRST + entry("/culprit") + END, "'/culprit' is an absolute path"),
    "a way up": (FIRST + entry("a/../../culprit") + END, r"'a/../../culprit' has a part '\.\.'"),
    "a way up in a long name": (
        FIRST + long_name("../culprit") + entry("x", magic=GNU) + END,
        "'../culprit' has a part",
    ),
    "a way up in an extended header": (
        within(extended({"path": "../culprit"})),
        "'../culprit' has a part",
    ),
    "two dots to begin with": (FIRST + entry("././culprit") + END, r"'\./culprit' has a part"),
    "an absolute path behind a dot": (FIRST + entry(".//culprit") + END, "'/culprit' is an absolute path"),
    "an empty part": (FIRST + entry("a//culprit") + END, "'a//culprit' has a part ''"),
    "a file that ends like a directory": (FIRST + entry("culprit/", b"2") + END, "'culprit/' has a part ''"),
    "no name": (FIRST + entry("", b"2") + END, "member name '' has a part ''"),
    "only a dot": (FIRST + entry(".", b"2") + END, r"member name '\.' has a part"),
    "a name that is not UTF-8": (FIRST + entry(b"culprit\xff") + END, r"culprit\\udcff' is not valid UTF-8"),
    "a prefix that is not UTF-8": (FIRST + header("culprit", prefix=b"\xff") + END, r"\\udcff/culprit' is not valid"),
    "a long name that is not UTF-8": (
        within(long_name(b"culprit\xff")),
        r"culprit\\xff' is not valid UTF-8",
    ),
    "an extended name that is not UTF-8": (
        within(extended({"path": b"culprit\xff"})),
        r"culprit\\xff' is not valid UTF-8",
    ),
    "a zero byte in a long name": (
        within(long_name("culprit\0more")),
        r"culprit\\x00more' contains a zero byte",
    ),
    "a zero byte in an extended name": (within(extended({"path": "culprit\0"})), "contains a zero byte"),
    "a name too long": (within(extended({"path": "culprit" * 600})), "has 4200 bytes"),
    # Extended headers
    "a record longer than its header": (within(extended(b"99 path=culprit\n")), "first"),
    "a record longer by one": (within(extended(b"17 path=culprit\n")), "first"),
    "a record shorter than it is": (within(extended(b"12 path=culprit\n")), "first"),
    "a record of no length": (within(extended(b"0 path=culprit\n")), "first"),
    "a record within its own number": (within(extended(b"2 path=culprit\n")), "first"),
    "a record without a number": (within(extended(b"path=culprit\n")), "first"),
    "a record of a negative length": (within(extended(b"-16 path=culprit\n")), "first"),
    "a record of a length in other digits": (within(extended("١٦ path=culprit\n".encode())), "first"),
    "a record with a number of a thousand digits": (within(extended(b"1" * 1000 + b" path=a\n")), "first"),
    "a record without a value": (within(extended(b"8 path\n\n")), "first"),
    "zeros after the records": (within(extended(b"16 path=culprit\n" + bytes(8))), "first"),
    "an extended size that is no number": (FIRST + extended({"size": "-1"}) + CULPRIT + END, "culprit"),
    "an extended size beyond everything": (within(extended({"size": "9" * 19}) + CULPRIT), "culprit"),
    "an extended size of many digits": (FIRST + extended({"size": "9" * 5000}) + CULPRIT + END, "culprit"),
    "an extended header that is cut short": (FIRST + extended({"path": "culprit"})[: BLOCK + 5], "first"),
    "an extended header at the end": (FIRST + extended({"path": "culprit"}) + END, "first"),
    "a long name at the end": (FIRST + long_name("culprit") + END, "first"),
    "an extended header of a gigabyte": (within(header("x", 2**30, b"x")), "first"),
    "a long name of eight gigabytes": (within(header("x", 8**11 - 1, b"L")), "first"),
    "an extended header one byte too large": (
        within(extended(bytes(MAX_TAR_EXTENSION_BYTES + 1))),
        f"{MAX_TAR_EXTENSION_BYTES + 1} bytes",
    ),
    "a global header that renames": (within(extended({"path": "culprit"}, b"g")), "first"),
    "a global header that resizes": (within(extended({"size": "1"}, b"g")), "first"),
    "two long names": (within(long_name("a") + long_name("culprit")), "first"),
    "two extended names": (within(extended({"path": "a"}) + extended({"path": "culprit"})), "first"),
    "a long and an extended name": (within(long_name("a") + extended({"path": "culprit"})), "first"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_fault_is_refused_near_its_name(tmp_path: Path, fault: str) -> None:
    data, named = REFUSED[fault]
    with pytest.raises((InvalidSourceError, BadInputError), match=named) as caught:
        scan(tmp_path, data)
    assert str(tmp_path / "archive.tar") in caught.value.message
    assert str(caught.value).encode(), "the message itself can be printed"


@pytest.mark.timeout(30)
def test_an_extended_header_of_very_many_records_takes_no_time(tmp_path: Path) -> None:
    records = b"6 a=b\n" * (MAX_TAR_EXTENSION_BYTES // 6)
    assert scan(tmp_path, extended(records) + LAST + END) == [("last", 700)]


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("method", COMPRESSED)
@pytest.mark.parametrize("content", [b"", random.Random(1).randbytes(2000)], ids=["tiny", "larger"])
def test_a_compressed_archive_is_refused_as_such(tmp_path: Path, method: str, content: bytes) -> None:
    data = COMPRESSED[method](entry("a", content) + END)
    assert (len(data) < BLOCK) == (content == b"")
    with pytest.raises(InvalidSourceError, match=f"compressed with {method}"):
        scan(tmp_path, data)


def test_a_file_that_is_not_there_or_is_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InvalidSourceError, match="cannot be read"):
            scan_tar(path, 0)


@pytest.mark.skipif(shutil.which("tar") is None, reason="this machine has no tar")
@pytest.mark.parametrize("layout", ["gnu", "posix"])
def test_a_sparse_archive_of_the_tar_program_is_refused(tmp_path: Path, layout: str) -> None:
    with (tmp_path / "culprit").open("wb") as file:
        file.truncate(2**22)
        file.seek(2**21)
        file.write(b"in the middle")
    command = ["tar", f"--format={layout}", "--sparse", "-cf", "made.tar", "culprit"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    if (tmp_path / "made.tar").stat().st_size > 2**22:
        pytest.skip("this file system knows no holes")
    with pytest.raises(InvalidSourceError, match="'culprit' is a sparse file"):
        scan_tar(tmp_path / "made.tar", 0)


# Any byte of a valid archive may be wrong

LONG = "long/" * 30 + "name"
MEMBERS = [("plain", b"1" * 700), ("folder", None), (LONG, b"2" * 10), ("é", b""), ("last", b"4" * 512)]
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def extension_bytes(data: bytes) -> set[int]:
    """Positions in the content of extended headers, which no checksum covers."""
    found: set[int] = set()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for info in tar:
            at = info.offset
            while data[at + 156 : at + 157] in (b"x", b"L", b"g"):
                size = int(data[at + 124 : at + 135], 8)
                found |= set(range(at + BLOCK, at + BLOCK + size))
                at += BLOCK + size + -size % BLOCK
    return found


@pytest.mark.parametrize("layout", FORMATS)
def test_no_wrong_byte_loses_a_member(tmp_path: Path, layout: str) -> None:
    """Refused, or the same members. Where no checksum covers a byte of a name, that name may be another."""
    valid = archive(MEMBERS, FORMATS[layout]).rstrip(b"\0") + END
    expected = scan(tmp_path, valid)
    assert [path for path, _ in expected] == ["plain", LONG, "é", "last"]
    unprotected, accepted = extension_bytes(valid), 0
    with (tmp_path / "archive.tar").open("r+b", buffering=0) as file:
        for position in range(len(valid)):
            for mask in (0x01, valid[position] or 0x80):
                file.seek(position)
                file.write(bytes([valid[position] ^ mask]))
                try:
                    found = listed(tmp_path / "archive.tar")
                except (InvalidSourceError, BadInputError):
                    continue
                accepted += 1
                assert [size for _, size in found] == [size for _, size in expected], position
                wrong = [before for before, after in zip(expected, found, strict=True) if before != after]
                assert len(wrong) <= (position in unprotected), position
            file.seek(position)
            file.write(valid[position : position + 1])
    assert accepted > 600, "bytes of contents and their padding are not looked at here"


@pytest.mark.parametrize("layout", FORMATS)
def test_no_cut_loses_a_member(tmp_path: Path, layout: str) -> None:
    valid = archive(MEMBERS, FORMATS[layout])
    needed = len(valid.rstrip(b"\0"))
    needed += -needed % BLOCK + BLOCK
    for length in range(0, needed + 2 * BLOCK, 31):
        if length >= needed:
            assert len(scan(tmp_path, valid[:length])) == 4
        else:
            with pytest.raises(InvalidSourceError):
                scan(tmp_path, valid[:length])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tars")


edits = st.lists(st.tuples(st.integers(0, 14 * BLOCK), st.binary(min_size=1, max_size=12)), max_size=6)


@given(st.sampled_from(sorted(FORMATS)), edits, st.lists(st.integers(0, 14), max_size=3))
def test_whatever_a_hostile_writer_seals_is_refused_or_read(
    folder: Path, layout: str, edits: list[tuple[int, bytes]], moved: list[int]
) -> None:
    """Blocks with other bytes and right checksums, repeated out of order: never an error without a type."""
    data = bytearray(archive(MEMBERS, FORMATS[layout]))
    for position, new in edits:
        data[position : position + len(new)] = new
    blocks = [bytes(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    blocks = [sealed(block) if block[257:262] == b"ustar" else block for block in blocks]
    blocks[3:3] = [blocks[number] for number in moved]
    with suppress(BadInputError):
        scan(folder, b"".join(blocks))


@given(st.binary(max_size=2000))
def test_noise_is_no_archive(folder: Path, noise: bytes) -> None:
    try:
        assert scan(folder, noise) == []
        assert not noise.strip(b"\0")
    except InvalidSourceError:
        pass
