"""Repair: successors of versions that have lost files without a purge, and a HEAD without those files.

A check records what is lost. Every step is idempotent, so a repair that was killed is finished by repeating it.
Implements "Repair" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warpdata.collections.impact import AffectedVersion
from warpdata.collections.records import BrokenRecord, RecordStore
from warpdata.collections.removal import remove_contents, shards_of_paths
from warpdata.collections.states import BROKEN, VersionState, read_state
from warpdata.collections.successors import Cause, SuccessorMaker, labels_by_version
from warpdata.collections.tables import FILES
from warpdata.datasets import Dataset, open_dataset
from warpdata.edit import Edit, EditOptions
from warpdata.errors import ConflictError, ErrorKind
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.catalog import MAIN, Address
from warpdata.repository.manifest import canonical_json

__all__ = ["RepairReport", "ignore_step", "repair_versions"]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair: the successor of each repaired version by name, and the new HEAD if it had lost files."""

    successors: Mapping[str, str]
    head: str | None
    """The version of HEAD without the lost files; None if HEAD had lost none."""


def ignore_step(done: int, total: int) -> None:
    """Ignore the steps of a repair."""


def repair_versions(
    records: RecordStore, refs: Mapping[str, str], author: str, on_step: Callable[[int, int], None]
) -> RepairReport:
    """Make a successor of each broken version, given by name and version, and remove lost files from HEAD.

    `on_step` hears of each version. What it raises stops the repair, which can be repeated.
    """
    states = {version: read_state(records, version) for version in sorted(set(refs.values()))}
    broken = {version: state for version, state in states.items() if state.state == BROKEN}
    for version, state in broken.items():
        _check_listed(records, version, state)
    head = _clear_head(records, author)
    named = labels_by_version(
        [AffectedVersion.of(label, version) for label, version in refs.items() if version in broken]
    )
    made: dict[str, str] = {}
    for done, (version, label) in enumerate(named.items()):
        on_step(done, len(named))
        made[version] = _maker(records, version, broken[version], author).repair(version, label, broken.keys()).label
    on_step(len(named), len(named))
    return RepairReport({name: made[version] for name, version in sorted(refs.items()) if version in made}, head)


def _maker(records: RecordStore, version: str, state: VersionState, author: str) -> SuccessorMaker:
    """Return the maker of a successor. Its ids follow from what is lost, so a repetition finds its own steps."""
    cause_id = f"repair-{sha256_hex(canonical_json([version, list(state.missing_images)]))[:16]}"
    found = (records.get(name, BrokenRecord) for name in records.names(f"states/{version}"))
    time = max(record.time for record in found if record is not None)
    dataset = open_dataset(records.session, Address(records.dataset_id, version))
    return SuccessorMaker(
        records, Cause(cause_id, author, time, _blobs(dataset, state), cause_id), "without lost files"
    )


def _clear_head(records: RecordStore, author: str) -> str | None:
    """Remove lost files from HEAD with one commit. Return its version."""
    head = open_dataset(records.session, Address(records.dataset_id, MAIN))
    state = read_state(records, head.version)
    if state.state != BROKEN:
        return None
    _check_listed(records, head.version, state)
    options = EditOptions("remove lost files", author, MAIN, f"repair head {head.version}")
    with Edit(head.context, options, lambda *_: None) as edit:
        remove_contents(edit, head, state.missing_images, _blobs(head, state))
    return edit.version


def _blobs(dataset: Dataset, state: VersionState) -> tuple[str, ...]:
    """Return the packed shards that lost files are in: what they hold is lost too."""
    is_packed = dataset.artifact(FILES).entry.kind != "files"
    return tuple(sorted(shards_of_paths(dataset, state.missing_images))) if is_packed else ()


def _check_listed(records: RecordStore, version: str, state: VersionState) -> None:
    if state.missing_count > len(state.missing_images):
        raise ConflictError(
            f"{records.dataset_id}@{version[:12]} has lost {state.missing_count:,} files, "
            f"of which {len(state.missing_images):,} are recorded",
            hint="Restore the stored bytes: warp verify --repair --source STORE.",
            kind=ErrorKind.VERSION_BROKEN,
        )
