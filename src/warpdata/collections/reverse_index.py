"""Reverse index of a collection: the versions that have a file, by its hash or its path.

A database in the cache directory, derived from the versions of the store and never needed for correctness: it follows
the store at each use, and is built again if it is lost. It holds one span of version numbers for each file, so it grows
with the changes and not with the versions. Implements "Reverse index" of docs/specs/collections.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from warpdata.collections.tables import FILES, IMAGES
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import NotFoundError
from warpdata.kinds.tables import Table, diff_rows
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.catalog import Address, find_newest, labels_prefix, read_head, read_label, walk_heads
from warpdata.session import Session, keyed_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FileVersions", "ReverseIndex"]

_FORMAT = "1"
_OPEN = 2**62
"""The end of a span that the newest version still has."""
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE heads (branch TEXT PRIMARY KEY, sequence INTEGER NOT NULL, version TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE versions (number INTEGER PRIMARY KEY, version TEXT UNIQUE NOT NULL, kind TEXT NOT NULL);
CREATE TABLE labels (name TEXT PRIMARY KEY, version TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX labels_version ON labels (version);
CREATE TABLE spans (digest BLOB NOT NULL, path TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE INDEX spans_digest ON spans (digest);
CREATE INDEX spans_path ON spans (path);
"""
_VERSIONS_BETWEEN = "SELECT version, kind FROM versions WHERE number >= ? AND number < ?"
_LABELS_BETWEEN = (
    "SELECT labels.name, labels.version FROM versions JOIN labels USING (version) WHERE number >= ? AND number < ?"
)
_TAKEN_ROWS = 100_000
_File: TypeAlias = tuple[str, str]
"""Path and hash."""


@dataclass(frozen=True, slots=True)
class FileVersions:
    """The versions that have one of some files: hashes by version, and the labels of each version."""

    hashes: tuple[str, ...]
    paths: tuple[str, ...]
    versions: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    """Label and version, in order of the labels."""
    kinds: frozenset[str]
    """The kinds in which these versions store files."""


class ReverseIndex:
    """The index of one collection. Open it for a call; it keeps no connection."""

    def __init__(self, session: Session, dataset_id: str) -> None:
        self._session = session
        self._dataset_id = dataset_id
        name = keyed_id(f"{session.writer.url}\n{dataset_id}")
        self.path: Path = session.settings.cache_dir / "collections" / f"{name}.sqlite"
        self._last: Dataset | None = None

    def refresh(self) -> None:
        """Read what is new in the store: heads of branches, then labels. A damaged index is built again."""
        try:
            with self._connection() as connection:
                self._follow(connection)
        except sqlite3.DatabaseError:
            self.remove()
            with self._connection() as connection:
                self._follow(connection)

    def remove(self) -> None:
        """Remove the database. The next use builds it again."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).unlink()

    def hashes_of(self, path: str) -> tuple[str, ...]:
        """Return the hashes of all contents that a path has had in any version, sorted."""
        with self._connection() as connection:
            found = connection.execute("SELECT DISTINCT digest FROM spans WHERE path = ?", (path,))
            return tuple(sorted(row[0].hex() for row in found))

    def find(self, hashes: Sequence[str]) -> FileVersions:
        """Return the versions that have a file with one of these hashes."""
        with self._connection() as connection:
            spans = [
                span
                for digest in hashes
                for span in connection.execute(
                    "SELECT path, first, last FROM spans WHERE digest = ?", (bytes.fromhex(digest),)
                )
            ]
            versions: dict[str, str] = {}
            labels: dict[str, str] = {}
            for first, last in _joined((first, last) for _, first, last in spans):
                versions.update(connection.execute(_VERSIONS_BETWEEN, (first, last)))
                labels.update(connection.execute(_LABELS_BETWEEN, (first, last)))
        return FileVersions(
            tuple(sorted(hashes)),
            tuple(sorted({path for path, _, _ in spans})),
            tuple(versions),
            tuple(sorted(labels.items())),
            frozenset(versions.values()),
        )

    def paths_in(self, version: str, hashes: Sequence[str]) -> tuple[str, ...]:
        """Return the paths that have one of these hashes in a version, which is added if it is not known."""
        with self._connection() as connection:
            number = self._number(connection, version)
            if number is None:
                connection.execute("BEGIN IMMEDIATE")
                self._add(connection, version)
                connection.execute("COMMIT")
                number = self._number(connection, version)
            found: set[str] = set()
            for digest in hashes:
                rows = connection.execute(
                    "SELECT path FROM spans WHERE digest = ? AND first <= ? AND last > ?",
                    (bytes.fromhex(digest), number, number),
                )
                found.update(row[0] for row in rows)
        return tuple(sorted(found))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=60.0, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # it can be built again
            connection.execute("PRAGMA journal_mode = WAL")
            if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'spans'").fetchone():
                connection.execute("BEGIN IMMEDIATE")
                if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'spans'").fetchone():
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        connection.execute(statement)
                    connection.execute("INSERT INTO meta VALUES ('format', ?)", (_FORMAT,))
                connection.execute("COMMIT")
            elif connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone() != (_FORMAT,):
                raise sqlite3.DatabaseError("the index has another format")
            yield connection

    def _follow(self, connection: sqlite3.Connection) -> None:
        """Add versions of branches, oldest first, and then those of labels."""
        writer, catalog = self._session.writer, self._session.catalog
        connection.execute("BEGIN IMMEDIATE")
        for branch in catalog.branches(self._dataset_id):
            newest = find_newest(writer, self._dataset_id, branch)
            known = connection.execute("SELECT sequence, version FROM heads WHERE branch = ?", (branch,)).fetchone()
            if newest is None:
                continue
            if known is not None and not self._is_same_log(branch, (known[0], known[1]), newest.sequence):
                raise sqlite3.DatabaseError("the index belongs to another history")
            entries = walk_heads(writer, self._dataset_id, branch, newest.sequence, (known[0] if known else 0) + 1)
            for head in reversed([entry for entry in entries if entry.removed is None]):
                self._add(connection, head.version)
            values = (branch, newest.sequence, newest.version)
            connection.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?)", values)
        self._follow_labels(connection)
        connection.execute("COMMIT")

    def _is_same_log(self, branch: str, known: tuple[int, str], newest: int) -> bool:
        sequence, version = known
        if newest < sequence:
            return False
        head = read_head(self._session.writer, self._dataset_id, branch, sequence)
        return head is not None and head.version == version

    def _follow_labels(self, connection: sqlite3.Connection) -> None:
        writer = self._session.writer
        prefix = f"{labels_prefix(self._dataset_id)}/"
        listed = [info.key.removeprefix(prefix) for info in writer.list_objects(prefix.rstrip("/"))]
        names = {key.removesuffix(".json") for key in listed if "/" not in key}
        changing = {key.partition("/")[0] for key in listed if "/" in key}  # only labels that were removed once change
        known = {row[0] for row in connection.execute("SELECT name FROM labels")}
        wanted = sorted((names - known) | changing)
        found = IO_POOL.map_all(lambda name: read_label(writer, self._dataset_id, name), wanted)
        for name, label in zip(wanted, found, strict=True):
            connection.execute("DELETE FROM labels WHERE name = ?", (name,))
            if label is not None:
                self._add(connection, label.version)
                connection.execute("INSERT INTO labels VALUES (?, ?)", (name, label.version))
        for name in known - names:
            connection.execute("DELETE FROM labels WHERE name = ?", (name,))

    def _number(self, connection: sqlite3.Connection, version: str) -> int | None:
        row = connection.execute("SELECT number FROM versions WHERE version = ?", (version,)).fetchone()
        return None if row is None else int(row[0])

    def _add(self, connection: sqlite3.Connection, version: str) -> None:
        """Add a version that is not known: the difference from the version that was added before it."""
        if self._number(connection, version) is not None:
            return
        last = connection.execute("SELECT number, version FROM versions ORDER BY number DESC LIMIT 1").fetchone()
        try:
            dataset = self._open(version)
        except NotFoundError:  # collected: its files can be found no more
            return
        number = 0 if last is None else last[0] + 1
        kind = dataset.artifact(FILES).entry.kind if FILES in dataset.artifacts else ""
        gone, come = self._difference(connection, None if last is None else last[1], dataset)
        connection.executemany(
            "UPDATE spans SET last = ? WHERE digest = ? AND path = ? AND last = ?",
            ((number, bytes.fromhex(digest), path, _OPEN) for path, digest in gone),
        )
        connection.executemany(
            "INSERT INTO spans VALUES (?, ?, ?, ?)",
            ((bytes.fromhex(digest), path, number, _OPEN) for path, digest in come),
        )
        connection.execute("INSERT INTO versions VALUES (?, ?, ?)", (number, version, kind))
        self._last = dataset

    def _difference(
        self, connection: sqlite3.Connection, before: str | None, dataset: Dataset
    ) -> tuple[set[_File], set[_File]]:
        """Return the files that go and those that come. Reads only shards that differ, if both versions are there."""
        table = dataset.find_table(IMAGES)
        if before is not None:
            try:
                older = self._last if self._last is not None and self._last.version == before else self._open(before)
            except NotFoundError:
                rows = connection.execute("SELECT path, digest FROM spans WHERE last = ?", (_OPEN,))
                known = {(path, digest.hex()) for path, digest in rows}
                files = set() if table is None else _files(table, table.row_numbers())
                return known - files, files - known
            old_table = older.find_table(IMAGES)
        else:
            old_table = None
        diff = diff_rows(old_table, table)
        gone = set() if old_table is None else _files(old_table, diff.gone.rows)
        come = set() if table is None else _files(table, diff.come.rows)
        return gone - come, come - gone

    def _open(self, version: str) -> Dataset:
        return open_dataset(self._session, Address(self._dataset_id, version))


def _files(table: Table, rows: NDArray[np.int64]) -> set[_File]:
    """Return path and hash of rows."""
    if "hash" not in table.schema().names or "path" not in table.schema().names:
        return set()
    chosen = table.select(["path", "hash"])
    found: set[_File] = set()
    for start in range(0, len(rows), _TAKEN_ROWS):
        part = chosen.take(rows[start : start + _TAKEN_ROWS])
        found.update(zip(part["path"].to_pylist(), part["hash"].to_pylist(), strict=True))
    return found


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans without overlaps, ascending."""
    begin = end = None
    for first, last in sorted(spans):
        if begin is None or end is None or first > end:
            if begin is not None and end is not None:
                yield begin, end
            begin, end = first, last
        else:
            end = max(end, last)
    if begin is not None and end is not None:
        yield begin, end
