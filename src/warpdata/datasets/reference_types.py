"""References as Arrow columns: an extension type over the stored column.

The values stay what is stored (member paths, or structs of shard, offset and length), so they can be
sliced, filtered, joined, sent and stored like any column. The type knows where the artifact is, and an
element has the methods of its reference. Loaded only when a table with bindings is read, because it
needs Arrow.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from warpdata.artifacts import REF_CLASSES, ByteLocation, FileRef, Locator, Reopen
from warpdata.datasets.media import ArtifactAddress
from warpdata.errors import BadInputError
from warpdata.tables import check_reference_column

__all__ = ["RefScalar", "RefType", "present_schema"]

_NAME = "warpdata.ref"


class RefType(pa.ExtensionType):  # type: ignore[misc]
    """`ref_type` is file, image, audio or video."""

    def __init__(self, storage_type: pa.DataType, address: ArtifactAddress, ref_type: str) -> None:
        self.address = address
        self.ref_type = ref_type
        super().__init__(storage_type, _NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return msgspec.json.encode({"address": self.address, "ref_type": self.ref_type}, order="sorted")

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> RefType:
        given = msgspec.json.decode(serialized, type=_Serialized)
        return cls(storage_type, given.address, given.ref_type)

    def __arrow_ext_scalar_class__(self) -> type[RefScalar]:
        return RefScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return RefType, (self.storage_type, self.address, self.ref_type)


class _Serialized(msgspec.Struct):
    address: ArtifactAddress
    ref_type: str


class RefScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One element: has all that its reference has, so that `batch["image"][0].as_pil()` works."""

    def as_py(self, **_: Any) -> FileRef | None:
        """The reference itself, or None for a null."""
        stored = self.value
        if stored is None or not stored.is_valid:
            return None
        return REF_CLASSES[self.type.ref_type](self.type.address(), _locator(stored.as_py()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        ref = self.as_py()
        if ref is None:
            raise BadInputError(f"a null has no {name!r}: this row has no {self.type.ref_type}")
        return getattr(ref, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_is, (self.as_py(),)


def _as_is(ref: FileRef | None) -> FileRef | None:
    return ref


pa.register_extension_type(RefType(pa.string(), ArtifactAddress("", "", "", "", ""), "file"))


def _locator(stored: Any) -> Locator:
    """What a cell of a bound column says."""
    if isinstance(stored, str):
        return stored
    return ByteLocation(stored["shard"], stored["offset"], stored["length"], stored.get("xxh3"))


def present_schema(schema: pa.Schema, columns: dict[str, tuple[Reopen, str]]) -> pa.Schema:
    """The schema with bound columns as references."""
    for name, (address, ref_type) in columns.items():
        position = schema.get_field_index(name)
        if position >= 0:
            field = schema.field(position)
            check_reference_column(field)
            assert isinstance(address, ArtifactAddress), "artifacts opened here are reopened by address"
            schema = schema.set(position, field.with_type(RefType(field.type, address, ref_type)))
    return schema
