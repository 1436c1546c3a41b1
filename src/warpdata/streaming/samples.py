"""Rows → samples as people train on them: references read and decoded, transformed, collated.

References of a batch are fetched together; decoding happens in the thread that makes the batch, several
batches at a time. Implements "Batches" of docs/specs/streaming.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.artifacts import FileRef, read_many
from warpdata.errors import BadInputError, MediaDecodeError, MissingExtraError
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.torch import as_tensor

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Made", "collate", "hand_out_arrays", "hand_out_rows", "make_batch"]


@dataclass(frozen=True, slots=True)
class Made:
    """A batch, and how many of its samples stand in for others that could not be decoded."""

    batch: Any
    size: int
    substituted: int = 0


def hand_out_rows(rows: pa.Table) -> Made:
    """Rows as they are, in one Arrow batch; references stay references."""
    return Made(rows.combine_chunks().to_batches()[0] if rows.num_rows else _empty(rows), rows.num_rows)


def hand_out_arrays(arrays: dict[str, NDArray[Any]], options: StreamOptions) -> Made:
    """Arrays that are a batch already, first axis the samples."""
    count = len(next(iter(arrays.values())))
    if options.transform is not None or options.collate == "dict":
        columns: dict[str, list[Any]] = {name: list(values) for name, values in arrays.items()}
        if options.transform is not None:
            columns = _transformed(columns, count, options)
        return Made(collate(columns, options.collate), count)
    if options.collate == "torch":
        return Made({name: as_tensor(values) for name, values in arrays.items()}, count)
    if options.collate == "jax":
        return Made({name: _as_jax(values) for name, values in arrays.items()}, count)
    return Made(arrays, count)


def make_batch(columns: dict[str, list[Any]], options: StreamOptions) -> Made:
    """The batch as asked for, of values in the order of the stream."""
    count, substituted = len(next(iter(columns.values()))) if columns else 0, 0
    if options.decode:
        columns, substituted = _decoded(columns, options)
    if options.transform is not None:
        columns = _transformed(columns, count, options)
    return Made(collate(columns, options.collate), count, substituted)


def collate(columns: dict[str, list[Any]], how: str) -> Any:
    """Lists of values → arrays where their shapes allow, else lists as they are."""
    if how == "dict":
        return columns
    arrays = {name: _stacked(values) for name, values in columns.items()}
    if how == "torch":
        return {name: as_tensor(values) for name, values in arrays.items()}
    if how == "jax":
        return {name: _as_jax(values) for name, values in arrays.items()}
    return arrays


def _decoded(columns: dict[str, list[Any]], options: StreamOptions) -> tuple[dict[str, list[Any]], int]:
    """References become what they lead to. A row that can not be decoded is replaced whole by the next that can."""
    out, failed = dict(columns), {}
    for name, values in columns.items():
        if not any(isinstance(value, FileRef) for value in values):
            continue
        decoded: list[Any] = []
        for at, (ref, content) in enumerate(zip(values, read_many(values), strict=True)):
            try:
                decoded.append(None if content is None else ref.decode(content))
            except MediaDecodeError as error:
                if options.on_error == "raise":
                    raise
                failed[at] = error
                decoded.append(None)
        out[name] = decoded
    if not failed:
        return out, 0
    stand_in = _stand_ins(failed, len(next(iter(out.values()))))
    return {name: [values[at] for at in stand_in] for name, values in out.items()}, len(failed)


def _stand_ins(failed: dict[int, MediaDecodeError], count: int) -> list[int]:
    """For each row the one to take: itself, or the next that is sound, going round."""
    if len(failed) == count:
        raise next(iter(failed.values()))
    return [next(i % count for i in range(at, at + count) if i % count not in failed) for at in range(count)]


def _transformed(columns: dict[str, list[Any]], count: int, options: StreamOptions) -> dict[str, list[Any]]:
    assert options.transform is not None
    made = [dict(options.transform({name: values[at] for name, values in columns.items()})) for at in range(count)]
    names = list(made[0]) if made else list(columns)
    for sample in made:
        if sample.keys() != set(names):
            raise BadInputError(f"transform gave {sorted(sample)} for one sample and {sorted(names)} for another")
    return {name: [sample[name] for sample in made] for name in names}


def _stacked(values: Sequence[Any]) -> Any:
    import numpy as np

    if not values or any(value is None or isinstance(value, str | bytes | dict | list) for value in values):
        return list(values)
    arrays = [np.asarray(value) for value in values]
    shapes, kinds = {array.shape for array in arrays}, {array.dtype for array in arrays}
    return np.stack(arrays) if len(shapes) == 1 and len(kinds) == 1 and arrays[0].dtype != object else list(values)


def _as_jax(values: Any) -> Any:
    import numpy as np

    if not isinstance(values, np.ndarray):
        return values
    try:
        import jax.numpy as jnp
    except ImportError as error:
        raise MissingExtraError("collate='jax' needs jax", hint="pip install jax") from error
    return jnp.asarray(values)


def _empty(rows: pa.Table) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)
