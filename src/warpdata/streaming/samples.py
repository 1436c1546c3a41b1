"""Rows → samples as people train on them: references read and decoded, transformed, collated.

References of a batch are fetched together; decoding happens in the thread that makes the batch, several
batches at a time. Implements "Batches" of docs/specs/streaming.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from warpdata.artifacts import Coming, FileRef, read_many
from warpdata.errors import BadInputError, MediaDecodeError, MissingExtraError
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.torch import as_tensor

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Columns", "Made", "collate", "hand_out_rows", "make_batch"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Samples as lists of values; `contents` wait for what references lead to, where that is on its way."""

    values: dict[str, list[Any]]
    contents: dict[str, Sequence[Coming | None]]
    row_bytes: int = 0
    """What the rows took in memory, media aside."""

    @staticmethod
    def placed(count: int, parts: Sequence[tuple[Sequence[int], Columns]]) -> Columns:
        """`count` samples, of parts that each say where theirs belong."""
        names = [name for _, part in parts[:1] for name in part.values]
        values: dict[str, list[Any]] = {name: [None] * count for name in names}
        contents: dict[str, list[Coming | None]] = {
            name: [None] * count for name in names if all(name in part.contents for _, part in parts)
        }
        for positions, part in parts:
            for name, found in part.values.items():
                _put(values[name], positions, found)
            for name, held in contents.items():
                _put(held, positions, part.contents[name])
        return Columns(values, dict(contents), sum(part.row_bytes for _, part in parts))

    @staticmethod
    def joined(parts: Sequence[Columns]) -> Columns:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        ends = list(accumulate(len(next(iter(part.values.values()), [])) for part in parts))
        return Columns.placed(
            ends[-1], [(range(a, b), part) for a, b, part in zip([0, *ends], ends, parts, strict=False)]
        )


def _put(held: list[Any], positions: Sequence[int], values: Sequence[Any]) -> None:
    for position, value in zip(positions, values, strict=True):
        held[position] = value


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


def make_batch(samples: Columns, options: StreamOptions) -> Made:
    """The batch as asked for, of values in the order of the stream."""
    columns, size_bytes = samples.values, samples.row_bytes
    count, substituted = len(next(iter(columns.values()))) if columns else 0, 0
    if options.decode:
        decoded = _decoded(samples, options)
        columns, substituted, size_bytes = decoded.columns, decoded.substituted, size_bytes + decoded.media_bytes
    if options.transform is not None:
        columns = _transformed(columns, count, options)
    return Made(collate(columns, options.collate), count, size_bytes, substituted)


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


@dataclass(frozen=True, slots=True)
class _Decoded:
    columns: dict[str, list[Any]]
    media_bytes: int
    substituted: int = 0


def _decoded(samples: Columns, options: StreamOptions) -> _Decoded:
    """References become what they lead to. A row that can not be decoded is replaced whole by the next that can."""
    out, failed, media_bytes = dict(samples.values), {}, 0
    for name, values in samples.values.items():
        if not any(isinstance(value, FileRef) for value in values):
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
    stand_in = _stand_ins(failed, len(next(iter(out.values()))))
    replaced = {name: [values[at] for at in stand_in] for name, values in out.items()}
    return _Decoded(replaced, media_bytes, len(failed))


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
