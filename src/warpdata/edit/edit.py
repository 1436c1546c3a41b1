"""Edits: changes to a dataset that are collected, then committed once, or not at all.

Every call changes a draft on this machine, and later calls see its effect. The commit uploads the new blobs and adds
one entry to the branch. If the branch has moved, the edit is merged into the new head; conflicts end it.
Implements "Edits" of docs/specs/publish.md.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from warpdata.edit.column_edits import (
    ColumnFunction,
    ColumnRun,
    NewColumn,
    add_column,
    cast_column,
    drop_column,
    rename_column,
)
from warpdata.edit.index_edits import drop_indexes, rename_indexes
from warpdata.edit.proposal import EditProposal, commit_beside, commit_change
from warpdata.edit.row_edits import delete_where, update_where, upsert
from warpdata.edit.table_draft import TableDraft
from warpdata.edit.table_merge import ColumnRules
from warpdata.edit.workspace import DraftSource, EditWorkspace, FindDraftTransform
from warpdata.errors import BadInputError
from warpdata.jobs import EngineChoice, Job, JobOptions, open_job
from warpdata.kinds import StageContext, StagedEntry, VersionContext, payload_kind
from warpdata.kinds.tables import TABLES, StagedTable, TableInput
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest
from warpdata.publish import carry_references, check_entry_name, check_origin
from warpdata.query import Expression, Filter
from warpdata.repository.catalog import HistoryEntry, Transaction, check_commit_texts, find_transaction
from warpdata.repository.manifest import Manifest, Payload, ShardList, TableEntry
from warpdata.session import keyed_id

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Edit", "EditOptions", "EditSummary", "NewColumns", "transaction_of"]

NewColumns: TypeAlias = Literal["refuse", "null"]
"""The treatment of appended rows that lack a column which a commit in between has added."""


@dataclass(frozen=True, slots=True)
class EditOptions:
    """The text of the commit, the branch, and the surroundings of an edit.

    An edit with a `key` is committed at most once: if the branch has a commit with this key, the edit does nothing.
    An edit with a `label` leaves the branch where it is, and names its version with the label.
    """

    message: str
    author: str
    branch: str
    key: str | None = None
    progress: Progress = silent
    searched: int = 0
    """The branch is known not to have the key up to this sequence."""
    label: str | None = None
    time: str | None = None
    """The time of the commit; by default, that of the commit itself."""
    new_columns: NewColumns = "refuse"
    """Appended rows beside a new column of another commit: a conflict, or null."""


@dataclass(slots=True)
class EditSummary:
    """The changes of an edit, by table, artifact or episode set."""

    appended: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    updated: dict[str, int] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)
    files_added: dict[str, int] = field(default_factory=dict)
    files_removed: dict[str, int] = field(default_factory=dict)
    episodes_added: dict[str, int] = field(default_factory=dict)
    episodes_removed: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = []
        for name in ("appended", "updated", "deleted", "files_added", "files_removed"):
            counts = getattr(self, name)
            parts += [f"{name.replace('_', ' ')} {count:,} in {entry}" for entry, count in counts.items() if count]
        for name in ("episodes_added", "episodes_removed"):
            parts += [f"{name.replace('_', ' ')} {count:,} in {entry}" for entry, count in getattr(self, name).items()]
        return "; ".join([*parts, *self.columns]) or "no changes"


@check_arguments
class Edit:
    """Changes to one branch of a dataset. Use it as a context manager: the end commits, an exception discards.

    After the commit, `version` and `commit` name the new head, and `summary` counts the changes.
    """

    def __init__(self, base: VersionContext, options: EditOptions, find_transform: FindDraftTransform) -> None:
        check_commit_texts(options.author, options.message)
        self._base = base
        self._options = options
        self._workspace = EditWorkspace(
            base.session,
            lambda table: find_transform(table, self._workspace.context(self._manifest())),
            DraftSource(self._manifest, find_transform),
        )
        self._jobs: list[Job] = []
        self._stack = ExitStack()
        self._tables: dict[str, TableDraft] = {}
        self._payloads: dict[str, dict[str, Payload]] = {}
        self._indexes = base.manifest.indexes
        self._bindings = base.manifest.bindings
        self._resume_dirs: list[Path] = []
        self._used_ids: dict[str, int] = {}
        self._added_columns: dict[str, list[NewColumn]] = {}
        self._is_open = True
        self._key = options.key
        self._committed: HistoryEntry | None = None
        self.summary = EditSummary()
        self.version = base.ref.version
        self.commit: str | None = base.ref.commit

    def __repr__(self) -> str:
        return short_repr("Edit", self._base.ref.dataset_id, branch=self._options.branch, summary=str(self.summary))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None and self._is_open:
                self.save()
        finally:
            self.discard()

    def append(self, table: str, rows: TableInput) -> int:
        """Append rows to a table; a table that does not exist is created. Return their number."""
        draft = self._draft(table, create=True)
        staged = draft.append(rows, self._options.progress)
        self._carry_references(table, staged)
        _count(self.summary.appended, table, staged.item_count)
        return staged.item_count

    def delete(self, table: str, where: str | Filter) -> int:
        """Delete the rows that a filter, SQL text or a `Filter`, keeps. Return their number."""
        count = delete_where(self._draft(table), where)
        _count(self.summary.deleted, table, count)
        return count

    def update(self, table: str, where: str | Filter | None, set: Mapping[str, Any]) -> int:  # noqa: A002
        """Set columns of the rows that a filter keeps; None for all rows. Return their number.

        A value is a constant, or an SQL expression made by `wd.expr`, which sees the row as it was.
        """
        count = update_where(self._draft(table), where, set)
        _count(self.summary.updated, table, count)
        return count

    def upsert(self, table: str, rows: TableInput, on: Sequence[str] | str) -> tuple[int, int]:
        """Replace the rows with the same key, and append the others. Return the number of both."""
        done = upsert(self._draft(table), rows, on)
        self._carry_references(table, done.staged)
        _count(self.summary.updated, table, done.updated)
        _count(self.summary.appended, table, done.appended)
        return done.updated, done.appended

    def add_column(
        self,
        table: str,
        name: str,
        make: ColumnFunction | Expression,
        *,
        columns: Sequence[str] | str | None = None,
        type: pa.DataType | str | None = None,  # noqa: A002
        batch_size: int = 1024,
        resume: str | None = None,
        engine: EngineChoice = None,
        job: str | None = None,
    ) -> None:
        """Compute a column for every row. `make` takes a record batch of `columns` and returns a value for each row.

        Bound columns arrive as references. Other columns are not rewritten. With `resume`, a name of your choice,
        finished parts survive an interruption, and the same call goes on from there. Parts are made again if the rows
        or the code of the function changed. Choose another name if something changed that the function only loads.
        If others add or change rows before the commit, the column is computed for these rows then.

        With an `engine` ("processes", "ray" or "ray://HOST:PORT"), workers compute one shard at a time and store it at
        once. Finished shards are not computed again when the same call is repeated after an interruption, by any
        machine. `job` names this work; by default the name follows from the dataset, the table and the column. An edit
        with a named job is committed at most once: repeated after its commit, it does nothing.
        """
        draft = self._draft(table)
        run = ColumnRun(self._counter(draft), self._job(JobOptions(engine, job), f"{table}\n{name}"))
        if self._is_done(draft, name, job):
            return
        names = None if columns is None else ((columns,) if isinstance(columns, str) else tuple(columns))
        resume_dir = self._resume_dir(table, name, resume)
        new = NewColumn(name, make, names, _data_type(type), batch_size, resume_dir)
        made = add_column(draft, new, run)
        self._added_columns.setdefault(table, []).append(made)
        self._resume_dirs += [] if resume_dir is None else [resume_dir]
        self.summary.columns.append(f"added column {table}.{name}")

    def drop_column(self, table: str, name: str) -> None:
        """Drop a column, with its indexes. The files that have it are not rewritten."""
        drop_column(self._draft(table), name)
        self._bindings = tuple(bound for bound in self._bindings if (bound.table, bound.column) != (table, name))
        self._indexes = drop_indexes(self._indexes, table, name)
        self.summary.columns.append(f"dropped column {table}.{name}")

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        """Rename a column, with its binding and its indexes."""
        rename_column(self._draft(table), name, new_name)
        self._bindings = tuple(
            replace(bound, column=new_name) if (bound.table, bound.column) == (table, name) else bound
            for bound in self._bindings
        )
        self._indexes = rename_indexes(self._indexes, table, name, new_name)
        self.summary.columns.append(f"renamed column {table}.{name} to {new_name}")

    def cast(self, table: str, name: str, type: pa.DataType | str) -> None:  # noqa: A002
        """Change the type of a column. A value that does not fit is an error, and nothing is committed."""
        wanted = _data_type(type)
        if wanted is None:
            raise BadInputError("cast needs a type of Arrow, not None")
        draft = self._draft(table)
        cast_column(draft, name, wanted, ColumnRun(self._counter(draft)))
        self.summary.columns.append(f"cast column {table}.{name} to {wanted}")

    def add_files(self, artifact: str, files: Mapping[str, bytes | str | Path]) -> int:
        """Add files to an artifact, by member path: bytes, or the path of a file. Return their number."""
        self._edit_payload("artifacts", artifact, files, ())
        _count(self.summary.files_added, artifact, len(files))
        return len(files)

    def remove_files(self, artifact: str, paths: Iterable[str]) -> int:
        """Remove files from an artifact. No row may refer to them at the commit. Return their number."""
        listed = _distinct_texts(paths, "paths")
        self._edit_payload("artifacts", artifact, {}, listed)
        _count(self.summary.files_removed, artifact, len(listed))
        return len(listed)

    def add_episodes(self, episodes: str, source: Any) -> int:
        """Add episodes to a set: what `DatasetBuilder.add_episodes` takes. Return their number."""
        count = self._edit_payload("episodes", episodes, source, ())
        _count(self.summary.episodes_added, episodes, count)
        return count

    def remove_episodes(self, episodes: str, ids: Iterable[str]) -> int:
        """Remove episodes from a set by id. Return their number."""
        listed = _distinct_texts(ids, "ids")
        self._edit_payload("episodes", episodes, None, listed)
        _count(self.summary.episodes_removed, episodes, len(listed))
        return len(listed)

    def artifact(self, name: str) -> Any:
        """Open an artifact as this edit has left it so far, with the files that are not committed yet."""
        self._check_open()
        return payload_kind("artifacts").open(self._workspace.context(self._manifest()), name)

    def save(self) -> None:
        """Commit the changes now. The edit cannot be changed after that."""
        self._check_open()
        session, options, ref = self._base.session, self._options, self._base.ref
        txn_id = session.new_id() if self._key is None else transaction_of(ref.dataset_id, self._key)
        known = self._committed
        if options.key is not None and options.label is None:
            known = find_transaction(session.writer, ref.dataset_id, options.branch, txn_id, after=options.searched)
        if known is not None:
            self._end(known.commit.version, known.commit_id)
            return
        txn = Transaction(
            ref.dataset_id,
            options.branch,
            txn_id,
            "edit",
            options.author,
            options.message,
            options.time or session.timestamp(),
        )
        touched = {name for name, draft in self._tables.items() if draft.entry != self._base_table(name)}
        removed_files = {name for name, count in self.summary.files_removed.items() if count}
        fills_null = options.new_columns == "null"
        rules = {name: ColumnRules(self._added_columns.get(name, ()), fills_null) for name in self._tables}
        proposal = EditProposal(
            self._workspace,
            self._base,
            self._manifest(),
            touched,
            options.progress,
            shrunk=removed_files,
            columns=rules,
            base_counters=self._used_ids if self._tables else None,
        )
        if options.label is None:
            done = commit_change(session, txn, proposal.at)
        else:
            done = commit_beside(session, txn, ref, options.label, proposal.at)
        self._end(done.version, done.commit)

    def _end(self, version: str, commit: str) -> None:
        """Take over a commit as the result, and remove what would have continued the work."""
        self.version, self.commit = version, commit
        self._is_open = False
        for finished in self._resume_dirs:
            shutil.rmtree(finished, ignore_errors=True)
        for job in self._jobs:
            job.finish()
        self._stack.close()

    def discard(self) -> None:
        """Forget the changes, and remove the staged files. Finished tasks of jobs stay, for another attempt."""
        self._is_open = False
        self._workspace.remove()
        self._stack.close()

    def _manifest(self) -> Manifest:
        manifest = self._base.manifest
        tables = {**manifest.tables, **{name: draft.entry for name, draft in self._tables.items()}}
        payloads: dict[str, Any] = {
            section: {**entries, **self._payloads.get(section, {})} for section, entries in manifest.payloads().items()
        }
        payloads["indexes"] = self._indexes
        return replace(manifest, tables=tables, **payloads, bindings=self._bindings, metadata={})

    def _draft(self, name: str, *, create: bool = False) -> TableDraft:
        self._check_open()
        if name not in self._tables:
            entry = self._base_table(name)
            if entry is None and create:
                check_entry_name(name, TABLES.noun)
                entry = TableEntry(ShardList())
            if entry is None:
                known = sorted(self._base.manifest.tables)
                raise TABLES.not_found(
                    f"{self._base.ref.dataset_id} has no table {name!r}", suggest(name, known, label="Tables")
                )
            if not self._tables:
                self._used_ids = self._workspace.session.catalog.forgotten_counters(self._base.ref)
            self._tables[name] = TableDraft(self._workspace, name, entry, self._used_ids.get(name, 0))
        return self._tables[name]

    def _base_table(self, name: str) -> TableEntry | None:
        return self._base.manifest.tables.get(name)

    def _edit_payload(self, section: str, name: str, added: Any, removed: Sequence[str]) -> int:
        self._check_open()
        context = StageContext(self._workspace.lazy_directory(), self._options.progress)
        version = self._workspace.context(self._manifest())
        staged = payload_kind(section).edit(version, name, added, removed, context)
        self._add_payload(section, name, staged)
        return staged.item_count

    def _carry_references(self, table: str, staged: StagedTable) -> None:
        """Bind reference columns of new rows, and bring their artifacts, or check them against the bound ones."""
        manifest = self._manifest()
        carried = carry_references({"tables": {table: staged}}, (), manifest)
        for name, brought in carried.entries.get("artifacts", {}).items():
            if name in manifest.artifacts:
                raise BadInputError(
                    f"the rows refer to an artifact {name!r}, and {manifest.dataset_id} already has another {name!r}"
                )
            self._add_payload("artifacts", name, brought)
        self._bindings = (*self._bindings, *carried.bindings)
        version = self._workspace.context(self._manifest())
        for binding in self._bindings:
            if binding.table == table and binding.column in staged.references:
                check_origin(binding, staged, payload_kind("artifacts").open(version, binding.artifact))

    def _add_payload(self, section: str, name: str, staged: StagedEntry) -> None:
        self._payloads.setdefault(section, {})[name] = self._workspace.add_payload(staged)

    def _counter(self, draft: TableDraft) -> ProgressCounter:
        shards = draft.entry.shards
        return ProgressCounter(self._options.progress, "rows", shards.row_count, shards.shard_count)

    def _job(self, options: JobOptions, work: str) -> Job | None:
        """Return the job for a part of this edit. Its lease ends with the edit."""
        job = open_job(self._base.session, options, self._base.ref.dataset_id, f"edit\n{work}", self._stack)
        self._jobs += [] if job is None else [job]
        return job

    def _is_done(self, draft: TableDraft, column: str, job: str | None) -> bool:
        """Return whether an earlier run of the named job has committed this edit, with the column."""
        exists = column in draft.open().schema().names
        if self._committed is not None and not exists:
            raise BadInputError(
                f"this edit was committed by an earlier run of its job, without column {column!r}",
                hint="Add the column in an edit with another job.",
            )
        if job is None or self._options.label is not None:
            return self._committed is not None
        if self._key is None:
            self._key = f"job\n{job}\n{draft.name}\n{column}"
        if exists and self._committed is None:
            ref = self._base.ref
            txn_id = transaction_of(ref.dataset_id, self._key)
            self._committed = find_transaction(
                self._base.session.writer, ref.dataset_id, self._options.branch, txn_id, after=self._options.searched
            )
        return self._committed is not None

    def _resume_dir(self, table: str, column: str, resume: str | None) -> Path | None:
        if resume is None:
            return None
        key = f"{self._base.ref.dataset_id}\n{table}\n{column}\n{resume}"
        return self._base.session.settings.cache_dir / "edits" / keyed_id(key)

    def _check_open(self) -> None:
        if not self._is_open:
            raise BadInputError("this edit is already committed or discarded", hint="Open another with Dataset.edit().")


def transaction_of(dataset_id: str, key: str) -> str:
    """Return the id of the transaction of an edit with this key."""
    return keyed_id(f"{dataset_id}\n{key}")


def _count(counts: dict[str, int], name: str, count: int) -> None:
    counts[name] = counts.get(name, 0) + count


def _data_type(given: pa.DataType | str | None) -> pa.DataType | None:
    """Return a type by its Arrow name, such as "int64" or "string"."""
    import pyarrow as pa

    if given is None or isinstance(given, pa.DataType):
        return given
    try:
        return pa.type_for_alias(given)
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInputError(
            f"{given!r} is not a type of Arrow", hint='Examples: "int64", "float32", "string".'
        ) from error


def _distinct_texts(values: Iterable[str], what: str) -> tuple[str, ...]:
    listed = list(values)
    for value in listed:
        if not isinstance(value, str):
            raise BadInputError(f"{what} are a list of texts, not {type(value).__name__}")
    return tuple(dict.fromkeys(listed))
