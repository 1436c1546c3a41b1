"""If this fails, a manifest cannot describe its artifacts, or a reader accepts entries that it does not understand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.kinds.artifacts import ArtifactEntry
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.repository.manifest import ARTIFACT_KINDS, Footer, Payload, Shard, ShardList

SHARDS = ShardList((Shard(sha256_hex(b"shard"), 100),))
INDEX = Blob(sha256_hex(b"index"), 1000)
ATTRIBUTES: dict[str, Any] = {"members": 7, "index_footer": {"byte_size": 80, "xxh3": "0123456789abcdef"}}
SOUND = Payload("tar_shards", SHARDS, INDEX, ATTRIBUTES)


@pytest.mark.parametrize(
    ("kind", "compression"), [*((kind, None) for kind in ARTIFACT_KINDS), ("tar_shards", "zstd")], ids=str
)
def test_what_is_written_is_what_is_read(kind: str, compression: str | None) -> None:
    entry = ArtifactEntry(kind, SHARDS, INDEX, Footer(80, "0123456789abcdef"), 7, compression)
    assert ArtifactEntry.of("media", entry.payload()) == entry
    assert ("compression" in entry.payload().attributes) == (compression is not None)


def with_attributes(**changes: Any) -> Payload:
    kept = {key: value for key, value in {**ATTRIBUTES, **changes}.items() if value is not ...}
    return replace(SOUND, attributes=kept)


def with_footer(**changes: Any) -> Payload:
    footer = {**ATTRIBUTES["index_footer"], **changes}
    return with_attributes(index_footer={key: value for key, value in footer.items() if value is not ...})


@pytest.mark.parametrize(
    "payload",
    [
        replace(SOUND, kind="zip_shards"),
        with_attributes(compression="lz4"),
        with_attributes(compression=True),
        with_attributes(compression={"name": "zstd"}),
        with_attributes(encryption="yes"),
        with_footer(sha256="0" * 64),
        replace(with_attributes(compression="zstd"), kind="files"),
        replace(with_attributes(compression="zstd"), kind="webdataset_shards"),
    ],
    ids=lambda payload: f"{payload.kind} {payload.attributes}"[:70],
)
def test_what_is_not_known_is_unsupported(payload: Payload) -> None:
    with pytest.raises(UnsupportedError, match="'media'") as caught:
        ArtifactEntry.of("media", payload)
    assert caught.value.hint


@pytest.mark.parametrize(
    "payload",
    [
        replace(SOUND, index=None),
        with_attributes(members=...),
        with_attributes(members="7"),
        with_attributes(members=-1),
        with_attributes(members=True),
        with_attributes(members=None),
        with_attributes(index_footer=...),
        with_attributes(index_footer=[80, "0123456789abcdef"]),
        with_footer(byte_size=...),
        with_footer(byte_size=0),
        with_footer(byte_size=-80),
        with_footer(byte_size=True),
        with_footer(byte_size="80"),
        with_footer(byte_size=1001),
        with_footer(xxh3=...),
        with_footer(xxh3=7),
        with_footer(xxh3="0123456789ABCDEF"),
        with_footer(xxh3="0123456789abcde"),
        with_footer(xxh3="0x23456789abcdef"),
    ],
    ids=lambda payload: f"{payload.index and ''}{payload.attributes}"[:90],
)
def test_what_can_not_be_is_refused(payload: Payload) -> None:
    with pytest.raises(ManifestCorruptedError, match="'media'"):
        ArtifactEntry.of("media", payload)
