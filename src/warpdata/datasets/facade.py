"""One thing to open. A façade: every method is a few lines over the layer that does the work."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from warpdata.artifacts import Artifact
from warpdata.catalog import (
    MAIN,
    Address,
    HistoryEntry,
    Label,
    Resolved,
    check_dataset_id,
    create_branch,
    create_label,
    find_transaction,
    parse_address,
)
from warpdata.datasets.connection import Connection, connect
from warpdata.datasets.info import DatasetInfo, describe
from warpdata.datasets.media import open_artifact
from warpdata.digest import Blob
from warpdata.errors import TableNotFoundError
from warpdata.manifest import Difference, LoadPage, Manifest, compare, kept_blobs
from warpdata.settings import Settings
from warpdata.tables import Present, ShardOpener, Table, retyped_table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Dataset",
    "Revision",
    "dataset",
    "diff",
    "list_datasets",
    "open_dataset",
    "resolve",
]

_REMEMBERED_PAGES = 64


@dataclass(frozen=True, slots=True)
class Revision:
    """One commit of a dataset's history."""

    commit: str
    version: str
    parents: tuple[str, ...]
    operation: str
    author: str
    message: str
    time: datetime
    txn_id: str


class Dataset:
    """One version of a dataset. It never changes; open the name again to see newer ones."""

    def __init__(self, connection: Connection, resolved: Resolved, manifest: Manifest) -> None:
        self._connection = connection
        self._resolved = resolved
        self._manifest = manifest
        self._artifacts: dict[str, Artifact] = {}
        self._shards = ShardOpener(connection.reader)
        self._load_page: LoadPage = functools.lru_cache(maxsize=_REMEMBERED_PAGES)(connection.catalog.load_page)

    def __repr__(self) -> str:
        return f"Dataset({self.id!r}, version={self.version[:12]!r}, store={self._connection.reader.url!r})"

    @property
    def connection(self) -> Connection:
        """The store it was opened from."""
        return self._connection

    @property
    def id(self) -> str:
        return self._resolved.dataset_id

    @property
    def version(self) -> str:
        """64 hex digits: the hash of the manifest."""
        return self._resolved.version

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self._manifest.tables))

    def table(self, name: str | None = None) -> Table:
        """A table by name; without one, the only table or the one called "main"."""
        names = self.tables
        name = name or self._main_table()
        entry = self._manifest.tables.get(name)
        if entry is None:
            near = difflib.get_close_matches(name, names, n=3)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Tables: {', '.join(names) or 'none'}"
            raise TableNotFoundError(f"{self.id} has no table {name!r}", hint=hint)
        return Table(name, entry, self._shards, self._load_page, self._connection.settings, present=self._present(name))

    @property
    def artifacts(self) -> tuple[str, ...]:
        return tuple(sorted(self._manifest.artifacts))

    def artifact(self, name: str | None = None) -> Artifact:
        """An artifact by name; without one, the only one there is."""
        if name is None:
            name = self.artifacts[0] if len(self.artifacts) == 1 else "raw"
        if name not in self._artifacts:
            self._artifacts[name] = open_artifact(
                self._connection, self._resolved, self._manifest, name, self._load_page
            )
        return self._artifacts[name]

    def attach(self, rows: pa.Table | pa.RecordBatch, table: str | None = None) -> pa.Table:
        """References for rows that lost them on their way, such as the result of an SQL query.

        Columns with the names of bound columns of `table` become references again.
        """
        import pyarrow as pa

        present = self._present(table or self._main_table())
        whole = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        return whole if present is None else retyped_table(whole, present(whole.schema))

    def _main_table(self) -> str:
        return self.tables[0] if len(self.tables) == 1 else "main"

    def _present(self, table: str) -> Present | None:
        """How a table's bound columns become references; None where it has none."""
        bound = {binding.column: binding for binding in self._manifest.bindings if binding.table == table}
        if not bound:
            return None
        opened = {name: self.artifact(name) for name in {binding.artifact for binding in bound.values()}}

        def present(schema: pa.Schema) -> pa.Schema:
            from warpdata.datasets.reference_types import present_schema

            columns = {name: (opened[binding.artifact].reopen, binding.ref_type) for name, binding in bound.items()}
            return present_schema(schema, columns)

        return present

    def info(self) -> DatasetInfo:
        return describe(self._manifest, self._resolved, self._connection.reader.url)

    def history(self, limit: int | None = None) -> list[Revision]:
        """One entry per commit, newest first."""
        return [_revision(entry) for entry in self._connection.catalog.history(self._resolved, limit)]

    def snapshot(self, label: str) -> Label:
        """Give this version a name that never moves."""
        link = self._connection
        return create_label(link.writer, self._resolved, label, link.timestamp(), link.pause)

    def branch(self, name: str) -> Dataset:
        """Start a branch at this version and open it."""
        link = self._connection
        create_branch(link.writer, self._resolved, name, link.new_id(), link.pause)
        return open_dataset(link, Address(self.id, name))

    def blobs(self) -> Iterator[Blob]:
        """Every blob this version needs, pages included."""
        return kept_blobs(self._manifest, self._load_page)

    def diff(self, older: Dataset) -> Difference:
        """What changed from `older` to this version."""
        return compare(older.manifest, self._manifest, self._load_page)


def dataset(address: str, *, store: str | None = None, settings: Settings | None = None) -> Dataset:
    """Open `workspace/name`, optionally `@version`, `@label` or `@branch`; usable at once, nothing is pulled."""
    return open_dataset(connect(store, settings), parse_address(address))


def open_dataset(connection: Connection, address: Address) -> Dataset:
    """As `dataset`, over a connection that is already there; three small reads at most."""
    catalog = connection.catalog
    resolved = catalog.resolve(address)
    return Dataset(connection, resolved, catalog.manifest(resolved))


def diff(older: str, newer: str, *, store: str | None = None, settings: Settings | None = None) -> Difference:
    """What changed between two addresses, usually of one dataset."""
    link = connect(store, settings)
    return open_dataset(link, parse_address(newer)).diff(open_dataset(link, parse_address(older)))


def list_datasets(
    workspace: str | None = None, *, store: str | None = None, settings: Settings | None = None
) -> list[str]:
    """Names of published datasets, by listing folders only. `workspace` may end in a slash."""
    return connect(store, settings).catalog.datasets(workspace.rstrip("/") if workspace else None)


def resolve(
    dataset_id: str, txn_id: str, *, branch: str = MAIN, store: str | None = None, settings: Settings | None = None
) -> Revision | None:
    """What became of a publish that ended in `CommitUnknownError`: its commit, or None if it is not there.

    None is final once a later commit stands on the branch; until then a delayed request may still land.
    """
    link = connect(store, settings)
    found = find_transaction(link.writer, check_dataset_id(dataset_id), branch, txn_id)
    return None if found is None else _revision(found)


def _revision(entry: HistoryEntry) -> Revision:
    commit = entry.commit
    return Revision(
        commit=entry.commit_id,
        version=commit.version,
        parents=commit.parents,
        operation=commit.operation,
        author=commit.author,
        message=commit.message,
        time=datetime.fromisoformat(commit.time),
        txn_id=commit.txn_id,
    )
