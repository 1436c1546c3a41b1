"""Check of integrity: the files of every named version, looked up in the store, and read on request.

A version with missing files is recorded as broken. Implements "Integrity" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpdata.collections.records import BrokenRecord, RecordStore
from warpdata.collections.states import VersionState, read_state
from warpdata.collections.tables import FILES
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import ObjectNotFoundError
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.repository.catalog import Address
from warpdata.repository.manifest import canonical_json
from warpdata.storage import GenerationReader, verify_blob

__all__ = ["IntegrityReport", "check_versions"]

_LISTED = 10_000
"""Paths of a record. A version that has lost more is not repaired by a successor."""


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """The states of all versions after a check. `problems` are files that no purge explains."""

    states: Mapping[str, VersionState]
    checked_blobs: int
    checked_bytes: int
    """The bytes that were read and hashed; 0 without `deep`."""
    problems: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """No file of a valid version is missing or corrupt."""
        return not self.problems


def check_versions(records: RecordStore, refs: Mapping[str, str], *, deep: bool, progress: Progress) -> IntegrityReport:
    """Check named versions, given by name and version. Blobs that versions share are checked once."""
    session = records.session
    opened = {
        version: open_dataset(session, Address(records.dataset_id, version)) for version in sorted(set(refs.values()))
    }
    blobs: dict[tuple[Blob, str | None], None] = {}
    by_version: dict[str, list[tuple[Blob, str | None]]] = {}
    for version, dataset in opened.items():
        generations = dataset.manifest.generations
        by_version[version] = [(shard.blob, generations.get(shard.hash)) for shard in dataset.artifact(FILES).shards()]
        blobs |= dict.fromkeys(by_version[version])
    counter = ProgressCounter(progress, "check", sum(blob.byte_size for blob, _ in blobs), len(blobs))

    def check(one: tuple[Blob, str | None]) -> str | None:
        blob, generation = one
        reader = GenerationReader(session.writer, {blob.hash: generation}) if generation else session.writer
        try:
            if deep:
                finding = verify_blob(reader, blob, counter.add_bytes)
                return None if finding is None else finding.message
            size = reader.stat(blob_key(blob.hash)).size_bytes
        except ObjectNotFoundError:
            return f"blob {blob.hash} is missing"
        finally:
            counter.finish_file()
        return None if size == blob.byte_size else f"blob {blob.hash} has {size} bytes instead of {blob.byte_size}"

    findings = dict(zip(blobs, IO_POOL.map_all(check, blobs), strict=True))
    problems: list[str] = []
    for version, dataset in opened.items():
        damaged = {blob.hash: found for blob, gen in by_version[version] if (found := findings[blob, gen])}
        if damaged:
            names = ", ".join(sorted(name for name, one in refs.items() if one == version))
            problems += _record_damage(records, dataset, names, damaged)
    states = {name: read_state(records, version) for name, version in refs.items()}
    read = sum(blob.byte_size for blob, _ in blobs) if deep else 0
    return IntegrityReport(states, len(blobs), read, tuple(problems))


def _record_damage(records: RecordStore, dataset: Dataset, names: str, damaged: Mapping[str, str]) -> list[str]:
    """Record the files that a version has lost, and return those that no purge explains."""
    artifact = dataset.artifact(FILES)
    shards = [shard.hash for shard in artifact.shards()]
    lost = {member.path: shards[member.shard] for member in artifact.members() if shards[member.shard] in damaged}
    purged = {name.removeprefix("erased/") for name in records.names("erased")}
    unexplained = {path: digest for path, digest in lost.items() if digest not in purged}
    new = sorted(unexplained.keys() - set(read_state(records, dataset.version).missing_images))
    if new:
        cause = f"check-{sha256_hex(canonical_json(new))[:16]}"
        record = BrokenRecord(dataset.version, cause, tuple(new[:_LISTED]), len(new), records.session.timestamp())
        records.put(f"states/{dataset.version}/{cause}", record)
    return [f"{names}: {path}: {damaged[digest]}" for path, digest in sorted(unexplained.items())]
