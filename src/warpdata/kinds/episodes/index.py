"""The index of an episode set: a Parquet file with one row for each episode, written and read.

It is an ordinary table, so that episodes can be chosen by SQL. Beside what people ask for, a row has the bytes
of its file that say where everything lies, so that opening an episode asks nobody. Implements "Index" of
docs/specs/episodes.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import BlobCorruptedError, LimitExceededError
from warpdata.formats.parquet import ParquetSource, WriteOptions, describe_parquet, write_parquet
from warpdata.kinds.episodes.description import Described, Piece, Scalar
from warpdata.limits import EPISODES_GROUP_BYTES, EPISODES_METADATA_NAMES
from warpdata.primitives.hashing import Blob, is_digest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CHUNKS",
    "HIDDEN_COLUMNS",
    "OPENING_COLUMNS",
    "ChunkedRow",
    "IndexRow",
    "IndexedEpisode",
    "check_columns",
    "row_of",
    "write_index",
]

CHUNKS = "chunks"
"""The column of a set in which some episodes lie in several files."""

HIDDEN_COLUMNS = ("layout", "pieces", "checks", CHUNKS)
"""For readers of episodes rather than for people."""

OPENING_COLUMNS = ("id", "length", "hash", "byte_size", "identity", "pieces", "checks")
_NO_BLOB = ""
"""In the place of a blob's name where there are several."""
_PRUNED = ("id", "env_id", "length", "timebase", "tick_hz")
_ONE_FILE_BYTES = 2**50


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What it takes to open one episode."""

    id: str
    length: int
    blob: Blob
    identity: str
    pieces: tuple[Piece, ...]
    checks: Mapping[str, bytes]
    place: tuple[int, int] | None = None
    """Of a chunk: which one it is, and the first of its steps in the whole episode."""


@dataclass(frozen=True, slots=True)
class ChunkedRow:
    """What it takes to open one episode in several files."""

    id: str
    length: int
    identity: str
    chunks: tuple[IndexRow, ...]


@dataclass(frozen=True, slots=True)
class IndexedEpisode:
    """What there is to say of an episode, and the files it lies in: one, or its chunks in order."""

    whole: Described
    files: tuple[tuple[Described, Blob], ...]


def write_index(rows: Sequence[IndexedEpisode], folder: Path, stem: str) -> ParquetSource:
    """The same episodes always give the same bytes, with the same release of Arrow."""
    import pyarrow as pa

    schema = _schema([row.whole.scalars for row in rows], has_chunks=any(len(row.files) > 1 for row in rows))
    table = pa.Table.from_pylist([_document(row, schema) for row in rows], schema)
    options = WriteOptions(row_group_bytes=EPISODES_GROUP_BYTES, file_bytes=_ONE_FILE_BYTES, statistics=_PRUNED)
    (path,) = write_parquet(table.to_batches(), schema, folder, stem, options)
    return describe_parquet(path)


def check_columns(schema: pa.Schema, *, has_chunks: bool) -> None:
    """`BlobCorruptedError` unless the columns that a reader needs are there, and what they should be."""
    for wanted in _fields(has_chunks=has_chunks):
        at = schema.get_field_index(wanted.name)
        if at < 0 or not schema.field(at).equals(wanted):
            raise BlobCorruptedError(
                f"the index has no proper column {wanted.name!r}", hint="Publish the episodes again."
            )


def row_of(document: Mapping[str, Any]) -> IndexRow | ChunkedRow:
    """A row as the index tells it, of `OPENING_COLUMNS`, and of `CHUNKS` where that is there.

    `BlobCorruptedError` if it can not be.
    """
    chunks = document.get(CHUNKS)
    if not chunks:
        return _file_row(document, document["id"], None)
    rows, following = [], 0
    for number, chunk in enumerate(chunks):
        rows.append(_file_row(chunk, document["id"], (number, following)))
        following += rows[-1].length
    if len(rows) < 2 or following != document["length"]:
        raise BlobCorruptedError(f"the chunks of episode {document['id']!r} have {following} steps in the index")
    return ChunkedRow(document["id"], document["length"], document["identity"], tuple(rows))


def _file_row(document: Mapping[str, Any], name: str, place: tuple[int, int] | None) -> IndexRow:
    pieces = document["pieces"]
    if not is_digest(document["hash"]) or min(document["byte_size"], document["length"]) < 0:
        raise BlobCorruptedError(f"the index says of episode {name!r} what cannot be")
    if not pieces or pieces[0]["start"] != 0:
        raise BlobCorruptedError(f"the index lacks the beginning of episode {name!r}")
    return IndexRow(
        name,
        document["length"],
        Blob(document["hash"], document["byte_size"]),
        document["identity"],
        tuple((piece["start"], piece["data"]) for piece in pieces),
        {check["block"]: check["xxh3"] for check in document["checks"]},
        place,
    )


def _schema(metadata: Sequence[Mapping[str, Scalar]], *, has_chunks: bool) -> pa.Schema:
    import pyarrow as pa

    fields, members = _fields(has_chunks=has_chunks), _metadata_fields(metadata)
    if members:
        before = [field.name for field in fields].index(HIDDEN_COLUMNS[0])
        fields.insert(before, pa.field("metadata", pa.struct(members), nullable=False))
    return pa.schema(fields)


def _fields(*, has_chunks: bool) -> list[pa.Field]:
    """All columns but the users' metadata."""
    import pyarrow as pa

    def needed(name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False)

    piece = pa.struct([needed("start", pa.int64()), needed("data", pa.binary())])
    check = pa.struct([needed("block", pa.string()), needed("xxh3", pa.binary())])
    opening = [
        needed("pieces", pa.list_(needed("element", piece))),
        needed("checks", pa.list_(needed("element", check))),
    ]
    blob = [needed("hash", pa.string()), needed("byte_size", pa.int64())]
    chunk = pa.struct([needed("length", pa.int64()), needed("identity", pa.string()), *blob, *opening])
    return [
        needed("id", pa.string()),
        needed("env_id", pa.string()),
        needed("length", pa.int64()),
        needed("timebase", pa.string()),
        pa.field("tick_hz", pa.float64()),
        needed("channels", pa.list_(pa.string())),
        needed("identity", pa.string()),
        needed("is_sealed", pa.bool_()),
        *blob,
        needed("layout", pa.string()),
        *opening,
        *([needed(CHUNKS, pa.list_(needed("element", chunk)))] if has_chunks else []),
    ]


def _metadata_fields(metadata: Sequence[Mapping[str, Scalar]]) -> list[pa.Field]:
    """One field for each name of the users' metadata, in order. SQL does not tell `Ok` from `ok`: the first is kept."""
    import pyarrow as pa

    names: dict[str, str] = {}
    for name in sorted({name for values in metadata for name in values}):
        names.setdefault(name.casefold(), name)
    if len(names) > EPISODES_METADATA_NAMES:
        raise LimitExceededError(
            f"the episodes have {len(names)} names of metadata; the most is {EPISODES_METADATA_NAMES}",
            hint="Put what differs from episode to episode into lists or objects, which are kept in the files alone.",
        )
    return [pa.field(name, _type([values.get(name) for values in metadata])) for name in names.values() if name]


def _type(values: Sequence[Scalar | None]) -> pa.DataType:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    fits = all(abs(value) < 2**63 for value in values if isinstance(value, int))
    if kinds == {int} and fits:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _document(episode: IndexedEpisode, schema: pa.Schema) -> dict[str, object]:
    row, files = episode.whole, episode.files
    is_chunked = len(files) > 1
    document: dict[str, object] = {
        "id": row.id,
        "env_id": row.env_id,
        "length": row.length,
        "timebase": row.timebase,
        "tick_hz": row.tick_hz,
        "channels": [spec.id for spec in row.layout],
        "identity": row.identity,
        "is_sealed": row.is_sealed,
        "hash": _NO_BLOB if is_chunked else files[0][1].hash,
        "byte_size": sum(blob.byte_size for _, blob in files),
        "layout": row.layout_text,
        **_opening(row),
        CHUNKS: [_chunk(part, blob) for part, blob in files] if is_chunked else [],
    }
    if "metadata" in schema.names:
        members, scalars = schema.field("metadata").type, row.scalars
        document["metadata"] = {
            members[at].name: _cell(scalars.get(members[at].name), members[at].type) for at in range(members.num_fields)
        }
    return document


def _chunk(row: Described, blob: Blob) -> dict[str, object]:
    named = {"length": row.length, "identity": row.identity, "hash": blob.hash, "byte_size": blob.byte_size}
    return {**named, **_opening(row)}


def _opening(row: Described) -> dict[str, object]:
    return {
        "pieces": [{"start": start, "data": data} for start, data in row.pieces],
        "checks": [{"block": name, "xxh3": sums} for name, sums in row.checks.items()],
    }


def _cell(value: Scalar | None, wanted: pa.DataType) -> Scalar | None:
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_string(wanted):
        return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    return float(value) if pa.types.is_floating(wanted) else value
