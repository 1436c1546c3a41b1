"""Keys of the pointers of a dataset under a store root. Implements "Layout" of docs/specs/catalog.md."""

from __future__ import annotations

from warpdata.errors import WarpError
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.catalog.records import matches_checksum
from warpdata.repository.manifest import parse_manifest
from warpdata.storage import KeyPolicy

__all__ = [
    "JOBS_PREFIX",
    "PINS_PREFIX",
    "STORE_MARKER",
    "collection_key",
    "collection_prefix",
    "commit_key",
    "dataset_prefix",
    "head_key",
    "head_prefix",
    "heads_prefix",
    "hint_key",
    "is_valid",
    "job_prefix",
    "key_policy",
    "label_entry_key",
    "label_key",
    "label_log_prefix",
    "labels_prefix",
    "manifest_key",
    "manifests_prefix",
    "pin_key",
    "removed_key",
    "removed_prefix",
    "sequence_of",
    "tombstone_key",
    "tombstones_prefix",
]

STORE_MARKER = "warp-store.json"
PINS_PREFIX = "pins"
JOBS_PREFIX = "jobs"
_SEQUENCE_DIGITS = 20


def dataset_prefix(dataset_id: str) -> str:
    """Return the directory of a dataset."""
    return f"datasets/{dataset_id}"


def manifests_prefix(dataset_id: str) -> str:
    return f"datasets/{dataset_id}/manifests"


def manifest_key(dataset_id: str, version: str) -> str:
    """Return the key of a manifest."""
    return f"{manifests_prefix(dataset_id)}/{version}.json"


def commit_key(dataset_id: str, commit: str) -> str:
    """Return the key of a commit, which is named by its hash."""
    return f"datasets/{dataset_id}/commits/{commit}.json"


def heads_prefix(dataset_id: str) -> str:
    """Return the prefix of all branches, each a directory."""
    return f"datasets/{dataset_id}/heads"


def head_prefix(dataset_id: str, branch: str) -> str:
    return f"{heads_prefix(dataset_id)}/{branch}"


def head_key(dataset_id: str, branch: str, sequence: int) -> str:
    return f"{head_prefix(dataset_id, branch)}/{sequence:0{_SEQUENCE_DIGITS}d}.json"


def labels_prefix(dataset_id: str) -> str:
    """Return the prefix of all labels."""
    return f"datasets/{dataset_id}/labels"


def label_key(dataset_id: str, label: str) -> str:
    return f"{labels_prefix(dataset_id)}/{label}.json"


def label_log_prefix(dataset_id: str, label: str) -> str:
    return f"{labels_prefix(dataset_id)}/{label}"


def label_entry_key(dataset_id: str, label: str, sequence: int) -> str:
    """Return the key of an entry after the first one, which is at `label_key`."""
    return f"{label_log_prefix(dataset_id, label)}/{sequence:0{_SEQUENCE_DIGITS}d}.json"


def removed_prefix(dataset_id: str) -> str:
    return f"datasets/{dataset_id}/removed"


def removed_key(dataset_id: str, branch: str) -> str:
    return f"{removed_prefix(dataset_id)}/{branch}.json"


def hint_key(dataset_id: str) -> str:
    return f"datasets/{dataset_id}/latest.json"


def tombstones_prefix(dataset_id: str) -> str:
    return f"datasets/{dataset_id}/collected"


def tombstone_key(dataset_id: str, version: str) -> str:
    """Return the key of the record of a collected version."""
    return f"{tombstones_prefix(dataset_id)}/{version}.json"


def collection_prefix(dataset_id: str, folder: str = "") -> str:
    """Return the directory of the records of a collection, or one of its directories."""
    return f"datasets/{dataset_id}/collection{folder and '/'}{folder}"


def collection_key(dataset_id: str, name: str) -> str:
    """Return the key of a record of a collection, such as `jobs/17`."""
    return f"{collection_prefix(dataset_id)}/{name}.json"


def pin_key(name: str) -> str:
    """Return the key of a pin."""
    return f"{PINS_PREFIX}/{name}.json"


def job_prefix(job_id: str) -> str:
    """Return the directory of the records of a job."""
    return f"{JOBS_PREFIX}/{job_id}"


def sequence_of(key: str) -> int | None:
    """Return the sequence number in the key of a head; None for other keys."""
    name = key.rsplit("/", 1)[-1].removesuffix(".json")
    return int(name) if len(name) == _SEQUENCE_DIGITS and name.isascii() and name.isdigit() else None


def key_policy(key: str) -> KeyPolicy:
    """Return how long a metadata cache may keep a key: forever only if the key is a hash of the content.

    Heads and labels are written once too, but a store can be deleted and filled again.
    """
    parts = key.split("/")
    if parts[0] == "blobs" or (parts[0] == "datasets" and parts[3:4] in (["manifests"], ["commits"])):
        return KeyPolicy.FOREVER
    return KeyPolicy.REVALIDATE if parts[0] == "datasets" else KeyPolicy.NEVER


def is_valid(key: str, data: bytes) -> bool:
    """Return whether the bytes match their content-addressed key or, of a record, the checksum in them."""
    if key_policy(key) is not KeyPolicy.FOREVER:
        return matches_checksum(data)
    name = key.rsplit("/", 1)[-1].removesuffix(".json")
    if "/manifests/" not in key:
        return sha256_hex(data) == name
    try:
        parse_manifest(data, name)
    except WarpError:
        return False
    return True
