"""Worker process that opens and reads media with warpdata. Settings come from the environment.

`read` resolves the references one by one, `read_scalars` reads through the elements of the Arrow column, and
`read_plain` reads plain files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import warpdata as wd
from benchmarks.harness.machine import peak_bytes
from benchmarks.harness.worker import serve
from benchmarks.media.dataset import ARTIFACT, COLUMN, DATASET
from warpdata import FileRef

__all__: list[str] = []


class _MediaReader:
    def __init__(self) -> None:
        self.references: list[FileRef] = []
        self.column: Any = None
        self.positions: list[int] = []
        self.files: list[str] = []

    def open(self, store: str) -> dict[str, int]:
        self.column = wd.dataset(DATASET, store=store).table("main").to_arrow()[COLUMN]
        self.references = self.column.to_pylist()
        return {"references": len(self.references)}

    def set_order(self, positions: list[int], files: list[str] | None = None) -> dict[str, int]:
        self.positions = positions
        self.files = files or []
        return {"references": len(positions)}

    def read(self) -> dict[str, int]:
        references = self.references
        return {"bytes": sum(len(references[position].read_bytes()) for position in self.positions)}

    def read_scalars(self) -> dict[str, int]:
        column = self.column
        return {"bytes": sum(len(column[position].read_bytes()) for position in self.positions)}

    def read_plain(self) -> dict[str, int]:
        return {"bytes": sum(len(_read_file(self.files[position])) for position in self.positions)}

    def read_first(self, store: str) -> dict[str, int]:
        """Open the dataset and read the first reference of the first batch."""
        batch = next(iter(wd.dataset(DATASET, store=store).table("main").batches(64)))
        return {"bytes": len(batch[COLUMN][0].read_bytes())}

    def read_member(self, store: str, path: str) -> dict[str, int]:
        """Open the dataset and read one member by path, without the table."""
        return {"bytes": len(wd.dataset(DATASET, store=store).artifact(ARTIFACT).read(path))}

    def find(self, store: str, paths: list[str]) -> dict[str, int]:
        """Look members up and report the peak memory."""
        artifact = wd.dataset(DATASET, store=store).artifact(ARTIFACT)
        found = sum(artifact.member(path).path == path for path in paths)
        return {"found": found, "peak_bytes": peak_bytes()}


def _read_file(path: str) -> bytes:
    with Path(path).open("rb", buffering=0) as file:
        return file.read()


if __name__ == "__main__":
    serve(_MediaReader())
