"""Labels that come back from a labelling tool: the JSON that Label Studio stores, and the XML of CVAT.

A returned label says on which bytes it was drawn: a task that warpdata made names hash and version of its image.
Implements "Binding" of docs/specs/label-inbox.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warpdata.errors import CorruptError
from warpdata.formats.labels import (
    Annotation,
    Conservation,
    LabelOptions,
    cvat_images,
    decode_decimals,
    parse_task,
)
from warpdata.limits import MAX_RETURNED_LABEL_BYTES

__all__ = ["ReturnedLabel", "parse_returned"]

_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class ReturnedLabel:
    """The objects that an annotator drew on one image.

    `hash` and `version` say which image that was; None if the tool does not say it. `key` is the name that the tool
    gives to this state of the work, so that a repeated delivery is recognized.
    """

    source: str
    path: str
    objects: tuple[Annotation, ...]
    hash: str | None
    version: str | None
    annotator: str
    key: str
    lost: tuple[str, ...] = ()


def parse_returned(data: bytes, source: str) -> list[ReturnedLabel]:
    """Return the labels of a document: of Label Studio a stored annotation or a webhook, of CVAT a document of images.

    A skipped task returns nothing.
    """
    if len(data) > MAX_RETURNED_LABEL_BYTES:
        raise CorruptError(f"a returned label has {len(data):,} bytes; the limit is {MAX_RETURNED_LABEL_BYTES:,}")
    return _from_cvat(data) if source == "cvat" else _from_label_studio(data)


def _from_label_studio(data: bytes) -> list[ReturnedLabel]:
    where = "the annotation of Label Studio"
    body = decode_decimals(data, where)
    if not isinstance(body, dict):
        raise CorruptError(f"{where} is an object, not {type(body).__name__}")
    inner = body.get("annotation")
    annotation: dict[str, Any] = inner if isinstance(inner, dict) else body
    outer = body.get("task")
    task = outer if isinstance(outer, dict) else annotation.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
        raise CorruptError(f"{where} has no task with data", hint="Let the target storage send whole annotations.")
    if annotation.get("was_cancelled"):
        return []
    account = Conservation("label-studio", "import")
    found = parse_task({"data": task["data"], "annotations": [annotation]}, where, account, LabelOptions())
    unique = annotation.get("id") or annotation.get("unique_id")  # a storage is sent no unique_id, a webhook both
    key = f"{unique} {annotation.get('updated_at') or annotation.get('created_at') or ''}"
    image = found.image
    return [
        ReturnedLabel(
            "label-studio",
            image.path,
            tuple(image.annotations),
            image.hash,
            found.version,
            _annotator(annotation),
            key[:_MAX_NAME],
            _losses(account),
        )
    ]


def _from_cvat(data: bytes) -> list[ReturnedLabel]:
    account = Conservation("cvat", "import")
    images = cvat_images(data, "the document of CVAT", account, LabelOptions())
    return [
        ReturnedLabel("cvat", image.path, tuple(image.annotations), image.hash, None, "", "", _losses(account))
        for image in images
    ]


def _annotator(annotation: Mapping[str, Any]) -> str:
    by = annotation.get("completed_by")
    if isinstance(by, dict):
        by = by.get("email") or by.get("username") or by.get("id")
    return str(by if by is not None else annotation.get("created_username") or "")[:_MAX_NAME]


def _losses(account: Conservation) -> tuple[str, ...]:
    """Return what the tool drew and the inbox cannot keep."""
    return tuple(f"{count:,} {fact}: {why}" for fact, why, count in account.losses())
