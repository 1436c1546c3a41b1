"""Schemas: the fields of the samples of a table, made from keywords or read from a stored table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, ColumnNotFoundError, SchemaMismatchError, UnsupportedError
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest
from warpdata.repository.manifest import ENTRY_NAME, Binding
from warpdata.samples.fields import (
    ArrowField,
    Audio,
    Boolean,
    Embedding,
    Field,
    File,
    Float,
    Image,
    Integer,
    MediaField,
    Tags,
    Text,
    Timestamp,
    Video,
)
from warpdata.samples.values import arrow_type, convert

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Schema", "check_sample", "check_value", "stored_schema"]

_MEDIA: dict[str, type[MediaField]] = {kind.ref_type: kind for kind in (File, Image, Audio, Video)}


class Schema:
    """Fields by name: `Schema(image=Image(), label=Categorical(required=True), score=pa.float32())`."""

    def __init__(self, **fields: Field | pa.DataType) -> None:
        if not fields:
            raise BadInputError("a schema needs at least one field")
        self.fields: dict[str, Field] = {name: _field(name, field) for name, field in fields.items()}

    def __repr__(self) -> str:
        return short_repr("Schema", [f"{name}: {type(field).__name__}" for name, field in self.fields.items()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(tuple(self.fields.items()))

    def arrow(self) -> pa.Schema:
        """Return the columns of the table. Media are columns of member paths."""
        import pyarrow as pa

        return pa.schema(
            [pa.field(name, arrow_type(field), nullable=not field.required) for name, field in self.fields.items()]
        )


def check_value(schema: Schema, name: str, value: Any, where: str = "") -> Any:
    """Return the value of a field as it is stored. Errors name the field, after `where`."""
    field = schema.fields.get(name)
    if field is None:
        hint = suggest(str(name), schema.fields, label="Fields")
        raise ColumnNotFoundError(f"{where}there is no field {name!r}", hint=hint)
    if value is None:
        return None
    try:
        return convert(field, value)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{where}field {name!r}: {error.message}", hint=error.hint) from error


def check_sample(schema: Schema, sample: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Return all fields of a sample as they are stored, with None for missing ones."""
    if not isinstance(sample, Mapping):
        raise SchemaMismatchError(f"{where}expected a mapping of fields, found {type(sample).__name__}")
    checked = {name: check_value(schema, name, value, where) for name, value in sample.items()}
    for name, field in schema.fields.items():
        if field.required and checked.get(name) is None:
            raise BadInputError(f"{where}field {name!r} is required")
    return {name: checked.get(name) for name in schema.fields}


def stored_schema(columns: pa.Schema, bindings: Sequence[Binding]) -> Schema:
    """Return the schema of a stored table. Bound columns are media."""
    bound = {binding.column: binding for binding in bindings}
    fields: dict[str, Field] = {}
    for column in columns:
        required = not column.nullable
        binding = bound.get(column.name)
        if binding is None:
            fields[column.name] = _of_type(column.type, required=required)
        elif column.type.num_fields:
            raise UnsupportedError(
                f"column {column.name!r} refers to byte ranges of artifact {binding.artifact!r}, "
                "so samples cannot be appended",
                hint="Append rows with Dataset.edit().",
            )
        else:
            fields[column.name] = _MEDIA[binding.ref_type](required=required)
    return Schema(**fields)


def _field(name: str, field: Any) -> Field:
    import pyarrow as pa

    if isinstance(field, MediaField) and not ENTRY_NAME.fullmatch(name):
        raise BadInputError(
            f"{name!r} cannot be the name of an artifact, so it cannot be a field of files",
            hint="Use letters, digits and underscore.",
        )
    if isinstance(field, pa.DataType):
        return ArrowField(field)
    if isinstance(field, Field) and type(field) not in (Field, MediaField):
        return field
    called = f"{field.__name__}()" if isinstance(field, type) and issubclass(field, Field) else "Text()"
    raise BadInputError(f"field {name!r} is a {field!r}, not a type of field", hint=f"Write {name}=wd.{called}.")


def _of_type(kind: pa.DataType, *, required: bool) -> Field:
    import pyarrow as pa

    for plain in (Text, Tags, Timestamp, Integer, Float, Boolean):
        field: Field = plain(required=required)
        if kind == arrow_type(field):
            return field
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
        names = {pa.float16(): "float16", pa.float32(): "float32", pa.float64(): "float64"}
        return Embedding(kind.list_size, names[kind.value_type], required=required)
    return ArrowField(kind, required=required)
