"""If this fails, the same content no longer gives the same version, and pinned versions cannot be found.

The vectors under `manifests/` must never change. `python -m tests.golden.test_manifest_vectors` adds a
vector and refuses to change existing ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import msgspec
import pytest

from tests.reference import manifest_reader as reference
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.repository.manifest import (
    Binding,
    ColumnFile,
    Deletes,
    External,
    Footer,
    Ids,
    JsonObject,
    Manifest,
    Page,
    Payload,
    SchemaChange,
    Shard,
    ShardList,
    TableEntry,
    encode_manifest,
    iter_shards,
    kept_blobs,
    page_shards,
    parse_manifest,
    version_of,
)

FOLDER = Path(__file__).parent / "manifests"
PAGES = FOLDER / "pages"
VERSIONS = FOLDER / "versions.json"
SCHEMA = json.loads(files("warpdata.repository.manifest").joinpath("schema.json").read_text(encoding="utf-8"))
CHECKER = jsonschema.Draft202012Validator(SCHEMA)

Built = tuple[Manifest, dict[str, bytes]]


def digest(word: str) -> str:
    """A made-up blob's name: these blobs need not exist."""
    return hashlib.sha256(word.encode()).hexdigest()


def page_end(word: str) -> str:
    """A blob name that ends a page once the page is long enough: its first 32 bits divide by 512."""
    return "0000a200" + digest(word)[8:]


def minimal() -> Built:
    return Manifest("a/b"), {}


def several_tables() -> Built:
    footer = Footer(byte_size=512, xxh3="0123456789abcdef")
    trips = ShardList((Shard(digest("trips 0"), 1000, 10, footer), Shard(digest("trips 1"), 2000, 20, footer)))
    foreign = ShardList((Shard(digest("zones 0"), 77, 3),))
    schema: JsonObject = {"fields": [{"name": "zone", "type": "int64", "nullable": True}]}
    tables = {
        "trips": TableEntry(trips),
        "zones": TableEntry(foreign, schema=schema),
        "no_shards": TableEntry(ShardList()),
        "empty-shard.v2": TableEntry(ShardList((Shard(digest("empty"), 700, 0, footer),))),
    }
    return Manifest("acme/trips", tables, metadata={"license": "CC0-1.0", "share": 0.25, "tags": ["a", None]}), {}


def bindings_and_artifacts() -> Built:
    index = Blob(digest("member index"), 4096)
    images = Payload("tar_shards", ShardList((Shard(digest("images 0"), 10_000), Shard(digest("images 1"), 9_000))))
    manifest = Manifest(
        "acme/photos_2024-b",
        tables={
            "main": TableEntry(ShardList((Shard(digest("main 0"), 500, 40),))),
            "extra": TableEntry(ShardList((Shard(digest("extra 0"), 400, 4),))),
        },
        artifacts={"images": replace(images, index=index), "sound": Payload("files", ShardList())},
        episodes={"runs": Payload("wshard", ShardList((Shard(digest("run 0"), 123),)), attributes={"fps": 30})},
        tensors={"weights": Payload("safetensors", ShardList((Shard(digest("weights"), 2**40),)))},
        indexes={"by_id": Payload("scalar", ShardList((Shard(digest("by id"), 9),)), attributes={"on": ["id"]})},
        bindings=(
            Binding("main", "photo", "images", "image"),
            Binding("main", "noise", "sound", "audio"),
            Binding("extra", "photo", "images", "file"),
        ),
    )
    return manifest, {}


def paged() -> Built:
    """150 shards in three pages: cut at the earliest entry allowed, then late, then by the end of the list.

    Entries 10 and 100 would end a page, too, but stand before the minimum of 64.
    """
    ends = {10, 63, 100, 140}
    shards = [
        Shard(page_end(str(n)) if n in ends else digest(f"shard {n}"), 100 + n, n, Footer(64, f"{n:016x}"))
        for n in range(150)
    ]
    laid_out = page_shards(shards)
    return Manifest("acme/long", {"main": TableEntry(laid_out.shards)}), laid_out.new_pages


def unicode() -> Built:
    """Names of columns and free values keep their bytes; keys sort by code point, not by UTF-16 unit."""
    attributes = {
        "\uff5e": "before the next one by code point, after it by UTF-16 unit",
        "\U0001f600": "an emoji",
        "e\u0301": "two code points",
        "\u00e9": "one code point",
        "control": '\u0000\u0001\b\t\n\f\r\u001f"\\/\u007f\u2028',
        "": [True, False, None, -(2**53 - 1), 2**53 - 1, 0],
    }
    manifest = Manifest(
        "a/b",
        tables={"main": TableEntry(ShardList())},
        artifacts={"media": Payload("webdataset_shards", ShardList(), attributes=attributes)},
        bindings=(Binding("main", "gro\u0308ße", "media", "video"), Binding("main", "größe", "media", "image")),
        metadata={"Übersicht": "日本語"},
    )
    return manifest, {}


def edited() -> Built:
    """Format 2: every form of ids and deletes, column files, a place outside, schema changes and a generation."""
    footer = Footer(byte_size=64, xxh3="00000000deadbeef")
    many = Blob(digest("bitmap"), 96)
    shards = (
        Shard(digest("plain"), 1000, 100, footer),
        Shard(digest("few deletes"), 1000, 97, footer, deletes=Deletes(3, positions=(0, 7, 99))),
        Shard(digest("bitmap deletes"), 1000, 50, deletes=Deletes(50, hash=many.hash, byte_size=many.byte_size)),
        Shard(digest("patch"), 200, 4, footer, revision=2, ids=Ids(runs=((7, 1), (99, 1), (103, 2)))),
        Shard(digest("compacted"), 900, 80, ids=Ids(hash=digest("ids"), byte_size=800)),
        Shard(
            digest("wide"),
            500,
            10,
            footer,
            ids=Ids(first=300),
            files=(ColumnFile(digest("emb"), 4000, footer, revision=1), ColumnFile(digest("score"), 90)),
        ),
        Shard(digest("outside"), 700, 5, revision=2, external=External("s3://bucket/x.parquet", etag="abc")),
    )
    entry = TableEntry(
        ShardList(shards),
        schema={"columns": ["id", "b", "emb", "score"]},
        changes=(SchemaChange("tmp"), SchemaChange("a", renamed_to="b")),
        next_id=310,
    )
    return Manifest("acme/edited", {"main": entry}, generations={digest("plain"): "0123abcd"}), {}


def edited_paged() -> Built:
    """Format 2 in one of two pages, and in the reference to it."""
    shards = [Shard(page_end(str(n)) if n == 70 else digest(f"row {n}"), 10 + n, 5) for n in range(80)]
    shards[3] = msgspec.structs.replace(shards[3], row_count=3, deletes=Deletes(2, positions=(1, 4)))
    laid_out = page_shards(shards)
    return Manifest("acme/edited-long", {"main": TableEntry(laid_out.shards)}), laid_out.new_pages


VECTORS: dict[str, Callable[[], Built]] = {
    "minimal": minimal,
    "several_tables": several_tables,
    "bindings_and_artifacts": bindings_and_artifacts,
    "paged": paged,
    "unicode": unicode,
    "edited": edited,
    "edited_paged": edited_paged,
}


def load_golden_page(page: Page) -> bytes:
    return (PAGES / f"{page.hash}.json").read_bytes()


@pytest.mark.parametrize("name", VECTORS)
def test_bytes_are_what_they_always_were(name: str) -> None:
    manifest, pages = VECTORS[name]()
    assert encode_manifest(manifest) == (FOLDER / f"{name}.json").read_bytes()
    assert version_of(manifest) == json.loads(VERSIONS.read_text())[name]
    for digest_of_page, data in pages.items():
        assert data == (PAGES / f"{digest_of_page}.json").read_bytes()


def test_no_vector_is_left_out_or_left_behind() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} - {"versions"} == set(VECTORS)
    assert set(json.loads(VERSIONS.read_text())) == set(VECTORS)
    made = {digest_of_page for build in VECTORS.values() for digest_of_page in build()[1]}
    assert {path.stem for path in PAGES.glob("*.json")} == made


@pytest.mark.parametrize("name", VECTORS)
def test_stored_bytes_parse_back_to_the_same_value(name: str) -> None:
    manifest, _ = VECTORS[name]()
    version = json.loads(VERSIONS.read_text())[name]
    parsed = parse_manifest((FOLDER / f"{name}.json").read_bytes(), version)
    assert encode_manifest(parsed) == encode_manifest(manifest)
    assert set(parsed.bindings) == set(manifest.bindings)
    assert replace(parsed, bindings=()) == replace(manifest, bindings=())


@pytest.mark.parametrize("name", VECTORS)
def test_a_second_reader_agrees(name: str) -> None:
    data = (FOLDER / f"{name}.json").read_bytes()
    assert reference.version_of(data) == json.loads(VERSIONS.read_text())[name]
    walked = list(reference.walk(data, lambda hash_: (PAGES / f"{hash_}.json").read_bytes()))
    assert walked == _listed(parse_manifest(data), load_golden_page)


@pytest.mark.parametrize("name", VECTORS)
def test_the_schema_admits_them(name: str) -> None:
    CHECKER.validate(json.loads((FOLDER / f"{name}.json").read_bytes()))


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_pages_are_cut_where_the_specification_says() -> None:
    manifest, _ = paged()
    shards = manifest.tables["main"].shards
    assert (shards.levels, [page.shard_count for page in shards.pages]) == (1, [64, 77, 9])
    listed = list(iter_shards(shards, load_golden_page))
    assert [len(page) for page in reference.cut_pages([shard.hash for shard in listed])] == [64, 77, 9]


@pytest.mark.parametrize("count", [17, 64, 2048, 2049, 6000])
def test_a_second_writer_cuts_the_same_pages(count: int) -> None:
    shards = [Shard(digest(f"{count}/{n}"), n, n) for n in range(count)]
    laid_out = page_shards(shards)
    cuts = reference.cut_pages([shard.hash for shard in shards])
    assert [page.shard_count for page in laid_out.shards.pages] == [len(page) for page in cuts]


def test_a_second_reader_walks_a_tree_of_two_levels() -> None:
    """Too large to commit: every 64th shard ends a page, so that 17,000 of them need a second level."""
    shards = [Shard(page_end(str(n)) if n % 64 == 63 else digest(str(n)), n, 1) for n in range(17_000)]
    laid_out = page_shards(shards)
    assert laid_out.shards.levels == 2
    manifest = Manifest("acme/huge", {"main": TableEntry(laid_out.shards)})
    walked = list(reference.walk(encode_manifest(manifest), lambda hash_: laid_out.new_pages[hash_]))
    assert [item.hash for item in walked] == [shard.hash for shard in shards]
    assert walked == _listed(manifest, lambda page: laid_out.new_pages[page.hash])


def test_a_version_without_edits_has_format_1() -> None:
    assert {name: build()[0].format for name, build in VECTORS.items() if build()[0].format != 1} == {
        "edited": 2,
        "edited_paged": 2,
    }


def test_every_blob_of_an_edited_table_is_kept_alive() -> None:
    kept = {blob.hash for blob in kept_blobs(edited()[0], load_golden_page)}
    outside = {digest("outside")}
    assert kept == {digest(word) for word in ("bitmap", "ids", "emb", "score")} | {
        shard.hash for shard in edited()[0].tables["main"].shards.shards if shard.hash not in outside
    }


def test_pages_are_kept_alive_with_their_shards() -> None:
    manifest, pages = paged()
    kept = {blob.hash for blob in kept_blobs(manifest, load_golden_page)}
    assert set(pages) < kept
    assert len(kept) == len(pages) + 150


def _listed(manifest: Manifest, load_page: Callable[[Page], bytes]) -> list[reference.ListedShard]:
    sections: dict[str, dict[str, ShardList]] = {
        "tables": {name: entry.shards for name, entry in manifest.tables.items()}
    }
    for section, payloads in manifest.payloads().items():
        sections[section] = {name: payload.shards for name, payload in payloads.items()}
    return [
        reference.ListedShard(section, name, shard.hash, shard.byte_size, shard.row_count)
        for section, entries in sections.items()
        for name in sorted(entries)
        for shard in iter_shards(entries[name], load_page)
    ]


def write_missing() -> None:
    """Write vectors that are not there yet; what is committed stays as it is."""
    PAGES.mkdir(parents=True, exist_ok=True)
    versions = json.loads(VERSIONS.read_text()) if VERSIONS.exists() else {}
    for name, build in VECTORS.items():
        path = FOLDER / f"{name}.json"
        if path.exists():
            continue
        manifest, pages = build()
        path.write_bytes(encode_manifest(manifest))
        versions[name] = version_of(manifest)
        for digest_of_page, data in pages.items():
            assert sha256_hex(data) == digest_of_page
            (PAGES / f"{digest_of_page}.json").write_bytes(data)
    VERSIONS.write_text(json.dumps(versions, indent=2) + "\n")


if __name__ == "__main__":
    write_missing()
