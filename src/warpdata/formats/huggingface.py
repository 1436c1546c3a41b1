"""Features of Hugging Face `datasets` in the metadata of Arrow schemas. The library is not needed.

A schema that the library wrote has all features under one key. A table of this library keeps the features that Arrow
types do not tell in the metadata of its fields, so that an import followed by an export loses none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CLASS_NAMES_KEY",
    "COLUMN_KEY",
    "FEATURE_KEY",
    "MEDIA_FEATURES",
    "NO_LABEL",
    "Features",
    "field_feature",
    "schema_features",
]

FEATURE_KEY = b"huggingface.feature"
"""Field metadata: the feature of a column as JSON, where the Arrow type does not tell it."""
COLUMN_KEY = b"huggingface.column"
"""Field metadata of the integers of a `ClassLabel`: the name of its column in the source."""
CLASS_NAMES_KEY = b"huggingface.class_names_of"
"""Field metadata of the names of a `ClassLabel`: the column with the integers."""

MEDIA_FEATURES = {"Image": "image", "Audio": "audio", "Video": "video", "Pdf": "file", "Nifti": "file"}
"""Reference types of features that hold files."""

NO_LABEL = -1
"""The integer of a row without a class."""

Features: TypeAlias = Mapping[str, Any]


def schema_features(schema: pa.Schema, where: Path) -> Features:
    """Return the features in the metadata of a schema; an empty mapping if it has none."""
    text = (schema.metadata or {}).get(b"huggingface")
    if text is None:
        return {}
    try:
        features = json.loads(text)["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidSourceError(f"{where} has metadata 'huggingface' without features: {error}") from error
    return features if isinstance(features, dict) else {}


def field_feature(field: pa.Field) -> dict[str, Any] | None:
    """Return the feature that an import kept in the metadata of a field, or None."""
    text = (field.metadata or {}).get(FEATURE_KEY)
    if text is None:
        return None
    try:
        feature = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return feature if isinstance(feature, dict) else None
