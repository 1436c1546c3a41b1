"""View files: the ByteSpace of a view, kept in a file that names the view.

Implements "View files" of docs/specs/tensors.md.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from warpdata.formats.tensors.extents import ViewRecord
from warpdata.formats.tensors.hashing import leaf_hashes
from warpdata.formats.tensors.index import align
from warpdata.formats.tensors.tensor_file import create_file, encode_tail, finish_file
from warpdata.formats.tensors.view import View

__all__ = ["write_view_bytes"]


def write_view_bytes(path: Path, view: View) -> None:
    """Read a view into a new file, verified like any read. The file appears complete or not at all."""
    size = view.index.total_size
    with create_file(path, size) as new:
        leaves: list[bytes] = []
        if size:
            mapped = mmap.mmap(new.file.fileno(), size)
            view.materialize_into(memoryview(mapped))
            leaves = leaf_hashes(memoryview(mapped))
            mapped.flush()
        new.file.seek(size)
        record = ViewRecord(view.artifact_index_multihash, view.space_id)
        new.file.write(bytes(align(size) - size) + encode_tail(size, view.index_bytes, leaves, record))
        finish_file(new)
