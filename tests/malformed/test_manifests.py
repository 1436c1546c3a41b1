"""If this fails, a reader accepts an invalid manifest, or its error does not name the problem.

There is one rejected document for each rule of docs/specs/manifest.md. Each is a valid document with one change and a
correct version hash, so that the rule rejects it and not the hash. `schema.json` rejects it too where it can.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from tests.reference.manifest_reader import canonical, seal
from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.limits import MAX_MANIFEST_BYTES
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import Page, Shard, ShardList, iter_shards, parse_manifest

Document = dict[str, Any]
A, B, C, D = (letter * 64 for letter in "abcd")
CHECKER = jsonschema.Draft202012Validator(
    json.loads(files("warpdata.repository.manifest").joinpath("schema.json").read_text())
)


def valid() -> Document:
    """A document with something in every section, to be spoiled in one place."""
    return {
        "format": 1,
        "dataset_id": "acme/trips",
        "tables": {
            "main": {
                "format": "parquet",
                "shards": [
                    {
                        "hash": A,
                        "byte_size": 100,
                        "row_count": 7,
                        "uri": f"blobs/aa/aa/{A}",
                        "footer": {"byte_size": 50, "xxh3": "0123456789abcdef"},
                    }
                ],
                "schema": {"fields": []},
            },
            "long": {
                "format": "parquet",
                "shards": [],
                "shard_pages": {
                    "levels": 1,
                    "pages": [{"hash": B, "byte_size": 9, "shard_count": 20, "row_count": 30, "data_bytes": 400}],
                },
            },
        },
        "artifacts": {"media": {"kind": "files", "shards": [{"hash": C, "byte_size": 5}]}},
        "tensors": {
            "w": {"kind": "raw", "shards": [], "index": {"hash": D, "byte_size": 3}, "attributes": {"rank": 2}}
        },
        "bindings": [{"table": "main", "column": "photo", "artifact": "media", "ref_type": "image"}],
        "stats": {"total_rows": 37, "total_bytes": 505},
    }


@dataclass(frozen=True)
class Case:
    """Changes that corrupt a document, and the path that the error must have."""

    rule: str
    spoil: Callable[[Document], None]
    path: str
    beyond_schema: bool = False
    """Sums and references between parts are not for a JSON Schema to check."""


def put(*steps: str | int, value: Any) -> Callable[[Document], None]:
    """Set a member of the document, reached by these steps."""

    def spoil(document: Document) -> None:
        target: Any = document
        for step in steps[:-1]:
            target = target[step]
        target[steps[-1]] = value

    return spoil


def drop(*steps: str | int) -> Callable[[Document], None]:
    def spoil(document: Document) -> None:
        target: Any = document
        for step in steps[:-1]:
            target = target[step]
        del target[steps[-1]]

    return spoil


def copies_of_a_page(count: int) -> list[Document]:
    page: Document = valid()["tables"]["long"]["shard_pages"]["pages"][0]
    return [page] * count


SHARD = ("tables", "main", "shards", 0)
PAGES = ("tables", "long", "shard_pages")
TENSOR = ("tensors", "w")


def spoil_rows(*more: Callable[[Document], None]) -> Callable[[Document], None]:
    """Make a valid document of format 2, with a member of each kind, then spoil it."""

    def spoil(document: Document) -> None:
        document["format"] = 2
        main = document["tables"]["main"]
        main["schema_changes"] = [{"column": "tmp"}]
        main["shards"][0] |= {
            "revision": 1,
            "ids": {"runs": [[5, 4], [0, 5]]},
            "deletes": {"row_count": 2, "positions": [0, 8]},
            "files": [{"hash": D, "byte_size": 20, "footer": {"byte_size": 10, "xxh3": "0123456789abcdef"}}],
        }
        document["stats"]["total_bytes"] += 20
        document["generations"] = {A: "00000001"}
        for each in more:
            each(document)

    return spoil


def test_the_edited_document_is_valid() -> None:
    document = valid()
    spoil_rows()(document)
    CHECKER.validate(json.loads(sealed(document)))
    assert parse_manifest(sealed(document)).tables["main"].shards.deleted_count == 2


SPOT = "$.tables.main.shards[0]"
CASES = [
    # Rows, format 2
    Case("a version without edits has format 1", put("format", value=2), "$.format", beyond_schema=True),
    Case("edits need format 2", spoil_rows(put("format", value=1)), "$.format", beyond_schema=True),
    Case(
        "revisions are counted",
        spoil_rows(put(*SHARD, "revision", value=2)),
        f"{SPOT}.revision",
        beyond_schema=True,
    ),
    Case("ids have one form", spoil_rows(put(*SHARD, "ids", "first", value=1)), f"{SPOT}.ids"),
    Case("ids have a form", spoil_rows(put(*SHARD, "ids", value={})), f"{SPOT}.ids"),
    Case(
        "ids count the rows",
        spoil_rows(put(*SHARD, "ids", "runs", 0, 1, value=9)),
        f"{SPOT}.ids",
        beyond_schema=True,
    ),
    Case(
        "runs are not cut",
        spoil_rows(put(*SHARD, "ids", "runs", value=[[0, 4], [4, 5]])),
        f"{SPOT}.ids",
        beyond_schema=True,
    ),
    Case("one run is written as first", spoil_rows(put(*SHARD, "ids", "runs", value=[[0, 9]])), f"{SPOT}.ids"),
    Case(
        "deleted rows ascend",
        spoil_rows(put(*SHARD, "deletes", "positions", value=[8, 0])),
        f"{SPOT}.deletes",
        beyond_schema=True,
    ),
    Case(
        "deleted rows are in the file",
        spoil_rows(put(*SHARD, "deletes", "positions", value=[0, 9])),
        f"{SPOT}.deletes",
        beyond_schema=True,
    ),
    Case(
        "deleted rows are counted",
        spoil_rows(put(*SHARD, "deletes", "positions", value=[0])),
        f"{SPOT}.deletes",
        beyond_schema=True,
    ),
    Case(
        "many deleted rows are a blob",
        spoil_rows(put(*SHARD, "deletes", value={"row_count": 2})),
        f"{SPOT}.deletes",
    ),
    Case("column files are blobs", spoil_rows(put(*SHARD, "files", 0, "hash", value="x")), f"{SPOT}.files[0]"),
    Case(
        "a column file has its footer",
        spoil_rows(put(*SHARD, "files", 0, "footer", "byte_size", value=21)),
        f"{SPOT}.files[0].footer",
        beyond_schema=True,
    ),
    Case("no member of a column file is unknown", spoil_rows(put(*SHARD, "files", 0, "uri", value="x")), SPOT),
    Case(
        "an external shard is not a blob",
        spoil_rows(put(*SHARD, "external", value={"uri": "s3://b/k"})),
        f"{SPOT}.uri",
        beyond_schema=True,
    ),
    Case(
        "schema changes name columns",
        spoil_rows(put("tables", "main", "schema_changes", 0, "column", value="")),
        "$.tables.main.schema_changes[0]",
    ),
    Case(
        "a rename changes the name",
        spoil_rows(put("tables", "main", "schema_changes", 0, "renamed_to", value="tmp")),
        "$.tables.main.schema_changes[0]",
        beyond_schema=True,
    ),
    Case("generations have 8 digits", spoil_rows(put("generations", A, value="1")), f"$.generations.{A}"),
    Case("generations are of blobs", spoil_rows(put("generations", "x", value="00000001")), "$.generations key"),
    Case(
        "a payload has no row edits",
        put("artifacts", "media", "shards", 0, "revision", value=1),
        "$.artifacts.media.shards[0].revision",
    ),
    # The root
    Case("the format is present", drop("format"), "$.format"),
    Case("the format is a number", put("format", value="1"), "$.format"),
    Case("the format is at least 1", put("format", value=0), "$.format"),
    Case("no member is unknown", put("extra", value=1), "$.extra"),
    Case("the dataset is named", drop("dataset_id"), "$.dataset_id"),
    Case("the dataset's name is not empty", put("dataset_id", value=""), "$.dataset_id"),
    Case("the name has two parts", put("dataset_id", value="trips"), "$.dataset_id"),
    Case("the name stays within its directory", put("dataset_id", value="../x"), "$.dataset_id"),
    Case("the name is lower case", put("dataset_id", value="Acme/trips"), "$.dataset_id"),
    Case("the name is bounded", put("dataset_id", value="a/" + "b" * 300), "$.dataset_id"),
    Case(
        "no one-letter name gets through",
        put("dataset_id", value="?"),
        "$.dataset_id",
    ),
    Case("tables are present", drop("tables"), "$.tables"),
    Case("tables are an object", put("tables", value=[]), "$.tables"),
    Case("metadata is an object", put("metadata", value="words"), "$.metadata"),
    Case("attributes are an object", put(*TENSOR, "attributes", value=[]), "$.tensors.w.attributes"),
    # Statistics
    Case("statistics are present", drop("stats"), "$.stats"),
    Case("rows add up", put("stats", "total_rows", value=38), "$.stats.total_rows", beyond_schema=True),
    Case("bytes add up", put("stats", "total_bytes", value=0), "$.stats.total_bytes", beyond_schema=True),
    Case("statistics are complete", drop("stats", "total_bytes"), "$.stats.total_bytes"),
    Case(
        "no statistic is unknown",
        put("stats", "mean", value=1),
        "$.stats.mean",
    ),
    # Sections and their names
    Case("a table's name has no slash", put("tables", "a/b", value=valid()["tables"]["long"]), "$.tables key"),
    Case("a table's name is not hidden", put("tables", ".x", value=valid()["tables"]["long"]), "$.tables key"),
    Case(
        "sections are bounded",
        put("indexes", value={f"i{n}": {"kind": "k", "shards": []} for n in range(513)}),
        "$.indexes",
    ),
    Case("a table is an object", put("tables", "main", value=1), "$.tables.main"),
    Case("a table is Parquet", put("tables", "main", "format", value="csv"), "$.tables.main.format"),
    Case("a table has no unknown member", put("tables", "main", "rows", value=1), "$.tables.main.rows"),
    Case("a table's schema is an object", put("tables", "main", "schema", value=[]), "$.tables.main.schema"),
    Case("an artifact has a kind", drop("artifacts", "media", "kind"), "$.artifacts.media.kind"),
    Case("an artifact's kind is known", put("artifacts", "media", "kind", value="zip"), "$.artifacts.media.kind"),
    Case("a payload's kind is a name", put(*TENSOR, "kind", value="a b"), "$.tensors.w.kind"),
    Case("a payload has no unknown member", put(*TENSOR, "format", value="x"), "$.tensors.w.format"),
    Case("a payload's index names a blob", put(*TENSOR, "index", value={"byte_size": 3}), "$.tensors.w.index.hash"),
    Case("an index has no rows", put(*TENSOR, "index", "row_count", value=3), "$.tensors.w.index.row_count"),
    # Shards
    Case("shards are present", drop("tables", "main", "shards"), "$.tables.main.shards"),
    Case("shards are a list", put("tables", "main", "shards", value={}), "$.tables.main.shards"),
    Case("a shard is an object", put(*SHARD, value="x"), "$.tables.main.shards[0]"),
    Case("a shard has a hash", drop(*SHARD, "hash"), "$.tables.main.shards[0].hash"),
    Case("a hash is lower case", put(*SHARD, "hash", value="A" * 64), "$.tables.main.shards[0].hash"),
    Case("a hash has 64 digits", put(*SHARD, "hash", value="a" * 63), "$.tables.main.shards[0].hash"),
    Case("a shard has a size", drop(*SHARD, "byte_size"), "$.tables.main.shards[0].byte_size"),
    Case("a size is not negative", put(*SHARD, "byte_size", value=-1), "$.tables.main.shards[0].byte_size"),
    Case("a size is an integer", put(*SHARD, "byte_size", value=1.5), "$.tables.main.shards[0].byte_size"),
    Case("a size is no truth value", put(*SHARD, "byte_size", value=True), "$.tables.main.shards[0].byte_size"),
    Case("a size fits 53 bits", put(*SHARD, "byte_size", value=2**53), "$.tables.main.shards[0].byte_size"),
    Case("a table's shard has rows", drop(*SHARD, "row_count"), "$.tables.main.shards[0].row_count"),
    Case("rows are a count", put(*SHARD, "row_count", value="7"), "$.tables.main.shards[0].row_count"),
    Case("no shard member is unknown", put(*SHARD, "etag", value="x"), "$.tables.main.shards[0].etag"),
    Case("a uri leads nowhere else", put(*SHARD, "uri", value="s3://elsewhere/x"), "$.tables.main.shards[0].uri"),
    Case(
        "a uri is that of its hash",
        put(*SHARD, "uri", value=f"blobs/bb/bb/{B}"),
        "$.tables.main.shards[0].uri",
        beyond_schema=True,
    ),
    # Footers
    Case("a footer is an object", put(*SHARD, "footer", value=1), "$.tables.main.shards[0].footer"),
    Case("a footer has a size", drop(*SHARD, "footer", "byte_size"), "$.tables.main.shards[0].footer.byte_size"),
    Case(
        "a footer fits its shard",
        put(*SHARD, "footer", "byte_size", value=101),
        "$.tables.main.shards[0].footer.byte_size",
        beyond_schema=True,
    ),
    Case("a footer has a checksum", drop(*SHARD, "footer", "xxh3"), "$.tables.main.shards[0].footer.xxh3"),
    Case("it has 16 digits", put(*SHARD, "footer", "xxh3", value="0" * 15), "$.tables.main.shards[0].footer.xxh3"),
    Case("it says nothing else", put(*SHARD, "footer", "crc", value=1), "$.tables.main.shards[0].footer.crc"),
    # Pages
    Case(
        "pages stand alone",
        put("tables", "long", "shards", value=[{"hash": A, "byte_size": 0, "row_count": 0}]),
        "$.tables.long.shard_pages",
    ),
    Case("there is a level", put(*PAGES, "levels", value=0), "$.tables.long.shard_pages"),
    Case("levels are bounded", put(*PAGES, "levels", value=9), "$.tables.long.shard_pages"),
    Case("levels are a count", put(*PAGES, "levels", value="1"), "$.tables.long.shard_pages.levels"),
    Case("there is a page", put(*PAGES, "pages", value=[]), "$.tables.long.shard_pages"),
    Case("pages are bounded", put(*PAGES, "pages", value=copies_of_a_page(257)), "$.tables.long.shard_pages"),
    Case("pages hold nothing else", put(*PAGES, "sort", value=1), "$.tables.long.shard_pages.sort"),
    Case("a page is named", drop(*PAGES, "pages", 0, "hash"), "$.tables.long.shard_pages.pages[0].hash"),
    Case("it counts shards", drop(*PAGES, "pages", 0, "shard_count"), "$.tables.long.shard_pages.pages[0].shard_count"),
    Case("it counts rows", drop(*PAGES, "pages", 0, "row_count"), "$.tables.long.shard_pages.pages[0].row_count"),
    Case("it counts bytes", drop(*PAGES, "pages", 0, "data_bytes"), "$.tables.long.shard_pages.pages[0].data_bytes"),
    Case("it has no footer", put(*PAGES, "pages", 0, "footer", value={}), "$.tables.long.shard_pages.pages[0].footer"),
    # Bindings
    Case("bindings are a list", put("bindings", value={}), "$.bindings"),
    Case("a binding is an object", put("bindings", 0, value="x"), "$.bindings[0]"),
    Case("a binding has a column", drop("bindings", 0, "column"), "$.bindings[0].column"),
    Case("a column has a name", put("bindings", 0, "column", value=""), "$.bindings[0].column"),
    Case("a reference has a known type", put("bindings", 0, "ref_type", value="pdf"), "$.bindings[0].ref_type"),
    Case("a binding says nothing else", put("bindings", 0, "index", value=1), "$.bindings[0].index"),
    Case("its table exists", put("bindings", 0, "table", value="x"), "$.bindings[0].table", beyond_schema=True),
    Case(
        "its artifact exists", put("bindings", 0, "artifact", value="x"), "$.bindings[0].artifact", beyond_schema=True
    ),
]


def spoiled(case: Case) -> Document:
    document = valid()
    case.spoil(document)
    return document


def sealed(document: Document) -> bytes:
    """Stored bytes with the right hash; for a document too broken to hash as specified, any hash will do."""
    try:
        return seal(copy.deepcopy(document))
    except (AttributeError, KeyError, TypeError):
        return canonical({**document, "version_hash": "0" * 64})


def test_what_is_sound_is_admitted() -> None:
    manifest = parse_manifest(sealed(valid()))
    assert (manifest.row_count, manifest.data_bytes) == (37, 505)
    CHECKER.validate(json.loads(sealed(valid())))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_one_rule_broken_is_one_path_named(case: Case) -> None:
    with pytest.raises(ManifestCorruptedError) as caught:
        parse_manifest(sealed(spoiled(case)))
    assert any(problem.startswith(f"{case.path} ") for problem in caught.value.problems), caught.value.problems
    assert case.path in str(caught.value)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.rule) for case in CASES if not case.beyond_schema])
def test_the_schema_rejects_it_too(case: Case) -> None:
    assert not CHECKER.is_valid(json.loads(sealed(spoiled(case))))


def test_every_problem_is_reported_at_once() -> None:
    document = valid()
    put(*SHARD, "hash", value="x")(document)
    put(*SHARD, "byte_size", value=None)(document)
    put("bindings", 0, "ref_type", value="pdf")(document)
    put("stats", "total_rows", value=1)(document)
    with pytest.raises(ManifestCorruptedError) as caught:
        parse_manifest(sealed(document))
    paths = {problem.split(" ")[0] for problem in caught.value.problems}
    assert paths >= {
        "$.tables.main.shards[0].hash",
        "$.tables.main.shards[0].byte_size",
        "$.bindings[0].ref_type",
        "$.stats.total_rows",
    }


# Bytes that are no document


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[]", "$ is a list"),
        (b"null", "$ is missing"),
        (b'{"format":1,"format":1}', "'format' appears twice"),
        (b'{"metadata":{"a":{"b":1,"b":1}}}', "'b' appears twice"),
        (b'{"metadata":{"share":NaN}}', "NaN is not a JSON number"),
        (b'{"metadata":{"share":-Infinity}}', "-Infinity is not a JSON number"),
        (b'{"metadata":' + b'{"a":' * 40 + b"1" + b"}" * 41, "deeper than 32 levels"),
        (b"[" * 100_000, "not valid JSON"),
        (b" " * (MAX_MANIFEST_BYTES + 1), "the limit is 262144"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bytes_that_are_no_document_are_refused(data: bytes, fact: str) -> None:
    with pytest.raises(ManifestCorruptedError) as caught:
        parse_manifest(data)
    assert fact in caught.value.message


def test_a_newer_format_is_not_called_damage() -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse_manifest(sealed({**valid(), "format": 3, "something_new": {}}))
    assert "3" in caught.value.message


# Documents that are well formed, but not what was promised


def test_a_version_hash_is_needed() -> None:
    with pytest.raises(ManifestCorruptedError) as caught:
        parse_manifest(canonical(valid()))
    assert any(problem.startswith("$.version_hash ") for problem in caught.value.problems)


def test_another_content_under_the_same_version_is_refused() -> None:
    document = json.loads(sealed(valid()))
    document["tables"]["main"]["shards"][0]["hash"] = B
    document["tables"]["main"]["shards"][0]["uri"] = f"blobs/bb/bb/{B}"
    with pytest.raises(ManifestCorruptedError, match="hash mismatch"):
        parse_manifest(canonical(document))


def test_another_version_than_asked_for_is_refused() -> None:
    data = sealed(valid())
    parse_manifest(data, json.loads(data)["version_hash"])
    with pytest.raises(ManifestCorruptedError, match="hash mismatch"):
        parse_manifest(data, "0" * 64)


def test_metadata_and_places_are_not_part_of_the_version() -> None:
    document = json.loads(sealed(valid()))
    del document["tables"]["main"]["shards"][0]["uri"]
    document["metadata"] = {"words": "new", "share": 0.5}
    assert parse_manifest(json.dumps(document, indent=2).encode()).metadata == {"words": "new", "share": 0.5}


@pytest.mark.parametrize(
    "spoil",
    [
        put("episodes", value={}),
        put("artifacts", value={}),
        put("bindings", value=[]),
        put(*TENSOR, "attributes", value={}),
        put("format", value=True),
        put("stats", "total_rows", value=37.0),
        put(
            "bindings",
            value=[
                {"table": "main", "column": "z", "artifact": "media", "ref_type": "image"},
                {"table": "main", "column": "a", "artifact": "media", "ref_type": "image"},
            ],
        ),
    ],
    ids=["empty section", "other empty section", "no bindings", "no attributes", "format", "float", "unsorted"],
)
def test_a_second_spelling_of_the_same_content_is_refused(spoil: Callable[[Document], None]) -> None:
    """Or else one content would have two versions."""
    document = valid()
    spoil(document)
    with pytest.raises(ManifestCorruptedError):
        parse_manifest(sealed(document))


@pytest.mark.parametrize("value", [1.5, 2**53, "\ud800"], ids=["fraction", "beyond 53 bits", "half a pair"])
def test_a_value_without_canonical_form_is_refused(value: object) -> None:
    document = valid()
    data = sealed(document).replace(b'"rank":2', b'"rank":' + json.dumps(value).encode())
    with pytest.raises(ManifestCorruptedError):
        parse_manifest(data)


def test_a_table_may_have_any_name_that_is_allowed() -> None:
    document = valid()
    document["tables"]["uri"] = document["tables"].pop("main")
    document["bindings"][0]["table"] = "uri"
    assert set(parse_manifest(sealed(document)).tables) == {"uri", "long"}


# Pages


def page_of(document: Any, **promised: int) -> tuple[Page, bytes]:
    data = document if isinstance(document, bytes) else canonical(document)
    sums = {"shard_count": 1, "row_count": 7, "data_bytes": 100, **promised}
    return Page(sha256_hex(data), len(data), **sums), data


ENTRY = {"hash": A, "byte_size": 100, "row_count": 7}


@pytest.mark.parametrize(
    ("document", "promised"),
    [
        (b"no json", {}),
        ([], {}),
        ({"format": 1, "level": 0}, {}),
        ({"format": 2, "level": 0, "entries": [ENTRY]}, {}),
        ({"format": 1, "level": 1, "entries": [ENTRY]}, {}),
        ({"format": 1, "level": 0, "entries": [ENTRY], "more": 1}, {}),
        ({"format": 1, "level": 0, "entries": [{**ENTRY, "uri": "x"}]}, {}),
        ({"format": 1, "level": 0, "entries": [{**ENTRY, "hash": "x"}]}, {}),
        ({"format": 1, "level": 0, "entries": [{**ENTRY, "byte_size": -100}]}, {"data_bytes": -100}),
        ({"format": 1, "level": 0, "entries": [{**ENTRY, "row_count": -7}]}, {"row_count": -7}),
        ({"format": 1, "level": 0, "entries": [ENTRY, ENTRY]}, {}),
        ({"format": 1, "level": 0, "entries": [ENTRY]}, {"shard_count": 2}),
        ({"format": 1, "level": 0, "entries": [ENTRY]}, {"row_count": 8}),
        ({"format": 1, "level": 0, "entries": [ENTRY]}, {"data_bytes": 99}),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_page_that_breaks_its_promise_is_refused(document: Any, promised: dict[str, int]) -> None:
    page, data = page_of(document, **promised)
    spoiled_list = ShardList(pages=(page,), levels=1)
    with pytest.raises(ManifestCorruptedError) as caught:
        list(iter_shards(spoiled_list, lambda _: data))
    assert page.hash in caught.value.message


def test_a_page_that_keeps_its_promise_is_read() -> None:
    page, data = page_of({"format": 1, "level": 0, "entries": [ENTRY]})
    shards = ShardList(pages=(page,), levels=1)
    assert list(iter_shards(shards, lambda _: data)) == [Shard(A, 100, 7)]
