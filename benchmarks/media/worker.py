"""`python -m benchmarks.media.worker`: opens media and reads them on command, one line of JSON each way.

Settings come from the environment. `read` gives the references one by one, `batches` in calls of
`read_many`, `scalars` goes through the elements of the Arrow column, and `files` reads plain files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import warpdata as wd
from benchmarks.harness.worker import serve
from benchmarks.media.dataset import ARTIFACT, COLUMN, MEDIA
from benchmarks.tables.publish_worker import peak_bytes
from warpdata.artifacts import FileRef

__all__: list[str] = []


class _Reader:
    def __init__(self) -> None:
        self.references: list[FileRef] = []
        self.column: Any = None
        self.positions: list[int] = []
        self.files: list[str] = []

    def open(self, store: str) -> dict[str, int]:
        self.column = wd.dataset(MEDIA, store=store).table("main").to_arrow()[COLUMN]
        self.references = self.column.to_pylist()
        return {"references": len(self.references)}

    def first(self, store: str) -> dict[str, int]:
        """The first reference of the first batch, as a newcomer would."""
        batch = next(iter(wd.dataset(MEDIA, store=store).table("main").batches(64)))
        return {"bytes": len(batch[COLUMN][0].read_bytes())}

    def member(self, store: str, path: str) -> dict[str, int]:
        """One member by its path, without the table."""
        return {"bytes": len(wd.dataset(MEDIA, store=store).artifact(ARTIFACT).read(path))}

    def find(self, store: str, paths: list[str]) -> dict[str, int]:
        """Look members up, and say how much memory that took at most."""
        artifact = wd.dataset(MEDIA, store=store).artifact(ARTIFACT)
        found = sum(artifact.member(path).path == path for path in paths)
        return {"found": found, "peak_bytes": peak_bytes()}

    def order(self, positions: list[int], files: list[str] | None = None) -> dict[str, int]:
        self.positions = positions
        self.files = files or []
        return {"references": len(positions)}

    def read(self) -> dict[str, int]:
        references = self.references
        return {"bytes": sum(len(references[position].read_bytes()) for position in self.positions)}

    def scalars(self) -> dict[str, int]:
        column = self.column
        return {"bytes": sum(len(column[position].read_bytes()) for position in self.positions)}

    def batches(self, size: int) -> dict[str, int]:
        total = 0
        for start in range(0, len(self.positions), size):
            wanted = [self.references[position] for position in self.positions[start : start + size]]
            total += sum(len(content) for content in wd.read_many(wanted) if content is not None)
        return {"bytes": total}

    def plain(self) -> dict[str, int]:
        """The same bytes from one file each: open, read, close."""
        return {"bytes": sum(len(_content(self.files[position])) for position in self.positions)}


def _content(path: str) -> bytes:
    with Path(path).open("rb", buffering=0) as file:
        return file.read()


if __name__ == "__main__":
    serve(_Reader())
