"""Records of collections: jobs, states of versions, intents and receipts of purges. Each is created once.

The members are the business of `collections/`; here are bytes, bounds and checksums, so that a rename can carry the
records along. Implements "Records" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpdata.errors import (
    BadInputError,
    ConflictError,
    CorruptError,
    ErrorKind,
    NotCachedError,
    ObjectNotFoundError,
    UnsupportedError,
)
from warpdata.limits import MAX_COLLECTION_RECORD_BYTES
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.catalog.layout import collection_key, collection_prefix
from warpdata.repository.catalog.writes import Pause, put_create_only
from warpdata.repository.manifest import Json, canonical_json
from warpdata.storage import Reader, Writer

__all__ = [
    "CollectionCopy",
    "check_intact",
    "copy_collection_records",
    "list_collection_records",
    "put_collection_record",
    "read_collection_record",
]

_FORMAT = 1
_PARALLEL = 16


def put_collection_record(
    writer: Writer, dataset_id: str, name: str, members: Mapping[str, Json], pause: Pause
) -> bool:
    """Create a record. False: there is one of this name already; read it back to know."""
    data = _encode(members)
    if len(data) > MAX_COLLECTION_RECORD_BYTES:
        raise BadInputError(f"the record {name} has {len(data)} bytes; the limit is {MAX_COLLECTION_RECORD_BYTES}")
    return put_create_only(writer, collection_key(dataset_id, name), data, pause)


def read_collection_record(reader: Reader, dataset_id: str, name: str) -> dict[str, Any] | None:
    """Return the members of a record, or None. Raise `CorruptError` if it does not match its checksum."""
    key = collection_key(dataset_id, name)
    try:
        return _decode(reader.read(key).data, key)
    except ObjectNotFoundError:
        return None


def list_collection_records(reader: Reader, dataset_id: str, folder: str) -> list[str]:
    """Return the names of all records in a directory, such as `jobs/17`, sorted."""
    prefix = f"{collection_prefix(dataset_id)}/"
    listed = reader.list_objects(collection_prefix(dataset_id, folder))
    keys = sorted(info.key for info in listed if info.key.endswith(".json"))
    return [key.removeprefix(prefix).removesuffix(".json") for key in keys]


def check_intact(reader: Reader, dataset_id: str, version: str) -> None:
    """Raise `ConflictError` if records say that a version has lost files. The hint names its newest successor.

    Offline nothing is listed, and nothing can be committed either.
    """
    try:
        is_intact = not list_collection_records(reader, dataset_id, f"states/{version}")
    except NotCachedError:
        return
    if is_intact:
        return
    names = list_collection_records(reader, dataset_id, f"repairs/{version}")
    repairs = [found for name in names if (found := read_collection_record(reader, dataset_id, name)) is not None]
    repairs.sort(key=lambda repair: (str(repair.get("time")), str(repair.get("label"))))
    whole = [
        repair["label"]
        for repair in repairs
        if not list_collection_records(reader, dataset_id, f"states/{repair.get('repaired_by')}")
    ]
    raise ConflictError(
        f"version {version[:12]} of {dataset_id} has lost files, so it cannot become the head of a branch",
        hint=f"Use {whole[-1]!r} instead, which has the other files." if whole else "Choose another version.",
        kind=ErrorKind.VERSION_BROKEN,
    )


@dataclass(frozen=True, slots=True)
class CollectionCopy:
    """The target of a copy. `renamed` maps versions and commits to those of the copy; `labels` are those it has."""

    writer: Writer
    dataset_id: str
    renamed: Mapping[str, str]
    labels: frozenset[str]


def copy_collection_records(reader: Reader, dataset_id: str, target: CollectionCopy, pause: Pause) -> None:
    """Copy all records of a collection. Versions and commits in them get their new hashes.

    Records that are there already stay. A repair whose successor was not copied is left out.
    """
    renamed = target.renamed

    def copy(name: str) -> None:
        members = read_collection_record(reader, dataset_id, name)
        is_known = not name.startswith("repairs/") or (members or {}).get("label") in target.labels
        if members is not None and is_known:
            key = "/".join(renamed.get(part, part) for part in name.split("/"))
            put_collection_record(target.writer, target.dataset_id, key, _translated(members, renamed), pause)

    IO_POOL.map_all(copy, list_collection_records(reader, dataset_id, ""), limit=_PARALLEL)


def _translated(value: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _translated(item, renamed) for key, item in value.items()}
    if isinstance(value, list):
        return [_translated(item, renamed) for item in value]
    return renamed.get(value, value) if isinstance(value, str) else value


def _encode(members: Mapping[str, Json]) -> bytes:
    body: dict[str, Json] = {**members, "format": _FORMAT}
    return canonical_json({**body, "checksum": sha256_hex(canonical_json(body))})


def _decode(data: bytes, key: str) -> dict[str, Any]:
    if len(data) > MAX_COLLECTION_RECORD_BYTES:
        raise CorruptError(f"{key} has {len(data)} bytes; the limit is {MAX_COLLECTION_RECORD_BYTES}")
    body = decode_json(data, key)
    if not isinstance(body, dict):
        raise CorruptError(f"{key} is not a record")
    number = body.get("format")
    if isinstance(number, int) and number > _FORMAT:
        raise UnsupportedError(f"{key} has format {number}; this warpdata reads {_FORMAT}", hint="Upgrade warpdata.")
    checksum = body.pop("checksum", None)
    if number != _FORMAT or checksum != sha256_hex(canonical_json(body)):
        raise CorruptError(f"{key} does not match its checksum")
    del body["format"]
    return body
