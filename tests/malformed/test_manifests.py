"""If this fails, a reader believes a manifest that nobody may have written, or cannot say what is wrong with it.

One rejected document per rule of docs/specs/manifest.md. Each is a sound document with one thing changed and the
version hash set right again, so that it is the rule that rejects it and not the hash. What JSON Schema can say,
`schema.json` rejects as well.
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
from warpdata.digest import sha256_hex
from warpdata.errors import ManifestCorruptedError, UnsupportedFormatError
from warpdata.limits import MAX_MANIFEST_BYTES
from warpdata.manifest import Page, Shard, iter_shards, page_shards, parse_manifest

Document = dict[str, Any]
A, B, C, D = (letter * 64 for letter in "abcd")
CHECKER = jsonschema.Draft202012Validator(json.loads(files("warpdata.manifest").joinpath("schema.json").read_text()))


def sound() -> Document:
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
    """How to spoil a document, and the path that must be named."""

    rule: str
    spoil: Callable[[Document], None]
    path: str
    beyond_schema: bool = False
    """Sums and references between parts are not for a JSON Schema to check."""
    broken: str = ""
    """Why the reader does not keep the rule yet."""


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


SHARD = ("tables", "main", "shards", 0)
PAGES = ("tables", "long", "shard_pages")
TENSOR = ("tensors", "w")

CASES = [
    # The root
    Case("the format is present", drop("format"), "$.format"),
    Case("the format is a number", put("format", value="1"), "$.format"),
    Case("the format is at least 1", put("format", value=0), "$.format"),
    Case("no member is unknown", put("extra", value=1), "$.extra"),
    Case("the dataset is named", drop("dataset_id"), "$.dataset_id"),
    Case("the dataset's name is not empty", put("dataset_id", value=""), "$.dataset_id"),
    Case("the name has two parts", put("dataset_id", value="trips"), "$.dataset_id"),
    Case("the name stays within its folder", put("dataset_id", value="../x"), "$.dataset_id"),
    Case("the name is lower case", put("dataset_id", value="Acme/trips"), "$.dataset_id"),
    Case("the name is bounded", put("dataset_id", value="a/" + "b" * 300), "$.dataset_id"),
    Case(
        "no one-letter name gets through",
        put("dataset_id", value="?"),
        "$.dataset_id",
        broken="'?' is the parser's own mark for 'already reported' and is not matched against the pattern",
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
        broken="refused by the hash only, without a path",
    ),
    # Sections and their names
    Case("a table's name has no slash", put("tables", "a/b", value=sound()["tables"]["long"]), "$.tables key"),
    Case("a table's name is not hidden", put("tables", ".x", value=sound()["tables"]["long"]), "$.tables key"),
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
    Case("pages are bounded", put(*PAGES, "pages", value=sound_pages(257)), "$.tables.long.shard_pages")
    if (sound_pages := lambda count: [{**sound()["tables"]["long"]["shard_pages"]["pages"][0]} for _ in range(count)])
    else Case("", drop(), ""),
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
    Case("its artifact exists", put("bindings", 0, "artifact", value="x"), "$.bindings[0].artifact", beyond_schema=True),
]
