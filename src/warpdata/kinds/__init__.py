"""Payload kinds: tables, artifacts, episodes and tensors, each in a package of its own.

This face has the protocol that all kinds implement, and the registry. It imports no kind.
"""

from warpdata.kinds.payload import (
    EntryInfo,
    LazyBlob,
    PayloadKind,
    StageContext,
    StagedBlob,
    StagedEntry,
    VersionContext,
    copied_blob,
    entries_by_kind,
    hash_file,
    payload_kind,
    pick_entry,
    shards_of,
)

__all__ = [
    "EntryInfo",
    "LazyBlob",
    "PayloadKind",
    "StageContext",
    "StagedBlob",
    "StagedEntry",
    "VersionContext",
    "copied_blob",
    "entries_by_kind",
    "hash_file",
    "payload_kind",
    "pick_entry",
    "shards_of",
]
