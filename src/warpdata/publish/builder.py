"""Builders: collect sources, stage them, upload blobs, commit a version.

A publish that is killed at any point leaves the previous version intact and can be run again; blobs that are
already stored are not uploaded twice. Implements docs/specs/publish.md.
"""

from __future__ import annotations

import errno
import functools
import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ErrorKind,
    InvalidSourceError,
    NotFoundError,
    StorageError,
    WarpError,
)
from warpdata.jobs import EngineChoice, Job, JobOptions, open_job
from warpdata.kinds import StageContext, StagedEntry, payload_kind
from warpdata.kinds.artifacts import ArtifactInput, ArtifactSpec
from warpdata.kinds.episodes import EpisodesInput, EpisodesSpec
from warpdata.kinds.tables import TableInput, TableSpec
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, silent
from warpdata.primitives.reprs import short_repr
from warpdata.publish.bindings import check_bindings, check_names, check_ref_type, sample_paths
from warpdata.publish.change_set import ChangeMode, ChangeSet, check_expected
from warpdata.publish.manifest_builder import check_entry_name
from warpdata.publish.placement import Placement
from warpdata.publish.references import carry_references
from warpdata.publish.upload import PublishPlan, StagedUpload, distinct_blobs, find_present, plan_upload
from warpdata.repository.catalog import (
    MAIN,
    Committed,
    Head,
    Transaction,
    VersionRef,
    check_commit_texts,
    check_dataset_id,
    check_ref_name,
    commit,
    create_label,
    find_head,
    mark_store,
    read_marker,
    store_version,
)
from warpdata.repository.manifest import Binding, JsonObject, Manifest, encode_manifest, version_of
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage.cache import OfflineStore, StagingDirectory

if TYPE_CHECKING:
    from warpdata.kinds.tensors import TensorsInput

__all__ = ["DatasetBuilder", "Published"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Published:
    """The version at the head of the branch. `changed` is False if it was the head before."""

    dataset_id: str
    version: str
    commit: str
    branch: str
    changed: bool
    uploaded_files: int
    uploaded_bytes: int


@dataclass(frozen=True, slots=True)
class _CommitTerms:
    expected_version: str | None
    label: str | None
    repair: bool
    set_latest: bool


@check_arguments
class DatasetBuilder:
    """Collects tables, artifacts, episodes and tensors, then publishes them as one version.

    The version has exactly the entries that were added. With `append_table`, or with `keep=True`, it is the head of the
    branch with these entries added or replaced. Nothing is written to the store before `publish`.
    """

    def __init__(self, dataset_id: str, store: str | Session | None = None, *, settings: Settings | None = None):
        self._dataset_id = check_dataset_id(dataset_id)
        self._session = store if isinstance(store, Session) else connect(store, settings)
        self._sources: dict[str, dict[str, Any]] = {}
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._appends = False
        self._staged: dict[str, dict[str, StagedEntry]] | None = None
        self._staging: StagingDirectory | None = None

    def __repr__(self) -> str:
        added = {section: list(sources) for section, sources in self._sources.items()}
        appends = self._appends or None
        return short_repr("DatasetBuilder", self._dataset_id, store=self._session.reader.url, appends=appends, **added)

    def add_table(
        self, name: str, source: TableInput, *, rewrite: bool = False, follow_links: bool = False, copy: bool = True
    ) -> DatasetBuilder:
        """Add a table from files (published byte for byte), Arrow data, data frames, or a list of these.

        A `Table` of a dataset and Arrow data read from one keep their references: the columns are bound again, and
        the artifacts that they refer to become part of the version. `rewrite` reads the files and writes them again:
        one schema, even row groups, page checksums. Links that leave a directory or the directory of a glob are
        refused, or with `follow_links` followed.

        With `copy=False`, Parquet files stay where they are: paths, URLs such as `s3://bucket/x/*.parquet`, or a list
        of these. Each is read and hashed once, and nothing is uploaded. Readers need WARP_EXTERNAL_PREFIXES.
        """
        return self._add("tables", name, self._table_spec(source, rewrite=rewrite, links=follow_links, copy=copy))

    def append_table(
        self, name: str, source: TableInput, *, rewrite: bool = False, follow_links: bool = False, copy: bool = True
    ) -> DatasetBuilder:
        """Append rows to a table of the branch, whose other entries stay. A table that does not exist is created."""
        self._appends = True
        spec = self._table_spec(source, rewrite=rewrite, links=follow_links, copy=copy)
        return self._add("tables", name, replace(spec, appends=True))

    def _table_spec(self, source: TableInput, *, rewrite: bool, links: bool, copy: bool) -> TableSpec:
        if rewrite and not copy:
            raise BadInputError("rewrite=True writes the files again, and copy=False leaves them", hint="Choose one.")
        return TableSpec(source, rewrite, follow_links=links, in_place=None if copy else self._session.settings)

    def add_artifact(
        self,
        name: str,
        source: ArtifactInput | None,
        kind: str = "tar_shards",
        *,
        compression: str | None = None,
        shard_bytes: int | None = None,
        prefix: str | None = None,
        follow_links: bool = False,
    ) -> DatasetBuilder:
        """Add raw files: a directory, a list of files, or a mapping of member paths to files or bytes.

        None makes an artifact without files, for edits to add some.
        An `Artifact` of a dataset is published as it is. Its blobs are copied only to another store.
        `kind` is "tar_shards" (packed deterministically, `shard_bytes` each, or cut by content so that versions
        share most shards), "webdataset_shards" (tar files as they are) or "files" (each a blob of its own).
        Members are named by their path in the directory. If bound columns put the directory's name in front, so do
        member paths. `prefix` sets another beginning. Links that leave the directory are refused, or with
        `follow_links` followed.
        """
        return self._add("artifacts", name, ArtifactSpec(source, kind, compression, shard_bytes, prefix, follow_links))

    def add_episodes(
        self,
        name: str,
        source: EpisodesInput,
        *,
        compression: str = "none",
        time_chunk_steps: int = 0,
        follow_links: bool = False,
    ) -> DatasetBuilder:
        """Add episodes: a path, glob or directory of WShard files, `Episode` objects, or a list of these, in order.

        Files are validated and published byte for byte, each as one blob. `compression` and `time_chunk_steps`
        apply to `Episode` objects, which are saved like `save_wshard` does. Links that leave a directory are refused,
        or with `follow_links` followed.
        """
        return self._add("episodes", name, EpisodesSpec(source, compression, time_chunk_steps, follow_links))

    def add_tensors(self, name: str, source: TensorsInput) -> DatasetBuilder:
        """Add tensors: a mapping of arrays (numpy, torch, a `state_dict`), a `.safetensors` file, or a directory.

        A directory with `model.safetensors.index.json` is read as that index says. The source is never copied as a
        whole, and tensors that an earlier version has are not uploaded again.
        """
        return self._add("tensors", name, source)

    def bind(self, table: str, column: str, artifact: str, ref_type: str = "file") -> DatasetBuilder:
        """Declare that a column holds references into an artifact: `file`, `image`, `audio` or `video`.

        The column has member paths, or structs of `shard`, `offset`, `length` (and `xxh3` if known).
        `publish` looks up every value.
        """
        if (table, column) in self._bindings:
            raise BadInputError(f"column {column!r} of table {table!r} is already bound")
        self._bindings[table, column] = Binding(table, column, artifact, check_ref_type(ref_type))
        return self

    def plan(
        self, *, branch: str = MAIN, replace: bool = False, keep: bool = False, progress: Progress = silent
    ) -> PublishPlan:
        """Return what `publish` would do, or raise what it would raise. Reads the store and writes nothing to it."""
        mode = self._mode(replace=replace, keep=keep)
        head = self._find_head(branch)
        return self._plan(self._change_set(head, mode, {}, progress), head)

    def publish(
        self,
        message: str = "",
        *,
        branch: str = MAIN,
        label: str | None = None,
        author: str | None = None,
        metadata: JsonObject | None = None,
        expected_version: str | None = None,
        replace: bool = False,
        keep: bool = False,
        repair: bool = False,
        set_latest: bool = True,
        progress: Progress = silent,
        engine: EngineChoice = None,
        job: str | None = None,
    ) -> Published:
        """Upload missing blobs, then make this version the head of `branch`, exactly once.

        If the head has entries or bindings that the version lacks, nothing is published and a `BadInputError` lists
        them: `keep` adds them to the version, and `replace` publishes without them. `label` names the version
        permanently. With `expected_version`, any other head of the branch is a `ConflictError`; the empty text expects
        a branch without a version. `repair` reads blobs
        that are already stored and replaces corrupt ones. `metadata` is free text about the version that does not
        change its hash. With `set_latest=False` the branch does not move, and the version is found by its hash or its
        label. All checks come before the upload.

        With an `engine` ("processes", "ray" or "ray://HOST:PORT"), workers pack and store the files of artifacts, which
        they must see under the same paths. The version is the same. An interrupted publish that is repeated goes on;
        `job` names it, by default after the dataset.
        """
        check_commit_texts(author or self._session.settings.author, message)
        _check_names(branch, label)
        encode_manifest(Manifest(self._dataset_id, metadata=metadata or {}))  # fails early for invalid metadata
        mode = self._mode(replace=replace or not (set_latest or keep or self._appends), keep=keep)
        session = self._session
        with ExitStack() as stack:
            running = open_job(session, JobOptions(engine, job), self._dataset_id, "publish", stack)
            head, is_marked = self._find_state(branch)
            check_expected(self._dataset_id, head.version if head else None, expected_version)
            change = self._change_set(head, mode, metadata or {}, progress, running)
            self._check_label(label, version_of(change.build(head).manifest))
            txn = change.transaction(branch, author or session.settings.author, message)
            if not is_marked:
                mark_store(session.writer, session.pause)
            upload = StagedUpload(session, list(change.staged.blobs()), self._staging_dir, progress)
            done = self._commit(change, head, txn, upload, _CommitTerms(expected_version, label, repair, set_latest))
            if running is not None:
                running.finish()
            return Published(
                dataset_id=self._dataset_id,
                version=done.version,
                commit=done.commit,
                branch=branch,
                changed=done.changed,
                uploaded_files=upload.uploaded_files,
                uploaded_bytes=upload.uploaded_bytes,
            )

    def _commit(
        self, change: ChangeSet, head: Head | None, txn: Transaction, upload: StagedUpload, terms: _CommitTerms
    ) -> Committed:
        """Upload the missing blobs and commit, while holding a lease."""
        session, moves_branch = self._session, terms.set_latest
        with session.lease(f"publish {self._dataset_id}", txn.txn_id) as lease:
            change = change.placed(Placement(lease.condemned, session.new_generation, moves_branch=moves_branch))
            with _staging_errors(self._staging_dir()):
                upload.begin(change.build(head).manifest.generations, repair=terms.repair)
            propose = change.proposal(terms.expected_version, lambda built: upload.store(built.manifest.generations))
            if not moves_branch:
                done = store_version(session.writer, txn, propose, session.pause)
            else:
                release = functools.partial(lease.release, session.pause) if terms.label is None else None
                done = commit(
                    session.writer, txn, propose, session.pause, check_lease=lease.check, on_committed=release
                )
            if terms.label is not None:
                target, time = VersionRef(self._dataset_id, done.version, done.commit), session.timestamp()
                create_label(session.writer, target, terms.label, time, session.pause, check_lease=lease.check)
        return done

    def _add(self, section: str, name: str, source: object) -> DatasetBuilder:
        noun = payload_kind(section).noun
        check_entry_name(name, noun)
        if name in self._sources.get(section, {}):
            raise BadInputError(f"{noun} {name!r} was added twice", hint="Pass all sources in one call, as a list.")
        self._sources.setdefault(section, {})[name] = source
        self._staged = None
        return self

    def _mode(self, *, replace: bool, keep: bool) -> ChangeMode:
        if replace and (keep or self._appends):
            kept_by = "keep=True" if keep else "append_table"
            raise BadInputError(f"replace=True does not mix with {kept_by}, which keeps the head", hint="Choose one.")
        return ChangeMode(keeps=keep or self._appends, appends=self._appends, may_remove=replace)

    def _plan(self, change: ChangeSet, head: Head | None) -> PublishPlan:
        """Check the change against the head, then look for the blobs in the store."""
        manifest, staged = change.build(head).manifest, change.staged
        version, generations = version_of(manifest), manifest.generations
        present = find_present(self._session.writer, distinct_blobs(staged.blobs()), generations)
        return PublishPlan(
            dataset_id=self._dataset_id,
            version=None if change.mode.keeps else version,
            counts=staged.item_counts(),
            files=plan_upload(staged.blobs(), present, generations),
        )

    def _change_set(
        self, head: Head | None, mode: ChangeMode, metadata: JsonObject, progress: Progress, job: Job | None = None
    ) -> ChangeSet:
        """Stage the sources, add what their references need, and check all bindings that the head cannot change."""
        base = Manifest(self._dataset_id)
        if head is not None and mode.keeps:
            base = self._session.catalog.manifest(VersionRef(self._dataset_id, head.version))
        bindings = list(self._bindings.values())
        check_names(bindings, base.tables.keys() | self._sources.get("tables", {}).keys(), None)
        entries = self._stage(progress, job)
        with _staging_errors(self._staging_dir()):
            staged = carry_references(entries, bindings, base)
            if not mode.keeps:
                check_names(staged.bindings, entries.get("tables", {}), staged.entries.get("artifacts", {}))
                check_bindings(staged.bindings, staged, None)
        return ChangeSet(self._session, self._dataset_id, staged, mode, metadata)

    def _stage(self, progress: Progress, job: Job | None) -> dict[str, dict[str, StagedEntry]]:
        """Stage all sources, once: iterators cannot be read twice."""
        if self._staged is None:
            if not self._sources:
                raise BadInputError(
                    f"{self._dataset_id} has no table, artifact, episodes or tensors to publish",
                    hint="Call add_table first.",
                )
            entries: dict[str, dict[str, StagedEntry]] = {}
            context = StageContext(self._staging_dir, progress, job=job)
            with _staging_errors(self._staging_dir()):
                for section in Manifest(self._dataset_id).sections():  # tables first: artifacts need bound columns
                    if section in self._sources:
                        entries[section] = {}
                        for name, source in self._sources[section].items():
                            entries[section][name] = self._stage_entry(section, name, source, entries, context)
            self._staged = entries
        return self._staged

    def _stage_entry(
        self, section: str, name: str, source: object, done: dict[str, dict[str, StagedEntry]], context: StageContext
    ) -> StagedEntry:
        bindings, tables = list(self._bindings.values()), done.get("tables", {})
        context = replace(context, referenced_paths=lambda artifact: sample_paths(bindings, artifact, tables))
        return payload_kind(section).stage(name, source, context)

    @property
    def staging_dir(self) -> Path:
        """A directory for files that importers write before the publish. It is removed with the builder."""
        return self._staging_dir()

    def _staging_dir(self) -> Path:
        """Return a directory that is removed with the builder."""
        if self._staging is None:
            cache = self._session.settings.cache_dir
            try:
                self._staging = StagingDirectory(cache)
            except OSError as error:
                raise StorageError(
                    f"no staging directory can be created in {cache}: {error.strerror}",
                    hint="Set WARP_CACHE_DIR to another directory.",
                ) from error
            weakref.finalize(self, self._staging.remove)
        return self._staging.path

    def _find_state(self, branch: str) -> tuple[Head | None, bool]:
        """Return the head of the branch, and whether the store has its marker, which is read at the same time."""
        with IO_POOL.executor(1) as executor:
            reading = executor.submit(read_marker, self._session.writer)
            head = self._find_head(branch)
        return head, reading.result() is not None

    def _find_head(self, branch: str) -> Head | None:
        """Return the head of the branch, or None for a new dataset. Only `main` is created by a publish."""
        if isinstance(self._session.writer, OfflineStore):
            self._session.writer.refuse_change(self._dataset_id)
        head = find_head(self._session.writer, self._dataset_id, branch)
        if head is None and branch != MAIN:
            raise NotFoundError(
                f"{self._dataset_id} has no branch {branch!r}",
                hint=f"Create it first: `warp branch {self._dataset_id} {branch}`, or Dataset.branch({branch!r}).",
                kind=ErrorKind.REF_NOT_FOUND,
            )
        return head

    def _check_label(self, label: str | None, version: str) -> None:
        """Refuse a label of another version before the upload. `create_label` checks again after the commit."""
        taken = self._session.catalog.label(self._dataset_id, label) if label is not None else None
        if taken is not None and taken.version != version:
            raise AlreadyExistsError(
                f"label {label!r} of {self._dataset_id} already names version {taken.version[:12]}",
                hint="Labels never move: choose another name.",
            )


@contextmanager
def _staging_errors(directory: Path) -> Iterator[None]:
    """Translate an error of the operating system, such as a full disk, into a typed one."""
    try:
        yield
    except WarpError:
        raise
    except OSError as error:
        source = None if error.filename is None else Path(error.filename)
        if source is not None and not source.is_relative_to(directory):
            raise InvalidSourceError(f"{source} cannot be read: {error.strerror or error}") from error
        is_full = error.errno in _FULL
        reason = error if error.errno is None else os.strerror(error.errno)  # Arrow writes a longer text
        raise StorageError(
            f"the staging directory {directory} cannot be written: {reason}",
            hint="Free some space, or set WARP_CACHE_DIR to a directory on a larger disk." if is_full else None,
            kind=ErrorKind.STORE_FULL if is_full else None,
        ) from error


def _check_names(branch: str, label: str | None) -> None:
    check_ref_name(branch, "branch")
    if label is not None:
        check_ref_name(label, "label")
