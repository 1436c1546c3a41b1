"""Tables cut and joined into record batches of one size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["announced", "rebatch"]


def rebatch(tables: Iterable[pa.Table], batch_size: int) -> Iterator[pa.RecordBatch]:
    """Batches of exactly `batch_size` rows, the last one perhaps fewer.

    A batch that lies within one incoming chunk is a view; only those that cross a border are copied.
    """
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    held_rows = 0
    for table in tables:
        for whole in table.to_batches():
            offset = 0
            while offset < whole.num_rows:
                piece = whole.slice(offset, batch_size - held_rows)
                offset += piece.num_rows
                held.append(piece)
                held_rows += piece.num_rows
                if held_rows == batch_size:
                    yield held[0] if len(held) == 1 else pa.concat_batches(held)
                    held, held_rows = [], 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def announced(
    batches: Iterable[pa.RecordBatch], announce: Callable[[pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    """The same batches, each announced while the one before it is still to be handed out."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        announce(batch)
        if held is not None:
            yield held
        held = batch
    if held is not None:
        yield held
