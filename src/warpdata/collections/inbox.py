"""The inbox: labels that came back from labelling tools, and wait for a person or a rule.

A label is bound to the bytes that it was drawn on and to the version that the annotator saw. If HEAD has other bytes
under the path, the label is stale. Otherwise its objects are merged with those of HEAD. Implements
docs/specs/label-inbox.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from warpdata.collections.agreement import AnnotatedImage, agreement_table
from warpdata.collections.inbox_files import InboxFiles
from warpdata.collections.object_merge import ObjectMerge, merge_objects
from warpdata.collections.records import RecordStore
from warpdata.collections.returned_labels import ReturnedLabel, parse_returned
from warpdata.collections.tables import ANNOTATIONS, IMAGES, annotation_schema, quoted_lists, read_columns
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ConflictError, CorruptError, ErrorKind, NotFoundError, ObjectNotFoundError
from warpdata.formats.labels import (
    Annotation,
    annotation_members,
    annotation_of,
    check_image_path,
    parse_annotation,
)
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.manifest import canonical_json

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.collections.collection import Collection

__all__ = ["INBOX_STATES", "InboxItem", "InboxRecord", "InboxReview", "InboxSync", "LabelInbox"]

INBOX_STATES = ("clean", "conflict", "stale", "unchanged", "accepted", "rejected")
_ID_LENGTH = 32


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
    """An item with the merge that an acceptance would commit. `merge` is None for an item that is stale or decided."""

    item: InboxItem
    returned: tuple[Annotation, ...]
    head: tuple[Annotation, ...]
    merge: ObjectMerge | None
    lost: tuple[str, ...]

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
class InboxSync:
    """The items of the files that tools have sent. `unread` has the name of each other file, and why it has none."""

    items: tuple[str, ...]
    unread: tuple[tuple[str, str], ...]


@check_arguments
class LabelInbox:
    """Labels that came back to a collection. Nothing enters HEAD before `accept`."""

    def __init__(self, collection: Collection, records: RecordStore) -> None:
        self._collection = collection
        self._records = records

    def __repr__(self) -> str:
        return short_repr("LabelInbox", self._collection.id)

    def receive(
        self, data: bytes, source: str = "label-studio", *, version: str | None = None, annotator: str | None = None
    ) -> list[str]:
        """Store what a tool sent, and return the ids of the items. A repeated delivery gives the same ids.

        `source` is "label-studio" (a stored annotation, or a webhook) or "cvat" (CVAT for images 1.1). `version` is the
        one that the annotator saw, for tools that do not say it.
        """
        if source not in ("label-studio", "cvat"):
            raise BadInputError(f"source={source!r} is not known", hint="Use 'label-studio' or 'cvat'.")
        return [self.add(one, version=version, annotator=annotator) for one in parse_returned(data, source)]

    def sync(self, source: str = "label-studio") -> InboxSync:
        """Make items of the files that a tool has sent to the S3 gateway. A repetition makes nothing twice.

        Of a file that was sent several times, the newest counts. Files that cannot be read stay, and are listed.
        """
        files = InboxFiles(self._collection.session, self._collection.id)
        items: list[str] = []
        unread: list[tuple[str, str]] = []
        for file in files.files():
            try:
                entry = files.newest(file)
                items += self.receive(entry.content(), source, version=entry.version)
            except (BadInputError, CorruptError, NotFoundError) as error:
                unread.append((f"{file.ref}/{file.name}", error.message))
        return InboxSync(tuple(items), tuple(unread))

    def add(self, returned: ReturnedLabel, *, version: str | None = None, annotator: str | None = None) -> str:
        """Store one returned label, and return the id of the item."""
        check_image_path(returned.path)
        base = self._base(returned, version)
        known = self._hash_of(base, returned.path)
        if known is None:
            raise ObjectNotFoundError(f"{base.id}@{base.version[:12]} has no image {returned.path!r}")
        if returned.hash not in (None, known):
            raise BadInputError(
                f"the label of {returned.path!r} was drawn on {returned.hash}, but {base.version[:12]} has {known}",
                hint="Send the task with the hash and the version of its image.",
            )
        record = InboxRecord(
            source=returned.source,
            annotator=annotator or returned.annotator,
            path=returned.path,
            hash=known,
            base=base.version,
            objects=canonical_json([annotation_members(one) for one in returned.objects], fractions=True).decode(),
            key=returned.key,
            lost=returned.lost,
            time=self._collection.session.timestamp(),
        )
        inbox_id = _id_of(record)
        self._records.put(f"inbox/{inbox_id}", record)
        return inbox_id

    def items(self, state: str | None = None) -> list[InboxItem]:
        """Return items, oldest first: those that wait, or those of one state."""
        if state is not None and state not in INBOX_STATES:
            raise BadInputError(f"state={state!r} is not known", hint=f"The states are {', '.join(INBOX_STATES)}.")
        names = self._records.names("inbox")
        decided = {name.split("/")[1] for name in names if name.count("/") == 2}
        wants_decided = state in ("accepted", "rejected")
        ids = [name.split("/")[1] for name in names if name.count("/") == 1]
        found = [self.review(one).item for one in ids if (one in decided) == wants_decided]
        listed = [item for item in found if state is None or item.state == state]
        return sorted(listed, key=lambda item: (item.time, item.inbox_id))

    def review(self, inbox_id: str) -> InboxReview:
        """Return an item with the merge that `accept` would commit now."""
        record = self._record(inbox_id)
        returned = _objects(record)
        decision = self._records.get(f"inbox/{inbox_id}/decided", InboxDecision)
        head = self._collection.head
        merge: ObjectMerge | None = None
        ours: list[Annotation] = []
        if decision is not None:
            state = decision.status
        elif self._hash_of(head, record.path) != record.hash:
            state = "stale"
        else:
            ours = [annotation_of(row) for row in _rows(head, record.path)]
            base = [annotation_of(row) for row in _rows(self._collection.dataset(record.base), record.path)]
            merge = merge_objects(base, ours, returned)
            state = "unchanged" if merge.is_empty else "conflict" if merge.conflicts else "clean"
        about = (record.path, record.source, record.annotator, record.time, len(returned), record.hash, record.base)
        return InboxReview(InboxItem(inbox_id, state, *about), returned, tuple(ours), merge, record.lost)

    def accept(self, inbox_id: str, *, prefer: str | None = None, author: str | None = None) -> str:
        """Merge an item into HEAD, and return the version. Objects that did not change keep their ids.

        An item that is stale is a `ConflictError`. So is one with conflicts, unless `prefer` is "head" or "returned".
        """
        if prefer not in (None, "head", "returned"):
            raise BadInputError(f"prefer={prefer!r} is not known", hint="Use 'head' or 'returned'.")
        review = self.review(inbox_id)
        merge = self._mergeable(review, prefer)
        if prefer == "returned":
            merge = merge.prefer_returned()
        item = review.item
        author = author or self._collection.session.settings.author
        rows = _rows(self._collection.head, item.path)
        message = f"accept labels of {item.path}"[:200]
        with self._collection.changes(message, author=author, key=f"inbox-{inbox_id}") as change:
            change.remove_annotations([rows[at]["id"] for at in merge.removed])
            if merge.added:
                change.annotate(item.path, merge.added, author=item.annotator or None)
        assert change.version is not None
        self._decide(inbox_id, "accepted", change.version, author, "")
        return change.version

    def reject(self, inbox_id: str, *, note: str = "", author: str | None = None) -> None:
        """Reject an item. It stays in the list of rejected items."""
        self._undecided(self.review(inbox_id).item)
        self._decide(
            inbox_id,
            "rejected",
            self._collection.head.version,
            author or self._collection.session.settings.author,
            note,
        )

    def accept_clean(
        self,
        *,
        annotators: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        author: str | None = None,
    ) -> list[str]:
        """Accept all items without conflicts: a rule, for annotators and tools that are trusted. Return their ids."""
        done: list[str] = []
        for item in self.items():
            is_trusted = annotators is None or item.annotator in annotators
            if item.state in ("clean", "unchanged") and is_trusted and (sources is None or item.source in sources):
                self.accept(item.inbox_id, author=author)
                done.append(item.inbox_id)
        return done

    def agreement(self) -> pa.Table:
        """Compare annotators who labelled the same bytes: a row for each image and pair, and one for each pair.

        `mean_iou` is that of matched objects, and `kappa` is Cohen's over their classes.
        """
        names = self._records.names("inbox")
        records = [self._record(name.split("/")[1]) for name in names if name.count("/") == 1]
        drawn = [
            AnnotatedImage(one.path, one.hash, one.annotator or one.source, _objects(one))
            for one in sorted(records, key=lambda one: one.time)
        ]
        return agreement_table(drawn)

    def _mergeable(self, review: InboxReview, prefer: str | None) -> ObjectMerge:
        item = self._undecided(review.item)
        if review.merge is None:
            raise ConflictError(
                f"the label of {item.path!r} is stale: HEAD has other bytes under the path, or none",
                hint="Send the present image to the annotator, or reject the label.",
                kind=ErrorKind.STALE_LABEL,
            )
        if review.merge.conflicts and prefer is None:
            count = len(review.merge.conflicts)
            raise ConflictError(
                f"the label of {item.path!r} conflicts with HEAD in {count} objects",
                hint="See `warp labels inbox show`, then accept it with --prefer returned or --prefer head.",
                kind=ErrorKind.MERGE_CONFLICT,
            )
        return review.merge

    def _undecided(self, item: InboxItem) -> InboxItem:
        if item.state in ("accepted", "rejected"):
            raise ConflictError(f"the item {item.inbox_id} is {item.state} already")
        return item

    def _decide(self, inbox_id: str, status: str, version: str, author: str, note: str) -> None:
        time = self._collection.session.timestamp()
        self._records.put(f"inbox/{inbox_id}/decided", InboxDecision(status, version, author, note, time))

    def _record(self, inbox_id: str) -> InboxRecord:
        is_id = len(inbox_id) == _ID_LENGTH and all(char in "0123456789abcdef" for char in inbox_id)
        found = self._records.get(f"inbox/{inbox_id}", InboxRecord) if is_id else None
        if found is None:
            raise ObjectNotFoundError(f"{self._collection.id} has no item {inbox_id!r} in its inbox")
        return found

    def _base(self, returned: ReturnedLabel, version: str | None) -> Dataset:
        named = returned.version or version
        if named is None:
            raise BadInputError(
                f"the label of {returned.path!r} does not say which version it was drawn on",
                hint="Pass the version that the annotator saw (--version).",
            )
        try:
            return self._collection.dataset(named)
        except NotFoundError as error:
            raise BadInputError(
                f"the label of {returned.path!r} is of version {named[:64]!r}, which {self._collection.id} has not"
            ) from error

    def _hash_of(self, dataset: Dataset, path: str) -> str | None:
        where = next(quoted_lists("path", [path]))
        listed: list[str] = read_columns(dataset, IMAGES, ["hash"], where)["hash"].to_pylist()
        return listed[0] if listed else None


def _objects(record: InboxRecord) -> tuple[Annotation, ...]:
    listed = decode_json(record.objects.encode(), "the objects of an item in the inbox")
    return tuple(parse_annotation(one, one["class_name"]) for one in listed)


def _id_of(record: InboxRecord) -> str:
    """Return the id of a record, which follows from all but the time of the delivery."""
    body = msgspec.to_builtins(record)
    named = {name: body[name] for name in ("source", "annotator", "path", "hash", "base", "objects", "key")}
    return sha256_hex(canonical_json(named))[:_ID_LENGTH]


def _rows(dataset: Dataset, path: str) -> list[dict[str, Any]]:
    where = next(quoted_lists("image", [path]))
    rows: list[dict[str, Any]] = read_columns(dataset, ANNOTATIONS, annotation_schema().names, where).to_pylist()
    return rows
