"""The types of fields in a schema. Values only; `values.py` checks what a sample gives for them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar

from warpdata.errors import BadInputError
from warpdata.primitives.arguments import check_fields

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ArrowField",
    "Audio",
    "Boolean",
    "Categorical",
    "Embedding",
    "Field",
    "File",
    "Float",
    "Image",
    "Integer",
    "MediaField",
    "Tags",
    "Text",
    "Timestamp",
    "Video",
]

_FLOAT_TYPES = ("float16", "float32", "float64")
_MAX_DIM = 65_536


@dataclass(frozen=True, slots=True)
class Field:
    """A column. A missing value is null, or an error if the field is required."""

    _: KW_ONLY
    required: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class MediaField(Field):
    """Files: the bytes, the path of a file, or a reference of a dataset. The column refers to an artifact."""

    ref_type: ClassVar[str] = "file"


@dataclass(frozen=True, slots=True)
class File(MediaField):
    """Any file."""


@dataclass(frozen=True, slots=True)
class Image(MediaField):
    """An encoded image, such as a JPEG."""

    ref_type: ClassVar[str] = "image"


@dataclass(frozen=True, slots=True)
class Audio(MediaField):
    """An encoded recording, such as a WAV file."""

    ref_type: ClassVar[str] = "audio"


@dataclass(frozen=True, slots=True)
class Video(MediaField):
    """An encoded video, such as an MP4 file."""

    ref_type: ClassVar[str] = "video"


@dataclass(frozen=True, slots=True)
class Text(Field):
    """A string."""


@dataclass(frozen=True, slots=True)
class Categorical(Field):
    """A string of few distinct values. Stored like text, which Parquet encodes by a dictionary."""


@dataclass(frozen=True, slots=True)
class Tags(Field):
    """A list of strings."""


@dataclass(frozen=True, slots=True)
class Timestamp(Field):
    """A point in time, stored in UTC with microseconds. A `datetime` needs a time zone."""


@dataclass(frozen=True, slots=True)
class Embedding(Field):
    """A vector of `dim` floating-point numbers."""

    dim: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.dim <= _MAX_DIM:
            raise BadInputError(f"dim={self.dim!r} is not a length between 1 and {_MAX_DIM:,}")
        if self.dtype not in _FLOAT_TYPES:
            raise BadInputError(f"dtype={self.dtype!r} is not known", hint=f"Known: {', '.join(_FLOAT_TYPES)}.")


@dataclass(frozen=True, slots=True)
class Integer(Field):
    """A 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Float(Field):
    """A 64-bit floating-point number."""


@dataclass(frozen=True, slots=True)
class Boolean(Field):
    """True or false."""


@dataclass(frozen=True, slots=True)
class ArrowField(Field):
    """A column of any Arrow type, with the values that Arrow converts to it."""

    type: pa.DataType
