"""The contents of virtual files: each follows from a version alone, so it is the same at any time.

Implements "Virtual files" of docs/specs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpdata.collections import FILES, Collection, label_set
from warpdata.formats.labels import (
    Conservation,
    LabeledImage,
    LabelFile,
    LabelOptions,
    coco_document,
    cvat_manifest,
    label_format,
    label_studio_task,
)
from warpdata.formats.media import read_image_size
from warpdata.limits import KIB, MAX_VIRTUAL_FILE_BYTES
from warpdata.repository.manifest import canonical_json
from warpdata.server.media_types import media_type
from warpdata.server.s3.layout import SNAPSHOT
from warpdata.server.s3.versions import GatewayVersion
from warpdata.session import Session

__all__ = ["DOCUMENTS", "FOLDERS", "MemberAlias", "VirtualDocument", "VirtualFolder"]

_BATCH_ROWS = 65_536
_HEADER_BYTES = 256 * KIB


@dataclass(frozen=True, slots=True)
class VirtualDocument:
    """A file beside the artifacts of a version."""

    is_offered: Callable[[GatewayVersion], bool]
    make: Callable[[GatewayVersion, Session], bytes]


@dataclass(frozen=True, slots=True)
class MemberAlias:
    """A file of an artifact under another name. It takes no space."""

    artifact: str
    path: str


@dataclass(frozen=True, slots=True)
class VirtualFolder:
    """A directory of files, which are made together."""

    is_offered: Callable[[GatewayVersion], bool]
    make: Callable[[GatewayVersion, Session], Mapping[str, bytes | MemberAlias]]


def _always(_version: GatewayVersion) -> bool:
    return True


def _is_collection(version: GatewayVersion) -> bool:
    return version.is_collection


def _has_images(version: GatewayVersion) -> bool:
    return version.images is not None


def _has_snapshot(version: GatewayVersion) -> bool:
    return version.is_collection and version.label is not None


def _annotations(version: GatewayVersion, session: Session) -> bytes:
    return _json(_collection(version, session).annotations_document(version.version))


def _snapshot(version: GatewayVersion, session: Session) -> bytes:
    assert version.label is not None
    return _json(_collection(version, session).snapshot_document(version.label))


def _meta(version: GatewayVersion, session: Session) -> bytes:
    if version.is_collection:
        return _json(_collection(version, session).meta_document(version.version))
    members = {
        "dataset_id": version.id,
        "version": version.version,
        "created_at": version.time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "tables": list(version.dataset.tables),
        "artifacts": list(version.artifacts),
        "num_rows": version.dataset.info().rows,
    }
    return _json(members)


def _manifest(version: GatewayVersion, _session: Session) -> bytes:
    """Return the `manifest.jsonl` of CVAT, with one line for each image whose size is known."""
    sizes = (LabeledImage(path, width=width, height=height) for path, (height, width) in _image_sizes(version))
    return b"".join(cvat_manifest(sizes))


def _coco(version: GatewayVersion, _session: Session) -> bytes:
    return b"".join(coco_document(label_set(version.dataset)))


def _yolo(version: GatewayVersion, _session: Session) -> dict[str, bytes | MemberAlias]:
    """Return a dataset for YOLO: labels, images under other names, and what the format does not hold."""
    account = Conservation("yolo", "export")
    made: dict[str, bytes | MemberAlias] = {}
    for file in label_format("yolo").write(label_set(version.dataset), account, LabelOptions()):
        made[file.name] = file.read() if isinstance(file, LabelFile) else MemberAlias(FILES, file.path)
    made["conservation.json"] = _json(account.report().document())
    return made


def _tasks(version: GatewayVersion, _session: Session) -> dict[str, bytes | MemberAlias]:
    """Return a task of Label Studio for each image, with its annotations as a prediction to start from."""
    workspace, _, name = version.id.partition("/")
    made: dict[str, bytes | MemberAlias] = {}
    for image in label_set(version.dataset).images:
        url = f"s3://{workspace}/{name}/{version.ref}/{FILES}/{image.path}"
        made[f"{image.path}.json"] = label_studio_task(image, url, version=version.version, is_prediction=True)
    return made


def _image_sizes(version: GatewayVersion) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield paths below the version, in order, with height and width. Sizes come from the table, else from the file."""
    assert version.images is not None
    artifact = version.dataset.artifact(version.images)
    known: dict[str, tuple[int, int]] = {}
    if version.is_collection:
        rows = version.dataset.table(FILES).raw().select(["path", "height", "width"]).to_arrow(allow_large=True)
        columns = (rows[name].to_pylist() for name in ("path", "height", "width"))
        known = {path: (height, width) for path, height, width in zip(*columns, strict=True) if height and width}
    for member in artifact.members():
        size = known.get(member.path)
        if size is None and media_type(member.path).startswith("image/"):
            with artifact.open(member.path) as file:
                size = read_image_size(file.read(_HEADER_BYTES))
        if size is not None:
            yield f"{artifact.name}/{member.path}", size


def _offers_tables(version: GatewayVersion) -> bool:
    return bool(version.dataset.tables)


def _tables(version: GatewayVersion, _session: Session) -> dict[str, bytes | MemberAlias]:
    """Return each table as one Parquet file. Columns of references hold the paths of files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made: dict[str, bytes | MemberAlias] = {}
    for name in version.dataset.tables:
        table = version.dataset.table(name).raw()
        if version.dataset.manifest.tables[name].shards.data_bytes > MAX_VIRTUAL_FILE_BYTES:
            continue
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, table.schema(), compression="zstd") as writer:
            for batch in table.batches(batch_size=_BATCH_ROWS):
                writer.write_batch(batch)
        made[f"{name}.parquet"] = sink.getvalue().to_pybytes()
    return made


def _collection(version: GatewayVersion, session: Session) -> Collection:
    return Collection(session, version.id)


def _json(members: dict[str, Any]) -> bytes:
    return canonical_json(members, fractions=True)


DOCUMENTS: dict[str, VirtualDocument] = {
    "annotations.json": VirtualDocument(_is_collection, _annotations),
    "coco.json": VirtualDocument(_is_collection, _coco),
    "manifest.jsonl": VirtualDocument(_has_images, _manifest),
    "meta.json": VirtualDocument(_always, _meta),
    SNAPSHOT: VirtualDocument(_has_snapshot, _snapshot),
}
"""Documents by name. Their names have a dot, so none is that of an artifact."""

FOLDERS: dict[str, VirtualFolder] = {
    "tables": VirtualFolder(_offers_tables, _tables),
    "tasks": VirtualFolder(_is_collection, _tasks),
    "yolo": VirtualFolder(_is_collection, _yolo),
}
"""Directories by name."""
