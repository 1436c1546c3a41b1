"""Rows to batches: media decoded, samples transformed, columns collated.

The content of a batch's references is fetched together. Decoding happens in the thread that makes the batch, several
batches at a time. Implements "Batches" of docs/specs/streaming.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, MediaDecodeError
from warpdata.formats.media import EncodedJpeg, keep_encoded
from warpdata.primitives.arrow_buffers import as_numpy
from warpdata.primitives.extras import require
from warpdata.streaming.media_memory import BatchMemory
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.shuffle_buffer import LoadedRows, PendingBytes
from warpdata.streaming.torch import as_tensor, resample_rgb

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "CollatedBatch",
    "Columns",
    "Values",
    "batch_of_arrays",
    "batch_of_columns",
    "batch_of_rows",
    "stack_arrays",
    "text_errors",
]

Values: TypeAlias = "list[Any] | NDArray[Any]"
"""One value per sample, along the first axis."""

_SUBSTITUTE_HINT = "on_error='substitute' replaces such samples by others of their batch, and counts them."


@dataclass(frozen=True, slots=True)
class CollatedBatch:
    """A batch with its number of samples, their size, and how many of them replace samples that did not decode."""

    batch: Any
    size: int
    size_bytes: int
    substituted: int = 0


@dataclass(frozen=True, slots=True)
class Columns:
    """Samples by column: numbers as arrays of their own type, everything else as lists.

    `contents` has the pending content of columns of references; None marks a null. The values of these columns have a
    method `decode(content)`. `row_bytes` is the size of the rows in memory, without media.
    """

    values: dict[str, Values]
    contents: dict[str, Sequence[PendingBytes | None]]
    row_bytes: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    @staticmethod
    def of(loaded: LoadedRows) -> Columns:
        rows, values = loaded.rows, {}
        for name in rows.schema.names:
            with text_errors(name):
                values[name] = _values(rows[name])
        return Columns(values, dict(loaded.contents), rows.nbytes)

    @staticmethod
    def scattered(count: int, parts: Sequence[tuple[Sequence[int], Columns]]) -> Columns:
        """Join parts to `count` samples. Each part comes with the indices of its samples."""
        names = [name for _, part in parts[:1] for name in part.values]
        values = {name: _scattered(count, [(at, part.values[name]) for at, part in parts]) for name in names}
        contents: dict[str, Sequence[PendingBytes | None]] = {}
        for name in names:
            with_content = [(at, part.contents[name]) for at, part in parts if name in part.contents]
            if with_content and len(with_content) < len(parts):
                raise BadInputError(f"column {name!r} has references in some parts of the mixture, values in others")
            if with_content:
                pending: list[PendingBytes | None] = [None] * count
                for indices, part_contents in with_content:
                    _put(pending, indices, part_contents)
                contents[name] = pending
        return Columns(values, contents, sum(part.row_bytes for _, part in parts))

    @staticmethod
    def concat(parts: Sequence[Columns]) -> Columns:
        if len(parts) == 1:
            return parts[0]
        ends = [0, *accumulate(map(len, parts))]
        scattered = [(range(*span), part) for span, part in zip(pairwise(ends), parts, strict=True)]
        return Columns.scattered(ends[-1], scattered)


@contextmanager
def text_errors(column: str) -> Iterator[None]:
    """Map the error of text that is not UTF-8, which Arrow does not check when it reads a file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise CorruptError(
            f"column {column!r} has text that is not valid UTF-8: {error.reason} in {error.object[:40]!r}",
            hint="Publish it as a binary column, leave it out of columns=…, or read it with collate='arrow'.",
        ) from error


def batch_of_rows(rows: pa.Table) -> CollatedBatch:
    """Return rows as one Arrow batch. References stay references."""
    import pyarrow as pa

    if rows.num_rows:
        batch = rows.combine_chunks().to_batches()[0]
    else:
        batch = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)
    return CollatedBatch(batch, rows.num_rows, rows.nbytes)


def batch_of_arrays(arrays: dict[str, NDArray[Any]], options: StreamOptions) -> CollatedBatch:
    """Return a batch of arrays whose first axis is the samples."""
    count, size_bytes = len(next(iter(arrays.values()))), sum(values.nbytes for values in arrays.values())
    columns: dict[str, Values] = {
        name: list(values) if options.collate == "dict" else values for name, values in arrays.items()
    }
    if options.transform is not None:
        columns = _transformed(columns, count, options)
    return CollatedBatch(_collated(columns, options.collate), count, size_bytes)


def batch_of_columns(samples: Columns, options: StreamOptions, memory: BatchMemory) -> CollatedBatch:
    """Decode, transform and collate samples, as the options say."""
    columns, size_bytes = samples.values, samples.row_bytes
    count, substituted = len(samples), 0
    if options.decode:
        decoded = _decoded(samples, options, memory)
        columns, substituted, size_bytes = decoded.columns, decoded.substituted, size_bytes + decoded.media_bytes
    if options.transform is not None:
        columns = _transformed(columns, count, options)
    return CollatedBatch(_collated(columns, options.collate), count, size_bytes, substituted)


@dataclass(frozen=True, slots=True)
class _Decoded:
    columns: dict[str, Values]
    media_bytes: int
    substituted: int = 0


def _decoded(samples: Columns, options: StreamOptions, memory: BatchMemory) -> _Decoded:
    """Replace references by their decoded content, and a row that does not decode by the next one that does."""
    out, failed, media_bytes = dict(samples.values), {}, 0
    for name, pending in samples.contents.items():
        decoded: list[Any] = []
        keywords, stays_encoded = _decode_keywords(name, options), name in options.encoded_images
        for at, (ref, wait) in enumerate(zip(samples.values[name], pending, strict=True)):
            if wait is None:
                decoded.append(None)
                continue
            memory.begin(wait.name, wait.size_bytes)
            content = wait()
            media_bytes += len(content)
            try:
                value: Any = keep_encoded(content, ref.path, keywords.get("resize")) if stays_encoded else None
                if value is None:
                    value = ref.decode(content, memory.reserve, **keywords)
            except (MediaDecodeError, LimitExceededError) as error:
                if options.on_error == "raise" or memory.is_exceeded:
                    error.hint = error.hint or _SUBSTITUTE_HINT
                    raise
                failed[at], value = error, None
            decoded.append(value)
            memory.end(len(content) if value is content else getattr(value, "nbytes", 0))
        out[name] = decoded
    if not failed:
        return _Decoded(out, media_bytes)
    substitutes = _substitutes(failed, len(samples))
    replaced = {
        name: values[substitutes] if isinstance(values, np.ndarray) else [values[at] for at in substitutes]
        for name, values in out.items()
    }
    return _Decoded(replaced, media_bytes, len(failed))


def _decode_keywords(column: str, options: StreamOptions) -> dict[str, Any]:
    """Return the arguments with which a column decodes. torch resizes several times as fast as Pillow."""
    if not isinstance(options.resize, Mapping) or column not in options.resize:
        return {}
    return {"resize": options.resize[column], "resample": resample_rgb if options.collate == "torch" else None}


def _substitutes(failed: dict[int, MediaDecodeError | LimitExceededError], count: int) -> list[int]:
    """Return the row to take for each row: itself, or the next one that decodes, cyclically."""
    if len(failed) == count:
        raise next(iter(failed.values()))
    return [next(i % count for i in range(at, at + count) if i % count not in failed) for at in range(count)]


def _transformed(columns: dict[str, Values], count: int, options: StreamOptions) -> dict[str, Values]:
    assert options.transform is not None
    samples = [dict(options.transform({name: values[at] for name, values in columns.items()})) for at in range(count)]
    names = list(samples[0]) if samples else list(columns)
    for sample in samples:
        if sample.keys() != set(names):
            raise BadInputError(f"transform returned {sorted(sample)} for one sample and {sorted(names)} for another")
    return {name: [sample[name] for sample in samples] for name in names}


def _collated(columns: dict[str, Values], how: str) -> Any:
    """Return arrays where shapes allow and lists otherwise, or plain lists only."""
    if how == "dict":
        return {name: values if isinstance(values, list) else values.tolist() for name, values in columns.items()}
    arrays = {name: _stacked(values) for name, values in columns.items()}
    if how == "torch":
        return {name: as_tensor(values) for name, values in arrays.items()}
    if how == "jax":
        jnp = require("jax.numpy", purpose="collate='jax'")
        return {n: jnp.asarray(values) if isinstance(values, np.ndarray) else values for n, values in arrays.items()}
    return arrays


_NEVER_STACKED = (str, bytes, dict, list, EncodedJpeg)


def _stacked(values: Values) -> Values:
    if isinstance(values, np.ndarray):
        return values
    if not values or any(value is None or isinstance(value, _NEVER_STACKED) for value in values):
        return list(values)
    arrays = [np.asarray(value) for value in values]
    shapes, dtypes = {array.shape for array in arrays}, {array.dtype for array in arrays}
    if len(shapes) > 1 or len(dtypes) > 1 or arrays[0].dtype == object:
        return list(values)
    values.clear()
    return stack_arrays(arrays)


def stack_arrays(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays of one shape and type, and empty the list. Each array is freed when it has been copied.

    `np.stack` would hold two copies of all of them.
    """
    out = np.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    arrays.reverse()
    for at in range(len(arrays)):
        out[at] = arrays.pop()
    return out


def _values(column: pa.ChunkedArray) -> Values:
    """Return numbers, and fixed-size vectors of numbers, as writable arrays. Columns with a null become lists."""
    import pyarrow as pa

    dtype, depth = column.type, 0
    while pa.types.is_fixed_size_list(dtype):
        dtype, depth = dtype.value_type, depth + 1
    is_number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_boolean(dtype)
    listed: list[Any]
    if not is_number or column.null_count:
        listed = column.to_pylist()
        return listed
    flat, shape = column.combine_chunks(), [len(column)]
    for _ in range(depth):
        shape.append(flat.type.list_size)
        flat = flat.flatten()
        if flat.null_count or len(flat) != int(np.prod(shape)):
            listed = column.to_pylist()
            return listed
    return as_numpy(flat).reshape(shape).copy()


def _scattered(count: int, parts: Sequence[tuple[Sequence[int], Values]]) -> Values:
    arrays = [values for _, values in parts if isinstance(values, np.ndarray)]
    if len(arrays) == len(parts) and len({(array.dtype, array.shape[1:]) for array in arrays}) == 1:
        out = np.empty((count, *arrays[0].shape[1:]), arrays[0].dtype)
        for (indices, _), array in zip(parts, arrays, strict=True):
            out[list(indices)] = array
        return out
    values_by_index: list[Any] = [None] * count
    for indices, values in parts:
        _put(values_by_index, indices, values.tolist() if isinstance(values, np.ndarray) else values)
    return values_by_index


def _put(target: list[Any], indices: Sequence[int], values: Sequence[Any]) -> None:
    for index, value in zip(indices, values, strict=True):
        target[index] = value
