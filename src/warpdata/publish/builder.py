"""How a new version appears: collect, write, upload, commit.

Killed at any point it leaves the previous version as it was, and can be run again: blobs already
there are not sent twice. Implements docs/specs/publish.md.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    InvalidNameError,
    LimitExceededError,
    RefNotFoundError,
    StorageError,
)
from warpdata.kinds.artifacts import ArtifactInput
from warpdata.limits import MAX_MESSAGE_LENGTH, MAX_NAME_LENGTH
from warpdata.primitives.hashing import Blob
from warpdata.primitives.progress import Progress, ProgressCounter, silent
from warpdata.publish.artifacts import ArtifactSpec, stage_media
from warpdata.publish.bindings import check_ref_type
from warpdata.publish.change_set import Change
from warpdata.publish.episodes import EpisodesInput, EpisodesSpec, stage_episodes
from warpdata.publish.plan import PublishPlan, Staged, StagedTensors, plan_upload
from warpdata.publish.tables import TableInput, stage_table
from warpdata.publish.upload import drop_damaged, find_likely_present, find_present, fingerprint_all, upload_files
from warpdata.repository.catalog import (
    MAIN,
    VersionRef,
    check_dataset_id,
    check_ref_name,
    commit,
    create_label,
    mark_store,
)
from warpdata.repository.manifest import ENTRY_NAME, Binding, JsonObject, Manifest, encode_manifest
from warpdata.session import Session, connect
from warpdata.settings import Settings
from warpdata.storage import Reader

if TYPE_CHECKING:
    from warpdata.publish.tensors import TensorsInput

__all__ = ["DatasetBuilder", "Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """The version now at the head of the branch; `changed` is False if it already was."""

    dataset_id: str
    version: str
    commit: str
    branch: str
    changed: bool
    uploaded_files: int
    uploaded_bytes: int


class DatasetBuilder:
    """Collects tables, artifacts, episodes and tensors, then publishes them as one version.

    With `add_table` the version holds exactly what was added. With `append_table` it is the head of
    the branch plus the new rows; the two do not mix. Nothing is written before `publish`.
    """

    def __init__(self, dataset_id: str, store: str | Session | None = None, *, settings: Settings | None = None):
        self._dataset_id = check_dataset_id(dataset_id)
        self._link = store if isinstance(store, Session) else connect(store, settings)
        self._inputs: dict[str, tuple[TableInput, bool]] = {}
        self._artifacts: dict[str, ArtifactSpec] = {}
        self._episodes: dict[str, EpisodesSpec] = {}
        self._tensors: dict[str, TensorsInput] = {}
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._appends: bool | None = None
        self._staged: Staged | None = None
        self._folder: Path | None = None

    def add_table(self, name: str, source: TableInput, *, rewrite: bool = False) -> DatasetBuilder:
        """A table from files (kept byte for byte), Arrow data, frames, or a list of these.

        `rewrite` reads the files and writes them anew: one schema, even row groups, page checksums.
        """
        return self._collect(name, source, rewrite, appends=False)

    def append_table(self, name: str, source: TableInput, *, rewrite: bool = False) -> DatasetBuilder:
        """Rows to add after those the table has; a table that is not there yet is made."""
        return self._collect(name, source, rewrite, appends=True)

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
        """Raw files: a folder, a list of files, or a mapping of member paths to files or bytes.

        `kind` is "tar_shards" (packed, the same files always into the same bytes; `shard_bytes` each, or cut so
        that a version shares most shards with one that has other files), "webdataset_shards" (tar files taken
        as they are) or "files" (each a blob of its own).
        Members of a folder are named by their path in it; with the folder's own name in front if the
        column bound to it writes them so. `prefix` puts something else there.
        """
        _check_entry_name(name, "an artifact name")
        if name in self._artifacts:
            raise BadInputError(f"artifact {name!r} was added twice", hint="Give it all its files at once.")
        self._set_mode(appends=False)
        self._artifacts[name] = ArtifactSpec(source, kind, compression, shard_bytes, prefix)
        return self

    def add_episodes(
        self, name: str, source: EpisodesInput, *, compression: str = "none", time_chunk_steps: int = 0
    ) -> DatasetBuilder:
        """Episodes in WShard files: a path, a glob, a folder, `Episode` objects, or a list of these, in that order.

        Files are checked whole and kept byte for byte, each as one blob. `compression` and `time_chunk_steps`
        are for objects, which are saved here, as `save_wshard` does.
        """
        _check_entry_name(name, "a name for episodes")
        if name in self._episodes:
            raise BadInputError(f"episodes {name!r} were added twice", hint="Pass a list.")
        self._set_mode(appends=False)
        self._episodes[name] = EpisodesSpec(source, compression, time_chunk_steps)
        return self

    def add_tensors(self, name: str, source: TensorsInput) -> DatasetBuilder:
        """Tensors: a mapping of arrays (numpy, torch, a `state_dict`), a `.safetensors` file, or a folder of them.

        A folder with a list (`model.safetensors.index.json`) is taken as the list says. Nothing is copied
        whole. A tensor that did not change since an earlier version is not sent again.
        """
        _check_entry_name(name, "a name for tensors")
        if name in self._tensors:
            raise BadInputError(f"tensors {name!r} were added twice", hint="Give them all at once.")
        self._set_mode(appends=False)
        self._tensors[name] = source
        return self

    def bind(self, table: str, column: str, artifact: str, ref_type: str = "file") -> DatasetBuilder:
        """Say that a column holds references into an artifact: `file`, `image`, `audio` or `video`.

        The column has member paths, or structs of `shard`, `offset`, `length` (and `xxh3` if known).
        Every value is looked up when the dataset is published.
        """
        if (table, column) in self._bindings:
            raise BadInputError(f"column {column!r} of table {table!r} is bound already")
        self._set_mode(appends=False)
        self._bindings[table, column] = Binding(table, column, artifact, check_ref_type(ref_type))
        return self

    def plan(self, *, progress: Progress = silent) -> PublishPlan:
        """What `publish` would do, having looked at the store but written nothing to it."""
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
        progress: Progress = silent,
    ) -> Published:
        """Upload what is missing, then make this the head of `branch`, exactly once.

        `label` names the version for good. `expected_version` refuses with `ConflictError` unless the
        branch stands there. `repair` re-reads blobs that are already stored and sends damaged ones
        anew. `metadata` are words about the version; they do not change its identity.
        """
        _check_words(message, branch, label)
        encode_manifest(Manifest(self._dataset_id, metadata=metadata or {}))  # words that can not be stored fail early
        session = self._link
        plan = self._plan(progress, find_likely_present if not repair else find_present)
        self._check_label(label, plan.version)
        self._check_branch(branch)
        mark_store(session.writer, session.pause)
        if repair and drop_damaged(session.writer, [file.fingerprint.blob for file in plan.files if file.is_present]):
            plan = self.plan(progress=progress)
        tally = ProgressCounter(progress, "upload", plan.total_bytes, len(plan.files))
        upload_files(session.writer, plan.files, self._staging_folder(), tally, session.pause)
        change = self._change(self._stage(progress), metadata or {})
        txn = change.transaction(branch, author or session.settings.author, message)
        done = commit(session.writer, txn, change.proposal(expected_version), session.pause)
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

    def _plan(self, progress: Progress, look: Callable[[Reader, Sequence[Blob]], set[str]]) -> PublishPlan:
        staged = self._stage(progress)
        present = look(self._link.writer, list(dict.fromkeys(part.fingerprint.blob for part in staged.blobs())))
        version = None if self._appends else self._change(staged, {}).replacement_version()
        return PublishPlan(
            dataset_id=self._dataset_id,
            version=version,
            tables={name: sum(file.source.row_count for file in files) for name, files in staged.tables.items()},
            files=plan_upload(staged.blobs(), present),
            artifacts={name: artifact.member_count for name, artifact in staged.artifacts.items()},
            episodes={name: episodes.episode_count for name, episodes in staged.episodes.items()},
            tensors={name: tensors.tensor_count for name, tensors in staged.tensors.items()},
        )

    def _collect(self, name: str, source: TableInput, rewrite: bool, *, appends: bool) -> DatasetBuilder:
        _check_entry_name(name, "a table name")
        if name in self._inputs:
            raise BadInputError(f"table {name!r} was added twice", hint="Pass a list to make one table of many parts.")
        self._set_mode(appends=appends)
        self._inputs[name] = (source, rewrite)
        return self

    def _set_mode(self, *, appends: bool) -> None:
        if self._appends not in (None, appends):
            raise BadInputError("adding and append_table do not mix in one publish", hint="Publish twice.")
        self._appends = appends
        self._staged = None

    def _stage(self, progress: Progress) -> Staged:
        """Write what is not a file yet and fingerprint everything, once: iterators can not be read twice."""
        if self._staged is None:
            if not (self._inputs or self._artifacts or self._episodes or self._tensors):
                raise BadInputError(
                    f"{self._dataset_id} has no table, artifact, episode or tensor to publish",
                    hint="Call add_table first.",
                )
            folder = self._staging_folder()
            sources = {
                name: stage_table(source, folder, name, rewrite=rewrite)
                for name, (source, rewrite) in self._inputs.items()
            }
            tables = fingerprint_all(sources, progress)
            staged = stage_media(tables, self._artifacts, tuple(self._bindings.values()), folder, progress)
            episodes = {name: stage_episodes(name, spec, folder, progress) for name, spec in self._episodes.items()}
            self._staged = replace(staged, episodes=episodes, tensors=self._stage_tensors(folder, progress))
        return self._staged

    def _stage_tensors(self, folder: Path, progress: Progress) -> dict[str, StagedTensors]:
        if not self._tensors:
            return {}
        from warpdata.publish.tensors import stage_tensors  # needs numpy

        return {name: stage_tensors(name, source, folder, progress) for name, source in self._tensors.items()}

    def _staging_folder(self) -> Path:
        """A folder that goes away with the builder."""
        if self._folder is not None:
            return self._folder
        cache = self._link.settings.cache_dir
        try:
            cache.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix="staging-", dir=cache))
        except OSError as error:
            raise StorageError(
                f"no staging folder can be made in {cache}: {error.strerror}", hint="Set WARP_CACHE_DIR elsewhere."
            ) from error
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._folder = folder
        return folder

    def _change(self, staged: Staged, metadata: JsonObject) -> Change:
        return Change(self._link, self._dataset_id, staged, metadata, appends=bool(self._appends))

    def _check_branch(self, branch: str) -> None:
        """A branch is made on purpose, from a version; only `main` begins by itself."""
        if branch != MAIN and branch not in self._link.catalog.branches(self._dataset_id):
            raise RefNotFoundError(
                f"{self._dataset_id} has no branch {branch!r}",
                hint=f"Make it first: `warp branch {self._dataset_id} {branch}`, or Dataset.branch({branch!r}).",
            )

    def _check_label(self, label: str | None, version: str | None) -> None:
        """Refuse before anything is sent; the label is made, and checked again, at the end."""
        taken = self._link.catalog.label(self._dataset_id, label) if label is not None else None
        if taken is not None and taken.version != version:
            raise AlreadyExistsError(
                f"label {label!r} of {self._dataset_id} already names version {taken.version[:12]}",
                hint="Labels never move: choose another name.",
            )


def _check_entry_name(name: str, what: str) -> None:
    if not ENTRY_NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise InvalidNameError(f"{name[:200]!r} is not {what}", hint="Use letters, digits, underscore, dot and dash.")


def _check_words(message: str, branch: str, label: str | None) -> None:
    check_ref_name(branch, "branch")
    if label is not None:
        check_ref_name(label, "label")
    if len(message) > MAX_MESSAGE_LENGTH:
        raise LimitExceededError(f"the message has {len(message)} characters; the limit is {MAX_MESSAGE_LENGTH}")
