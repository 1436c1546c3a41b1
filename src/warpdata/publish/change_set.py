"""What a publish does to a branch: replace everything, or append. Knows how to rebase onto another head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpdata.datasets import open_artifact
from warpdata.errors import ConflictError, ObjectNotFoundError, SchemaMismatchError
from warpdata.formats.parquet import ShardOpener
from warpdata.kinds.artifacts import Artifact, ArtifactEntry
from warpdata.kinds.episodes import EpisodesEntry
from warpdata.kinds.tables import Table
from warpdata.kinds.tensors import TensorsEntry
from warpdata.primitives.hashing import blob_key
from warpdata.publish.bindings import Target, check_binding
from warpdata.publish.manifest_builder import Addition, Layout, lay_out
from warpdata.publish.plan import Staged, StagedArtifact, StagedBlob, StagedEpisodes, StagedTensors
from warpdata.query import check_same_schema
from warpdata.repository.catalog import Head, Propose, Transaction, VersionRef, put_create_only, put_manifest
from warpdata.repository.manifest import (
    JsonObject,
    LoadPage,
    Manifest,
    Page,
    Payload,
    Shard,
    ShardList,
    iter_shards,
    version_of,
)
from warpdata.session import Session

__all__ = ["Change"]

_FIT = "Cast the rows to the table's types, or publish the whole table anew with add_table."


@dataclass(frozen=True)
class Change:
    """A replacement is re-parented when another commit was first; an append is laid onto that commit."""

    session: Session
    dataset_id: str
    staged: Staged
    metadata: JsonObject
    appends: bool

    def transaction(self, branch: str, author: str, message: str) -> Transaction:
        return Transaction(
            dataset_id=self.dataset_id,
            branch=branch,
            txn_id=self.session.new_id(),
            operation="append" if self.appends else "replace",
            author=author,
            message=message,
            time=self.session.timestamp(),
        )

    def replacement_version(self) -> str:
        """The version a replacement gives, whatever stands there."""
        return version_of(self._onto(Manifest(self.dataset_id)).manifest)

    def proposal(self, expected_version: str | None) -> Propose:
        seen: set[str | None] = set()

        def propose(head: Head | None) -> Manifest | None:
            current = head.version if head else None
            if expected_version is not None and current != expected_version:
                raise ConflictError(
                    f"{self.dataset_id} stands at {current or 'nothing'}, not at {expected_version}",
                    hint="Look at what changed, then publish against the new version.",
                )
            try:
                layout = self._onto(self._base(head))
            except SchemaMismatchError as error:
                if not seen:
                    raise
                raise ConflictError(f"another commit changed the table: {error.message}") from error
            seen.add(current)
            for digest, data in layout.new_pages.items():
                self._put_page(digest, data)
            if not self.appends and version_of(layout.manifest) == current:
                put_manifest(self.session.writer, layout.manifest, self.session.pause)
                return None
            return layout.manifest

        return propose

    def _base(self, head: Head | None) -> Manifest:
        if head is None or not self.appends:
            return Manifest(self.dataset_id)
        resolved = VersionRef(self.dataset_id, head.version)
        base = self.session.catalog.manifest(resolved)
        for name, files in self.staged.tables.items():
            entry = base.tables.get(name)
            if entry is not None and files:
                stored = Table(
                    name, entry, ShardOpener(self.session.reader), self._load_page, self.session.settings
                ).schema()
                check_same_schema(stored, f"table {name!r}", files[0].source.schema, "the rows to append", _FIT)
        for binding in base.bindings:
            if self.staged.tables.get(binding.table):
                artifact = open_artifact(self.session, resolved, base, binding.artifact, self._load_page)
                check_binding(binding, self.staged.tables[binding.table], _target(artifact, self._load_page))
        return base

    def _put_page(self, digest: str, data: bytes) -> None:
        """Store a page, or mend the stored one if it is damaged."""
        writer, key = self.session.writer, blob_key(digest)
        if put_create_only(writer, key, data, self.session.pause):
            return
        try:
            is_valid = writer.read(key).data == data
        except ObjectNotFoundError:
            is_valid = False
        if not is_valid:
            writer.replace(key, data)

    def _onto(self, base: Manifest) -> Layout:
        return lay_out(base, _addition(self.staged), self.metadata, self._load_page)

    def _load_page(self, page: Page) -> bytes:
        return self.session.catalog.load_page(page)


def _target(artifact: Artifact, load_page: LoadPage) -> Target:
    first = next(artifact.members(), None)
    return Target(
        contains=artifact.__contains__,
        shard_bytes=[shard.byte_size for shard in iter_shards(artifact.entry.shards, load_page)],
        example=first.path if first else "",
    )


def _addition(staged: Staged) -> Addition:
    return Addition(
        tables={
            name: (files[0].source.schema.names if files else (), [file.shard() for file in files])
            for name, files in staged.tables.items()
        },
        artifacts={name: _artifact(artifact) for name, artifact in staged.artifacts.items()},
        bindings=staged.bindings,
        episodes={name: _episodes(episodes) for name, episodes in staged.episodes.items()},
        tensors={name: _tensors(tensors) for name, tensors in staged.tensors.items()},
    )


def _artifact(staged: StagedArtifact) -> tuple[Payload, list[Shard]]:
    entry = ArtifactEntry(
        kind=staged.kind,
        shards=ShardList(),
        index=staged.index.fingerprint.blob,
        index_footer=staged.index_footer,
        member_count=staged.member_count,
        compression=staged.compression,
    )
    return entry.payload(), _as_shards(staged.shards)


def _episodes(staged: StagedEpisodes) -> tuple[Payload, list[Shard]]:
    shards = _as_shards(staged.files)
    entry = EpisodesEntry(
        shards=ShardList(),
        index=staged.index.fingerprint.blob,
        index_footer=staged.index_footer,
        episode_count=staged.episode_count,
        step_count=staged.step_count,
        check_bytes=staged.check_bytes,
        file_count=None if len(shards) == staged.episode_count else len(shards),
    )
    return entry.payload(), shards


def _tensors(staged: StagedTensors) -> tuple[Payload, list[Shard]]:
    entry = TensorsEntry(ShardList(), staged.index.fingerprint.blob, staged.artifact_id, staged.tensor_count)
    return entry.payload(), _as_shards(staged.shards)


def _as_shards(parts: Sequence[StagedBlob]) -> list[Shard]:
    return [Shard(blob.hash, blob.byte_size) for blob in (part.fingerprint.blob for part in parts)]
