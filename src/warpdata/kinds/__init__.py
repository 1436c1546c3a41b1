"""Payload kinds: tables, artifacts, episodes, tensors and indexes, each in a package of its own.

This face has the protocol that all kinds implement, and the registry. It imports no kind.
"""

from warpdata.kinds.payload import (
    ChooseSide,
    EntryInfo,
    LazyBlob,
    MemoryBlob,
    PayloadKind,
    Side,
    StageContext,
    StagedBlob,
    StagedEntry,
    VersionContext,
    copied_blob,
    entries_by_kind,
    hash_file,
    merge_item,
    payload_kind,
    pick_entry,
    shards_of,
)

__all__ = [
    "ChooseSide",
    "EntryInfo",
    "LazyBlob",
    "MemoryBlob",
    "PayloadKind",
    "Side",
    "StageContext",
    "StagedBlob",
    "StagedEntry",
    "VersionContext",
    "copied_blob",
    "entries_by_kind",
    "hash_file",
    "merge_item",
    "payload_kind",
    "pick_entry",
    "shards_of",
]
