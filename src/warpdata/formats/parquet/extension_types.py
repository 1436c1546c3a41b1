"""Arrow extension types of this library, removed from schemas and rows that are read or written.

Parquet files embed an Arrow schema, and Arrow turns a column that claims a registered extension type into that type.
Only the bindings of a manifest make references, so a claim in a file has no effect and is never stored. Types of other
libraries stay as they are. Implements "Extension types" of docs/specs/tables.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from warpdata.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

    RowsT = TypeVar("RowsT", pa.Table, pa.RecordBatch)

__all__ = ["claims_extensions", "has_own_extension", "plain_rows", "plain_schema"]

_OWN = "warpdata."
_NAME_KEY, _VALUE_KEY = b"ARROW:extension:name", b"ARROW:extension:metadata"


def claims_extensions(schema: pa.Schema) -> bool:
    """Return whether a column, or a part of one, is or claims to be of an extension type of this library."""
    return any(_claims(field) for field in schema)


def has_own_extension(arrow_type: pa.DataType) -> bool:
    """Return whether the type, or a part of it, is an extension type of this library."""
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType):
        return arrow_type.extension_name.startswith(_OWN) or has_own_extension(arrow_type.storage_type)
    if pa.types.is_dictionary(arrow_type):
        return has_own_extension(arrow_type.value_type)
    return any(_claims(arrow_type.field(index)) for index in range(arrow_type.num_fields))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with storage types in place of the extension types of this library."""
    import pyarrow as pa

    if not claims_extensions(schema):
        return schema
    return pa.schema([_plain_field(field) for field in schema], metadata=schema.metadata)


def plain_rows(rows: RowsT) -> RowsT:
    """Return the rows under `plain_schema`. Copies nothing unless a nested column has such a type."""
    return rows.cast(plain_schema(rows.schema)) if claims_extensions(rows.schema) else rows


def _claims(field: pa.Field) -> bool:
    name = (field.metadata or {}).get(_NAME_KEY, b"")
    return name.startswith(_OWN.encode()) or has_own_extension(field.type)


def _plain_field(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    if metadata.get(_NAME_KEY, b"").startswith(_OWN.encode()):
        del metadata[_NAME_KEY]
        metadata.pop(_VALUE_KEY, None)
    return field.with_type(_plain_type(field.type)).with_metadata(metadata or None)


def _plain_type(arrow_type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if not has_own_extension(arrow_type):
        return arrow_type
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _plain_type(arrow_type.storage_type)
    if pa.types.is_dictionary(arrow_type):
        return pa.dictionary(arrow_type.index_type, _plain_type(arrow_type.value_type), arrow_type.ordered)
    if pa.types.is_map(arrow_type):
        parts = _plain_field(arrow_type.key_field), _plain_field(arrow_type.item_field)
        return pa.map_(*parts, keys_sorted=arrow_type.keys_sorted)
    fields = [_plain_field(arrow_type.field(index)) for index in range(arrow_type.num_fields)]
    if pa.types.is_struct(arrow_type):
        return pa.struct(fields)
    if pa.types.is_fixed_size_list(arrow_type):
        return pa.list_(fields[0], arrow_type.list_size)
    if pa.types.is_large_list(arrow_type):
        return pa.large_list(fields[0])
    if pa.types.is_list(arrow_type):
        return pa.list_(fields[0])
    raise UnsupportedError(f"references inside of {arrow_type} cannot be stored", hint="Cast the column first.")
