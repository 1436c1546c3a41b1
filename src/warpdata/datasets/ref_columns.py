"""References as Arrow columns: an extension type over the stored column.

The values are the stored ones (member paths, or structs of shard, offset and length), so they can be sliced, filtered,
joined and sorted like any column. An element has the methods of its reference. Imported when a table with bindings is
read, because it needs Arrow.

Arrow serializes an extension type into every file and stream. The serialized form is a random token of this process,
and never an address: a file cannot choose the artifact that its reader opens, and contains no location of a store.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from warpdata.errors import BadInputError
from warpdata.kinds import VersionContext
from warpdata.kinds.artifacts import ARTIFACTS, REF_CLASSES, Artifact, ArtifactAddress, FileRef, locator_of
from warpdata.kinds.tables import check_reference_column

__all__ = ["RefColumns", "RefScalar", "RefType", "ref_columns_of"]

_NAME = "warpdata.ref"
_CACHED_TYPES = 256
_TOKEN_BYTES = 16

_tokens: dict[tuple[ArtifactAddress, str], bytes] = {}
_by_token: dict[bytes, tuple[ArtifactAddress, str]] = {}


class RefType(pa.ExtensionType):  # type: ignore[misc]
    """The type of a reference column. `ref_type` is file, image, audio or video.

    Arrow holds the Python instance weakly. While its dataset exists, so does the instance, and references read through
    that dataset. Afterwards the address opens the artifact. A pickled type has the address too. A type that came with
    a file or from another process has no address: its elements are the stored values.
    """

    def __init__(
        self,
        storage_type: pa.DataType,
        address: ArtifactAddress | None,
        ref_type: str,
        artifact: Artifact | None = None,
        *,
        token: bytes = b"",
    ) -> None:
        self.address = address
        self.ref_type = ref_type
        self._artifact = artifact
        self._token = token if address is None else _token_of(address, ref_type)
        super().__init__(storage_type, _NAME)

    def __eq__(self, other: object) -> bool:
        """Compare artifacts too. Otherwise Arrow would join columns whose rows refer to different files."""
        return isinstance(other, RefType) and (self._token, self.storage_type) == (other._token, other.storage_type)

    def __ne__(self, other: object) -> bool:
        return not self == other  # Arrow's own `!=` compares only the storage types

    def __hash__(self) -> int:
        return hash((self._token, self.storage_type))

    def __arrow_ext_serialize__(self) -> bytes:
        return self._token

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> RefType:
        known = _by_token.get(serialized)
        return (
            cls(storage_type, None, "file", token=serialized) if known is None else reference_type(storage_type, *known)
        )

    def __arrow_ext_scalar_class__(self) -> type[RefScalar]:
        return RefScalar

    def __reduce__(self) -> tuple[Any, ...]:
        return reference_type, (self.storage_type, self.address, self.ref_type)

    @property
    def artifact(self) -> Artifact:
        if self._artifact is None:
            if self.address is None:
                raise BadInputError(
                    "the column claims references, but it comes from a file or another process",
                    hint="Read it from the dataset, or call Dataset.as_refs on the rows.",
                )
            self._artifact = self.address()
        return self._artifact


@functools.lru_cache(maxsize=_CACHED_TYPES)
def reference_type(storage_type: pa.DataType, address: ArtifactAddress | None, ref_type: str) -> RefType:
    """Return one instance for equal deserialized types. Otherwise each element would open the artifact."""
    return RefType(storage_type, address, ref_type)


def _token_of(address: ArtifactAddress, ref_type: str) -> bytes:
    """Return the token of an artifact in this process. Equal references have equal types, so tables can be joined."""
    token = _tokens.setdefault((address, ref_type), secrets.token_hex(_TOKEN_BYTES).encode())
    _by_token[token] = address, ref_type
    return token


class RefScalar(pa.ExtensionScalar):  # type: ignore[misc]
    """One element. It has the attributes of its reference, so that `batch["image"][0].as_pil()` works."""

    def as_py(self, **_: Any) -> Any:
        """Return the reference, or None for a null. Without an address, return the stored value."""
        stored = self.value
        if stored is None or not stored.is_valid:
            return None
        kind = self.type
        if kind.address is None:
            return stored.as_py()
        return REF_CLASSES[kind.ref_type](kind.artifact, locator_of(stored.as_py()))

    def _repr_html_(self) -> str | None:
        ref = self.as_py()
        return None if ref is None else ref._repr_html_()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        ref = self.as_py()
        if ref is None:
            raise BadInputError(f"a null has no {name!r}: this row has no {self.type.ref_type}")
        return getattr(ref if isinstance(ref, FileRef) else self.type.artifact, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_is, (self.as_py(),)


def _as_is(ref: FileRef | None) -> FileRef | None:
    return ref


pa.register_extension_type(RefType(pa.string(), None, "file"))


class RefColumns:
    """Replaces the types of bound columns in a stored schema by reference types."""

    def __init__(self, columns: Mapping[str, tuple[Artifact, str]]) -> None:
        self._columns = columns
        self._types: dict[tuple[str, pa.DataType], RefType] = {}

    def __call__(self, schema: pa.Schema) -> pa.Schema:
        for name in self._columns:
            position = schema.get_field_index(name)
            if position >= 0:
                field = schema.field(position)
                schema = schema.set(position, field.with_type(self._type(field)))
        return schema

    def _type(self, field: pa.Field) -> RefType:
        known = self._types.get((field.name, field.type))
        if known is None:
            check_reference_column(field)
            artifact, ref_type = self._columns[field.name]
            address = artifact.reopen
            assert isinstance(address, ArtifactAddress), "artifacts of a dataset are reopened by address"
            known = RefType(field.type, address, ref_type, artifact)
            self._types[field.name, field.type] = known
        return known


def ref_columns_of(version: VersionContext, table: str) -> RefColumns:
    """Return the references of a table of a version, which may be a draft of an edit."""
    bound = (binding for binding in version.manifest.bindings if binding.table == table)
    return RefColumns({each.column: (ARTIFACTS.open(version, each.artifact), each.ref_type) for each in bound})
