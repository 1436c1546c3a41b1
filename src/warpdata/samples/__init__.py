"""Samples appended one by one or from an iterator, with a schema of fields; media become files of artifacts."""

from warpdata.samples.fields import (
    Audio,
    Boolean,
    Categorical,
    Embedding,
    Field,
    File,
    Float,
    Image,
    Integer,
    Tags,
    Text,
    Timestamp,
    Video,
)
from warpdata.samples.schema import Schema
from warpdata.samples.writer import DatasetWriter, Sample, create, open_writer

__all__ = [
    "Audio",
    "Boolean",
    "Categorical",
    "DatasetWriter",
    "Embedding",
    "Field",
    "File",
    "Float",
    "Image",
    "Integer",
    "Sample",
    "Schema",
    "Tags",
    "Text",
    "Timestamp",
    "Video",
    "create",
    "open_writer",
]
