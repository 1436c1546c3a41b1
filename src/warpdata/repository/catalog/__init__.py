"""The catalog: branches, labels, commits, and addresses resolved to versions.

docs/specs/catalog.md and docs/specs/publish.md are the normative texts.
"""

from warpdata.repository.catalog.branches import find_head
from warpdata.repository.catalog.catalog import Catalog, DatasetList, VersionRef
from warpdata.repository.catalog.layout import STORE_MARKER, is_valid, key_policy
from warpdata.repository.catalog.names import MAIN, Address, check_dataset_id, check_ref_name, parse_address
from warpdata.repository.catalog.records import Commit, Head, Hint, HistoryEntry, Label, check_commit_texts
from warpdata.repository.catalog.transactions import (
    Committed,
    Pause,
    Propose,
    Transaction,
    commit,
    create_branch,
    create_label,
    find_transaction,
    mark_store,
    put_create_only,
    put_manifest,
    store_version,
)

__all__ = [
    "MAIN",
    "STORE_MARKER",
    "Address",
    "Catalog",
    "Commit",
    "Committed",
    "DatasetList",
    "Head",
    "Hint",
    "HistoryEntry",
    "Label",
    "Pause",
    "Propose",
    "Transaction",
    "VersionRef",
    "check_commit_texts",
    "check_dataset_id",
    "check_ref_name",
    "commit",
    "create_branch",
    "create_label",
    "find_head",
    "find_transaction",
    "is_valid",
    "key_policy",
    "mark_store",
    "parse_address",
    "put_create_only",
    "put_manifest",
    "store_version",
]
