"""Values of the inbox: items with their states and merges, decisions about them, and what became of those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from warpdata.collections.object_merge import ObjectMerge
from warpdata.formats.labels import Annotation, annotation_members
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import canonical_json

__all__ = [
    "INBOX_STATES",
    "InboxChoice",
    "InboxDecision",
    "InboxItem",
    "InboxOutcome",
    "InboxRead",
    "InboxRecord",
    "InboxReview",
    "InboxSync",
]

INBOX_STATES = ("clean", "conflict", "stale", "unchanged", "accepted", "rejected")


@dataclass(frozen=True, slots=True)
class InboxRecord:
    """A label as it came back. `objects` have the members of the Platform Format."""

    source: str
    annotator: str
    path: str
    hash: str
    base: str
    objects: str
    """JSON, because records have no fractions."""
    key: str
    lost: tuple[str, ...]
    time: str


@dataclass(frozen=True, slots=True)
class InboxDecision:
    """The end of an item. `status` is "accepted" or "rejected", and `version` that of HEAD afterwards."""

    status: str
    version: str
    author: str
    note: str
    time: str


@dataclass(frozen=True, slots=True)
class InboxItem:
    """A label in the inbox, and its state against the present HEAD."""

    inbox_id: str
    state: str
    path: str
    source: str
    annotator: str
    time: str
    objects: int
    hash: str
    base: str


@dataclass(frozen=True, slots=True)
class InboxReview:
    """An item with the merge that an acceptance would commit. `merge` is None for an item that is stale or decided.

    `head` and `base` are the objects of the image in HEAD and in the version that the annotator saw.
    """

    item: InboxItem
    returned: tuple[Annotation, ...]
    head: tuple[Annotation, ...]
    merge: ObjectMerge | None
    lost: tuple[str, ...]
    base: tuple[Annotation, ...] = ()

    @property
    def token(self) -> str:
        """A name of this state: a decision with the token of another one is about something that was not seen."""
        held = self.document() | {"head_objects": [annotation_members(one) for one in self.head]}
        return sha256_hex(canonical_json(held, fractions=True))

    def document(self) -> dict[str, Any]:
        """Return the review as plain values for JSON."""
        merge = self.merge
        names = InboxItem.__dataclass_fields__
        return {
            **{name: getattr(self.item, name) for name in names if name != "objects"},
            "objects": [annotation_members(one) for one in self.returned],
            "removed": [] if merge is None else [annotation_members(self.head[at]) for at in merge.removed],
            "added": [] if merge is None else [annotation_members(one) for one in merge.added],
            "conflicts": [] if merge is None else [one.document() for one in merge.conflicts],
            "lost": list(self.lost),
        }


@dataclass(frozen=True, slots=True)
class InboxChoice:
    """A decision to merge an item: the token of the review that was seen, and a side for each conflict."""

    inbox_id: str
    token: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InboxOutcome:
    """What became of a decision. `reason` says why an item was not merged."""

    inbox_id: str
    version: str | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class InboxRead:
    """The items that were made of a file of a tool, or of one state of its work."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InboxSync:
    """The items of the files that tools have sent. `unread` has the name of each other file, and why it has none."""

    items: tuple[str, ...]
    unread: tuple[tuple[str, str], ...]
