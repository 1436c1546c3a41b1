"""Functions that compute vectors of cells, as `Edit.add_column` calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import BadInputError, SchemaMismatchError, UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["embed_batches", "embed_value"]


def embed_batches(model: Any) -> Callable[[pa.RecordBatch], pa.Array]:
    """Return a function from batches of one column to vectors.

    `model` is a function of a list of values, or an object with such a method `encode`. Cells that are null have no
    vector, and the model does not see them.
    """
    encode = _encoder(model)

    def embed(batch: pa.RecordBatch) -> pa.Array:
        values = batch.column(0).to_pylist()
        present = [value for value in values if value is not None]
        vectors = _as_matrix(encode(present), len(present)) if present else None
        return _to_lists([value is not None for value in values], vectors)

    return embed


def embed_value(model: Any, value: Any) -> np.ndarray[Any, Any]:
    """Return the vector of one value, as a query."""
    found: np.ndarray[Any, Any] = _as_matrix(_encoder(model)([value]), 1)[0]
    return found


def _encoder(model: Any) -> Callable[[list[Any]], Any]:
    if isinstance(model, str):
        raise UnsupportedError(
            f"the model {model!r} is a name, and warpdata loads no models",
            hint="Pass the loaded model, such as SentenceTransformer(…), or a function of a list of values.",
        )
    encode = getattr(model, "encode", model)
    if not callable(encode):
        raise BadInputError(f"a model is a function or has a method encode, unlike {type(model).__name__}")
    found: Callable[[list[Any]], Any] = encode
    return found


def _as_matrix(found: Any, count: int) -> np.ndarray[Any, Any]:
    detached = found.detach().cpu() if hasattr(found, "detach") else found
    try:
        matrix = np.asarray(detached)
    except (TypeError, ValueError) as error:
        raise SchemaMismatchError(f"the model returned vectors of various sizes: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != count or matrix.shape[1] < 1 or matrix.dtype.kind not in "fiu":
        raise SchemaMismatchError(
            f"the model returned an array of shape {matrix.shape} and type {matrix.dtype} for {count} values",
            hint="Return one vector for each value.",
        )
    return matrix if matrix.dtype in (np.float16, np.float32, np.float64) else matrix.astype(np.float32)


def _to_lists(present: list[bool], vectors: np.ndarray[Any, Any] | None) -> pa.Array:
    import pyarrow as pa

    if vectors is None:
        return pa.nulls(len(present))
    whole = np.zeros((len(present), vectors.shape[1]), vectors.dtype)
    whole[np.array(present)] = vectors
    mask = None if all(present) else pa.array([not known for known in present])
    return pa.FixedSizeListArray.from_arrays(pa.array(whole.reshape(-1)), vectors.shape[1], mask=mask)
