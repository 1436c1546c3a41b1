"""Rows → samples as people train on them: references read and decoded, transformed, collated.

References of a batch are fetched together; decoding happens in the thread that makes the batch, several
batches at a time. Implements "Batches" of docs/specs/streaming.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warpdata.errors import BadInputError, MediaDecodeError, MissingExtraError
from warpdata.kinds.artifacts import FileRef, read_many
from warpdata.streaming.columns import Columns, Values, pick
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.torch import as_tensor

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["Made", "collate", "hand_out_arrays", "hand_out_rows", "make_batch"]


@dataclass(frozen=True, slots=True)
class Made:
    """A batch, its samples and their bytes, and how many of them stand in for others that could not be decoded."""

    batch: Any
    size: int
    size_bytes: int
    substituted: int = 0


def hand_out_rows(rows: pa.Table) -> Made:
    """Rows as they are, in one Arrow batch; references stay references."""
    batch = rows.combine_chunks().to_batches()[0] if rows.num_rows else _empty(rows)
    return Made(batch, rows.num_rows, rows.nbytes)


def hand_out_arrays(arrays: dict[str, NDArray[Any]], options: StreamOptions) -> Made:
    """Arrays that are a batch already, first axis the samples."""
    count, size_bytes = len(next(iter(arrays.values()))), sum(values.nbytes for values in arrays.values())
    columns: dict[str, Values] = {
        name: list(values) if options.collate == "dict" else values for name, values in arrays.items()
    }
    if options.transform is not None:
        columns = _transformed(columns, count, options)
    return Made(collate(columns, options.collate), count, size_bytes)


def make_batch(samples: Columns, options: StreamOptions) -> Made:
    """The batch as asked for, of values in the order of the stream."""
    columns, size_bytes = samples.values, samples.row_bytes
    count, substituted = len(samples), 0
    if options.decode:
        decoded = _decoded(samples, options)
        columns, substituted, size_bytes = decoded.columns, decoded.substituted, size_bytes + decoded.media_bytes
    if options.transform is not None:
        columns = _transformed(columns, count, options)
    return Made(collate(columns, options.collate), count, size_bytes, substituted)


def collate(columns: dict[str, Values], how: str) -> Any:
    """Lists of values → arrays where their shapes allow, else lists as they are. Or all as plain lists."""
    if how == "dict":
        return {name: values if isinstance(values, list) else values.tolist() for name, values in columns.items()}
    arrays = {name: _stacked(values) for name, values in columns.items()}
    if how == "torch":
        return {name: as_tensor(values) for name, values in arrays.items()}
    if how == "jax":
        return {name: _as_jax(values) for name, values in arrays.items()}
    return arrays


@dataclass(frozen=True, slots=True)
class _Decoded:
    columns: dict[str, Values]
    media_bytes: int
    substituted: int = 0


def _decoded(samples: Columns, options: StreamOptions) -> _Decoded:
    """References become what they lead to. A row that can not be decoded is replaced whole by the next that can."""
    out, failed, media_bytes = dict(samples.values), {}, 0
    for name, values in samples.values.items():
        if not isinstance(values, list) or not any(isinstance(value, FileRef) for value in values):
            continue
        decoded: list[Any] = []
        coming = samples.contents.get(name)
        contents = read_many(values) if coming is None else [wait and wait() for wait in coming]
        media_bytes += sum(len(content) for content in contents if content is not None)
        for at, (ref, content) in enumerate(zip(values, contents, strict=True)):
            try:
                decoded.append(None if content is None else ref.decode(content))
            except MediaDecodeError as error:
                if options.on_error == "raise":
                    raise
                failed[at] = error
                decoded.append(None)
        out[name] = decoded
    if not failed:
        return _Decoded(out, media_bytes)
    stand_in = _stand_ins(failed, len(samples))
    replaced = {name: pick(values, stand_in) for name, values in out.items()}
    return _Decoded(replaced, media_bytes, len(failed))


def _stand_ins(failed: dict[int, MediaDecodeError], count: int) -> list[int]:
    """For each row the one to take: itself, or the next that is sound, going round."""
    if len(failed) == count:
        raise next(iter(failed.values()))
    return [next(i % count for i in range(at, at + count) if i % count not in failed) for at in range(count)]


def _transformed(columns: dict[str, Values], count: int, options: StreamOptions) -> dict[str, Values]:
    assert options.transform is not None
    made = [dict(options.transform({name: values[at] for name, values in columns.items()})) for at in range(count)]
    names = list(made[0]) if made else list(columns)
    for sample in made:
        if sample.keys() != set(names):
            raise BadInputError(f"transform gave {sorted(sample)} for one sample and {sorted(names)} for another")
    return {name: [sample[name] for sample in made] for name in names}


def _stacked(values: Values) -> Any:
    import numpy as np

    if isinstance(values, np.ndarray):
        return values
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
