"""JSON Schemas of the messages in an MCAP export. Those of Foxglove have the members that its viewer looks for."""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]

_TIME = {"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}
_BYTES = {"type": "string", "contentEncoding": "base64"}
_COUNT = {"type": "integer", "minimum": 0}

SCHEMAS: dict[str, dict[str, Any]] = {
    "wshard.Array": {
        "title": "wshard.Array",
        "type": "object",
        "properties": {"data": {"description": "one step: a number or a boolean, or lists of them"}},
    },
    "foxglove.RawImage": {
        "title": "foxglove.RawImage",
        "type": "object",
        "properties": {
            "timestamp": _TIME,
            "frame_id": {"type": "string"},
            "width": _COUNT,
            "height": _COUNT,
            "encoding": {"type": "string"},
            "step": _COUNT,
            "data": _BYTES,
        },
    },
    "foxglove.CompressedImage": {
        "title": "foxglove.CompressedImage",
        "type": "object",
        "properties": {
            "timestamp": _TIME,
            "frame_id": {"type": "string"},
            "data": _BYTES,
            "format": {"type": "string"},
        },
    },
}
