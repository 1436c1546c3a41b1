"""If this fails, the same files no longer give the same version, or published media cannot be read.

`artifacts/vectors.json` has the SHA-256 of shards and indexes, which must never change. Compressed shards depend on the
version of the zstd library, so their bytes are committed and read back. `python -m tests.golden.test_artifact_vectors`
adds a vector and refuses to change existing ones.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kinds.artifacts.scenes import Stored, memory, store_artifact
from tests.reference import member_index_reader as reference
from warpdata.kinds.artifacts import ArtifactEntry
from warpdata.limits import ARTIFACT_SHARD_BYTES, MEMBER_CHUNK_BYTES
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.repository.manifest import Footer, Shard, ShardList

FOLDER = Path(__file__).parent / "artifacts"
VECTORS_FILE = FOLDER / "vectors.json"


def made(word: str, size: int) -> bytes:
    """Bytes that follow from a word."""
    return hashlib.shake_256(word.encode()).digest(size)


@dataclass(frozen=True)
class Vector:
    files: Mapping[str, bytes]
    kind: str = "tar_shards"
    shard_bytes: int = ARTIFACT_SHARD_BYTES
    compression: str | None = None

    def store(self, folder: Path) -> Stored:
        return store_artifact(
            memory(),
            self.files,
            folder,
            kind=self.kind,
            compression=self.compression,
            shard_bytes=self.shard_bytes,
        )


def small() -> Vector:
    return Vector({"b.txt": b"second", "a/empty": b"", "a/block": b"b" * 512, "a/block and one": b"c" * 513})


def names() -> Vector:
    """Plain up to 100 bytes and ASCII; else an extended header. Unicode stays as it is."""
    listed = [
        "n" * 99,
        "n" * 100,
        "n" * 101,
        "d" * 155 + "/" + "n" * 100,
        "d" * 250 + "/" + "n" * 250,
        "/".join(["deep"] * 800),
        "\u00e9",
        "e\u0301",
        "\uffff",
        "\U0001f600",
        "日本/語",
        " ",
        "a=b\nc",
        "-rf",
        "a\\b",
    ]
    return Vector({name: f"content of {number}".encode() for number, name in enumerate(listed)})


def large() -> Vector:
    """One file of a chunk exactly, one of several."""
    chunk = MEMBER_CHUNK_BYTES
    return Vector({"chunk": made("chunk", chunk), "film": made("film", 2 * chunk + 700), "small": b"after them"})


def many_shards() -> Vector:
    """Cut where the next file would be too much; what is too large alone has a shard to itself."""
    sizes = [10, 90, 1, 0, 250, 0, 100, 60, 40, 41]
    return Vector({f"{n:02d}": made(str(n), size) for n, size in enumerate(sizes)}, shard_bytes=100)


def loose_files() -> Vector:
    return Vector({"a": b"1", "b": b"", "c": made("c", MEMBER_CHUNK_BYTES + 1)}, kind="files")


def two_leaves() -> Vector:
    return Vector({f"{n:04d}.txt": str(n).encode() for n in range(300)})


def compressed() -> Vector:
    return Vector({**small().files, "é" * 60: b"long name " * 100, "noise": made("noise", 2000)}, compression="zstd")


FROZEN: dict[str, Callable[[], Vector]] = {
    "small": small,
    "names": names,
    "large": large,
    "many_shards": many_shards,
    "loose_files": loose_files,
    "two_leaves": two_leaves,
}
KEPT: dict[str, Callable[[], Vector]] = {"small": small, "compressed": compressed}
"""Return the vectors whose bytes are committed."""


def fingerprints(stored: Stored) -> dict[str, Any]:
    footer = stored.entry.index_footer
    return {
        "shards": [blob.hash for blob in stored.shards],
        "index": stored.entry.index.hash,
        "index_footer": {"byte_size": footer.byte_size, "xxh3": footer.xxh3},
    }


@pytest.mark.parametrize("name", FROZEN)
def test_bytes_are_what_they_always_were(tmp_path: Path, name: str) -> None:
    assert fingerprints(FROZEN[name]().store(tmp_path)) == json.loads(VECTORS_FILE.read_text())[name]


def test_no_vector_is_left_out_or_left_behind() -> None:
    kept = {f"{name}{suffix}" for name in KEPT for suffix in (".shard", ".members", ".json")}
    assert {path.name for path in FOLDER.iterdir()} == kept | {VECTORS_FILE.name}
    assert set(json.loads(VECTORS_FILE.read_text())) == set(FROZEN)


@pytest.mark.parametrize("name", FROZEN)
def test_a_second_reader_finds_the_same(tmp_path: Path, name: str) -> None:
    vector = FROZEN[name]()
    stored = vector.store(tmp_path)
    shards = [stored.bytes_of(blob) for blob in stored.shards]
    footer = stored.entry.index_footer
    walked = reference.walk(stored.bytes_of(stored.entry.index), footer.byte_size, footer.xxh3)
    found = {m.path: shards[m.shard][m.offset : m.offset + m.size_bytes] for m in walked}
    assert found == vector.files


@pytest.mark.parametrize("name", KEPT)
def test_what_was_published_long_ago_is_still_read(name: str) -> None:
    vector, stored = KEPT[name](), kept(name)
    artifact = stored.open()
    assert {member.path: artifact.read(member.path) for member in artifact.members()} == vector.files


@pytest.mark.parametrize("name", KEPT)
def test_a_second_reader_reads_it_too(name: str) -> None:
    vector, stored = KEPT[name](), kept(name)
    footer = stored.entry.index_footer
    shard = stored.bytes_of(stored.shards[0])
    for member in reference.walk(stored.bytes_of(stored.entry.index), footer.byte_size, footer.xxh3):
        part = shard[member.offset : member.offset + member.stored_bytes]
        if vector.compression and part:
            part = bytes(pa.decompress(part, decompressed_size=member.size_bytes, codec="zstd", asbytes=True))
        assert part == vector.files[member.path]


def test_whatever_zstd_makes_of_it_the_archive_within_is_the_same(tmp_path: Path) -> None:
    vector = compressed()
    archives = []
    for stored in (kept("compressed"), vector.store(tmp_path)):
        with pa.CompressedInputStream(pa.BufferReader(stored.bytes_of(stored.shards[0])), "zstd") as stream:
            archives.append(bytes(stream.read()))
    plain = Vector(vector.files).store(tmp_path)
    assert archives == [plain.bytes_of(plain.shards[0])] * 2


def kept(name: str) -> Stored:
    """The committed bytes, in a store."""
    entry = json.loads((FOLDER / f"{name}.json").read_text())
    store = memory()
    shard, index = ((FOLDER / f"{name}.{part}").read_bytes() for part in ("shard", "members"))
    blobs = [Blob(sha256_hex(data), len(data)) for data in (shard, index)]
    for blob, data in zip(blobs, (shard, index), strict=True):
        store.create(blob_key(blob.hash), data)
    listed = ShardList((Shard(blobs[0].hash, blobs[0].byte_size),))
    footer = Footer(**entry["index_footer"])
    found = ArtifactEntry("tar_shards", listed, blobs[1], footer, entry["members"], entry.get("compression"))
    return Stored(store, found, (blobs[0],), {})


def write_missing() -> None:
    """Write vectors that are not there yet; what is committed stays as it is."""
    FOLDER.mkdir(exist_ok=True)
    known = json.loads(VECTORS_FILE.read_text()) if VECTORS_FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, build in FROZEN.items():
            known.setdefault(name, fingerprints(build().store(Path(folder))))
        VECTORS_FILE.write_text(json.dumps(known, indent=2) + "\n")
        for name, build in KEPT.items():
            if (FOLDER / f"{name}.json").exists():
                continue
            stored = build().store(Path(folder))
            (FOLDER / f"{name}.shard").write_bytes(stored.bytes_of(stored.shards[0]))
            (FOLDER / f"{name}.members").write_bytes(stored.bytes_of(stored.entry.index))
            (FOLDER / f"{name}.json").write_text(json.dumps(dict(stored.entry.payload().attributes), indent=2) + "\n")


if __name__ == "__main__":
    write_missing()
