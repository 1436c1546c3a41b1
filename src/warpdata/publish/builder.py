"""Builders: collect sources, stage them, upload blobs, commit a version.

A publish that is killed at any point leaves the previous version intact and can be run again; blobs that are
already stored are not uploaded twice. Implements docs/specs/publish.md.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ErrorKind,
    LimitExceededError,
    NotFoundError,
    StorageError,
)
from warpdata.kinds import StageContext, StagedEntry, payload_kind
from warpdata.kinds.artifacts import ArtifactInput, ArtifactSpec, StagedArtifact
from warpdata.kinds.episodes import EpisodesInput, EpisodesSpec
from warpdata.kinds.tables import TableInput, TableSpec
from warpdata.limits import MAX_MESSAGE_LENGTH, MAX_NAME_LENGTH
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.primitives.reprs import short_repr
from warpdata.publish.bindings import check_names, check_ref_type, check_staged, sample_paths
from warpdata.publish.change_set import ChangeSet
from warpdata.publish.manifest_builder import StagedVersion
from warpdata.publish.upload import (
    PublishPlan,
    delete_corrupt,
    find_likely_present,
    find_present,
    plan_upload,
    upload_files,
)
from warpdata.repository.catalog import (
    MAIN,
    VersionRef,
    check_dataset_id,
    check_ref_name,
    commit,
    create_label,
    mark_store,
    store_version,
)
from warpdata.repository.manifest import ENTRY_NAME, Binding, JsonObject, Manifest, encode_manifest
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage import Reader

if TYPE_CHECKING:
    from warpdata.kinds.tensors import TensorsInput

__all__ = ["DatasetBuilder", "Published"]


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


class DatasetBuilder:
    """Collects tables, artifacts, episodes and tensors, then publishes them as one version.

    With `add_table` the version has exactly the entries that were added. With `append_table` it is the head of the
    branch plus the new rows; the two do not mix. Nothing is written before `publish`.
    """

    def __init__(self, dataset_id: str, store: str | Session | None = None, *, settings: Settings | None = None):
        self._dataset_id = check_dataset_id(dataset_id)
        self._session = store if isinstance(store, Session) else connect(store, settings)
        self._sources: dict[str, dict[str, Any]] = {}
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._appends: bool | None = None
        self._staged: StagedVersion | None = None
        self._directory: Path | None = None

    def __repr__(self) -> str:
        added = {section: list(sources) for section, sources in self._sources.items()}
        appends = self._appends or None
        return short_repr("DatasetBuilder", self._dataset_id, store=self._session.reader.url, appends=appends, **added)

    def add_table(self, name: str, source: TableInput, *, rewrite: bool = False) -> DatasetBuilder:
        """Add a table from files (published byte for byte), Arrow data, data frames, or a list of these.

        `rewrite` reads the files and writes them again: one schema, even row groups, page checksums.
        """
        return self._add("tables", name, TableSpec(source, rewrite))

    def append_table(self, name: str, source: TableInput, *, rewrite: bool = False) -> DatasetBuilder:
        """Append rows to a table of the branch. A table that does not exist is created."""
        return self._add("tables", name, TableSpec(source, rewrite), appends=True)

    def add_artifact(
        self,
        name: str,
        source: ArtifactInput,
        kind: str = "tar_shards",
        *,
        compression: str | None = None,
        shard_bytes: int | None = None,
        prefix: str | None = None,
    ) -> DatasetBuilder:
        """Add raw files: a directory, a list of files, or a mapping of member paths to files or bytes.

        `kind` is "tar_shards" (packed deterministically, `shard_bytes` each, or cut by content so that versions
        share most shards), "webdataset_shards" (tar files as they are) or "files" (each a blob of its own).
        Members are named by their path in the directory. If bound columns put the directory's name in front, so do
        member paths. `prefix` sets another beginning.
        """
        return self._add("artifacts", name, ArtifactSpec(source, kind, compression, shard_bytes, prefix))

    def add_episodes(
        self, name: str, source: EpisodesInput, *, compression: str = "none", time_chunk_steps: int = 0
    ) -> DatasetBuilder:
        """Add episodes: a path, glob or directory of WShard files, `Episode` objects, or a list of these, in order.

        Files are validated and published byte for byte, each as one blob. `compression` and `time_chunk_steps`
        apply to `Episode` objects, which are saved like `save_wshard` does.
        """
        return self._add("episodes", name, EpisodesSpec(source, compression, time_chunk_steps))

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
        self._set_mode(appends=False)
        self._bindings[table, column] = Binding(table, column, artifact, check_ref_type(ref_type))
        return self

    def plan(self, *, progress: Progress = silent) -> PublishPlan:
        """Return what `publish` would do. Reads the store and writes nothing to it."""
        return self._plan(progress, find_present)

    def publish(
        self,
        message: str = "",
        *,
        branch: str = MAIN,
        label: str | None = None,
        author: str | None = None,
        metadata: JsonObject | None = None,
        expected_version: str | None = None,
        repair: bool = False,
        set_latest: bool = True,
        progress: Progress = silent,
    ) -> Published:
        """Upload missing blobs, then make this version the head of `branch`, exactly once.

        `label` names the version permanently. With `expected_version`, any other head of the branch is a
        `ConflictError`. `repair` reads blobs that are already stored and replaces corrupt ones. `metadata` is free
        text about the version that does not change its hash. With `set_latest=False` the branch does not move, and
        the version is found by its hash or its label.
        """
        _check_texts(message, branch, label)
        encode_manifest(Manifest(self._dataset_id, metadata=metadata or {}))  # fails early for invalid metadata
        session = self._session
        plan = self._plan(progress, find_likely_present if not repair else find_present)
        self._check_label(label, plan.version)
        self._check_branch(branch)
        mark_store(session.writer, session.pause)
        if repair and delete_corrupt(session.writer, [file.fingerprint.blob for file in plan.files if file.is_present]):
            plan = self.plan(progress=progress)
        counter = ProgressCounter(progress, "upload", plan.total_bytes, len(plan.files))
        upload_files(session.writer, plan.files, self._staging_dir(), counter, session.pause)
        change = self._change_set(self._stage(progress), metadata or {})
        txn = change.transaction(branch, author or session.settings.author, message)
        store = commit if set_latest else store_version
        done = store(session.writer, txn, change.proposal(expected_version), session.pause)
        if label is not None:
            target = VersionRef(self._dataset_id, done.version, done.commit)
            create_label(session.writer, target, label, session.timestamp(), session.pause)
        return Published(
            dataset_id=self._dataset_id,
            version=done.version,
            commit=done.commit,
            branch=branch,
            changed=done.changed,
            uploaded_files=plan.upload_files,
            uploaded_bytes=plan.upload_bytes,
        )

    def _add(self, section: str, name: str, source: object, *, appends: bool = False) -> DatasetBuilder:
        noun = payload_kind(section).noun
        if not ENTRY_NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
            raise BadInputError(
                f"{name[:200]!r} is not a valid name for {noun}",
                hint="Use letters, digits, underscore, dot and dash.",
                kind=ErrorKind.INVALID_NAME,
            )
        if name in self._sources.get(section, {}):
            raise BadInputError(f"{noun} {name!r} was added twice", hint="Pass all sources in one call, as a list.")
        self._set_mode(appends=appends)
        self._sources.setdefault(section, {})[name] = source
        return self

    def _set_mode(self, *, appends: bool) -> None:
        if self._appends not in (None, appends):
            raise BadInputError("append_table and other additions do not mix in one publish", hint="Publish twice.")
        self._appends = appends
        self._staged = None

    def _plan(self, progress: Progress, find: Callable[[Reader, Sequence[Blob]], set[str]]) -> PublishPlan:
        staged = self._stage(progress)
        present = find(self._session.writer, list(dict.fromkeys(blob.fingerprint.blob for blob in staged.blobs())))
        return PublishPlan(
            dataset_id=self._dataset_id,
            version=None if self._appends else self._change_set(staged, {}).replacement_version(),
            counts=staged.item_counts(),
            files=plan_upload(staged.blobs(), present),
        )

    def _stage(self, progress: Progress) -> StagedVersion:
        """Stage all sources, once: iterators cannot be read twice."""
        if self._staged is None:
            if not self._sources:
                raise BadInputError(
                    f"{self._dataset_id} has no table, artifact, episodes or tensors to publish",
                    hint="Call add_table first.",
                )
            bindings = tuple(self._bindings.values())
            check_names(bindings, self._sources.get("tables", {}), self._sources.get("artifacts", {}))
            entries: dict[str, dict[str, StagedEntry]] = {}
            for section in Manifest(self._dataset_id).sections():  # tables first: artifacts need their bound columns
                if section in self._sources:
                    entries[section] = {}
                    for name, source in self._sources[section].items():
                        entries[section][name] = self._stage_entry(section, name, source, entries, progress)
            self._staged = StagedVersion(entries, bindings)
        return self._staged

    def _stage_entry(
        self, section: str, name: str, source: object, done: dict[str, dict[str, StagedEntry]], progress: Progress
    ) -> StagedEntry:
        bindings, tables = list(self._bindings.values()), done.get("tables", {})
        context = StageContext(self._staging_dir(), progress, lambda artifact: sample_paths(bindings, artifact, tables))
        staged = payload_kind(section).stage(name, source, context)
        if isinstance(staged, StagedArtifact):
            check_staged(bindings, name, staged, tables)
            return replace(staged, members=())
        return staged

    def _staging_dir(self) -> Path:
        """Return a directory that is removed with the builder."""
        if self._directory is not None:
            return self._directory
        cache = self._session.settings.cache_dir
        try:
            cache.mkdir(parents=True, exist_ok=True)
            directory = Path(tempfile.mkdtemp(prefix="staging-", dir=cache))
        except OSError as error:
            raise StorageError(
                f"no staging directory can be created in {cache}: {error.strerror}",
                hint="Set WARP_CACHE_DIR to another directory.",
            ) from error
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._directory = directory
        return directory

    def _change_set(self, staged: StagedVersion, metadata: JsonObject) -> ChangeSet:
        return ChangeSet(self._session, self._dataset_id, staged, metadata, appends=bool(self._appends))

    def _check_branch(self, branch: str) -> None:
        """Require an existing branch. Only `main` is created by a publish."""
        if branch != MAIN and branch not in self._session.catalog.branches(self._dataset_id):
            raise NotFoundError(
                f"{self._dataset_id} has no branch {branch!r}",
                hint=f"Create it first: `warp branch {self._dataset_id} {branch}`, or Dataset.branch({branch!r}).",
                kind=ErrorKind.REF_NOT_FOUND,
            )

    def _check_label(self, label: str | None, version: str | None) -> None:
        """Refuse a label of another version before the upload. `create_label` checks again after the commit."""
        taken = self._session.catalog.label(self._dataset_id, label) if label is not None else None
        if taken is not None and taken.version != version:
            raise AlreadyExistsError(
                f"label {label!r} of {self._dataset_id} already names version {taken.version[:12]}",
                hint="Labels never move: choose another name.",
            )


def _check_texts(message: str, branch: str, label: str | None) -> None:
    check_ref_name(branch, "branch")
    if label is not None:
        check_ref_name(label, "label")
    if len(message) > MAX_MESSAGE_LENGTH:
        raise LimitExceededError(f"the message has {len(message)} characters; the limit is {MAX_MESSAGE_LENGTH}")
