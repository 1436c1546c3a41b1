"""Platform Format of versions: `annotations.json`, `meta.json` and snapshot documents.

Image ids in written documents are sample ids, which begin at 0. Implements "Platform Format" of
docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpdata.collections.tables import ANNOTATIONS, IMAGES, check_collection, quoted_lists, read_columns
from warpdata.datasets import Dataset
from warpdata.formats.labels import Polyline, annotation_members, annotation_of
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import canonical_json

__all__ = ["annotations_document", "meta_document", "read_annotations", "snapshot_document"]

_LINES_VERSION, _VERSION = "1.1", "1.0"


def annotations_document(dataset: Dataset) -> dict[str, Any]:
    """Return the `annotations.json` of a version."""
    images = dataset.table(IMAGES)
    columns = read_columns(dataset, IMAGES, ["path", "width", "height", "split", "tags"]).to_pylist()
    ids = dict(zip((row["path"] for row in columns), images.sample_ids().tolist(), strict=True))
    rows = read_columns(dataset, ANNOTATIONS, dataset.table(ANNOTATIONS).schema().names).to_pylist()
    classes = {name: number for number, name in enumerate(sorted({row["class_name"] for row in rows}))}
    return {
        "format_version": _LINES_VERSION if any(row["kind"] == Polyline.kind for row in rows) else _VERSION,
        "dataset_id": dataset.id,
        "dataset_name": dataset.id.rpartition("/")[2],
        "classes": [{"id": number, "name": name} for name, number in classes.items()],
        "images": [_image_member(ids[row["path"]], row) for row in columns],
        "annotations": [_annotation_member(row, ids[row["image"]], classes) for row in rows],
    }


def meta_document(dataset: Dataset, created_at: str) -> dict[str, Any]:
    """Return the `meta.json` of a version."""
    names = sorted(set(read_columns(dataset, ANNOTATIONS, ["class_name"])["class_name"].to_pylist()))
    return {
        "dataset_id": dataset.id,
        "created_at": created_at,
        "num_images": dataset.table(IMAGES).count(),
        "num_classes": len(names),
        "class_names": names,
        "labeled": dataset.table(ANNOTATIONS).count() > 0,
    }


def snapshot_document(dataset: Dataset, snapshot_id: str, created: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of a snapshot. `created` has `created_at`, `created_by` and `snapshot_type`."""
    annotations = annotations_document(dataset)
    files = read_columns(dataset, IMAGES, ["path", "hash"])
    checksums = zip(files["path"].to_pylist(), files["hash"].to_pylist(), strict=True)
    distribution: dict[str, set[int]] = {one["name"]: set() for one in annotations["classes"]}
    for one in annotations["annotations"]:
        distribution[annotations["classes"][one["class_id"]]["name"]].add(one["image_id"])
    return {
        "snapshot_id": snapshot_id,
        "snapshot_type": created["snapshot_type"],
        "created_at": created["created_at"],
        "created_by": created["created_by"],
        "parent_dataset_id": dataset.id,
        "version": dataset.version,
        "annotations": annotations,
        "integrity": {
            "total_images": files.num_rows,
            "annotations_hash": f"sha256:{sha256_hex(canonical_json(annotations, fractions=True))}",
            "image_checksums": {path: f"sha256:{digest}" for path, digest in checksums},
        },
        "metadata": {
            "num_classes": len(distribution),
            "class_distribution": {name: len(images) for name, images in distribution.items()},
        },
    }


def _image_member(image_id: int, row: Mapping[str, Any]) -> dict[str, Any]:
    member = {"id": image_id, "file_name": row["path"]}
    for name in ("width", "height", "split"):
        if row[name] is not None:
            member[name] = row[name]
    return {**member, "tags": row["tags"]} if row["tags"] else member


def _annotation_member(row: Mapping[str, Any], image_id: int, classes: Mapping[str, int]) -> dict[str, Any]:
    found = annotation_of(row)
    about = {"id": row["id"], "image_id": image_id, "class_id": classes[found.class_name]}
    return about | annotation_members(found)


def read_annotations(dataset: Dataset, paths: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the annotations of several images by path, in the members of Platform Format and with their ids."""
    listed: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
    table = check_collection(dataset).table(ANNOTATIONS).raw()
    for where in quoted_lists("image", list(listed)):
        for row in table.filter(where).to_arrow().to_pylist():
            listed[row["image"]].append({"id": row["id"], **annotation_members(annotation_of(row))})
    return listed
