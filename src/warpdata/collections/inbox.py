"""The inbox: labels that came back from labelling tools, and wait for a person or a rule.

A label is bound to the bytes that it was drawn on and to the version that the annotator saw. If HEAD has other bytes
under the path, the label is stale. Otherwise its objects are merged with those of HEAD. Implements
docs/specs/label-inbox.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from warpdata.collections.agreement import AnnotatedImage, agreement_table
from warpdata.collections.inbox_files import InboxFile, InboxFiles
from warpdata.collections.inbox_items import (
    INBOX_STATES,
    InboxChoice,
    InboxDecision,
    InboxItem,
    InboxOutcome,
    InboxRead,
    InboxRecord,
    InboxReview,
    InboxSync,
)
from warpdata.collections.object_merge import ObjectMerge, merge_objects
from warpdata.collections.records import RecordStore
from warpdata.collections.returned_labels import ReturnedLabel, parse_returned
from warpdata.collections.stored_labels import annotations_of
from warpdata.collections.tables import ANNOTATIONS, IMAGES, annotation_schema, quoted_lists, read_columns
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ConflictError, CorruptError, ErrorKind, NotFoundError, ObjectNotFoundError
from warpdata.formats.labels import (
    Annotation,
    annotation_members,
    check_image_path,
    has_region,
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

__all__ = ["LabelInbox"]

_ID_LENGTH = 32
_READ = "inbox-read"
_KEYS = "inbox-keys"


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

        Of a file that was sent several times, the newest counts. Files that cannot be read stay, and are listed. A file
        that was read before costs one small read.
        """
        files = InboxFiles(self._collection.session, self._collection.id)
        return self._read_files(files, files.files(), source, set(self._records.names(_READ)))

    def sync_file(self, ref: str, name: str, source: str = "label-studio") -> InboxSync:
        """Make items of one file that has just arrived."""
        files = InboxFiles(self._collection.session, self._collection.id)
        found = files.file(ref, name)
        return self._read_files(files, [] if found is None else [found], source, set())

    def _read_files(self, files: InboxFiles, listed: Sequence[InboxFile], source: str, known: set[str]) -> InboxSync:
        """Make items of files. `known` names those that were read before."""
        items: list[str] = []
        unread: list[tuple[str, str]] = []
        for file in listed:
            mark = f"{_READ}/{sha256_hex(chr(10).join(file.records).encode())[:_ID_LENGTH]}"
            read = self._records.get(mark, InboxRead) if mark in known else None
            if read is None:
                try:
                    entry = files.newest(file)
                    read = InboxRead(tuple(self.receive(entry.content(), source, version=entry.version)))
                except (BadInputError, CorruptError, NotFoundError) as error:
                    unread.append((f"{file.ref}/{file.name}", error.message))
                    continue
                self._records.put(mark, read)
            items += read.items
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
        if record.key:  # the same state of the work arrives by a webhook, a storage and an export, perhaps at once
            alias = f"{_KEYS}/{_id_of(replace(record, annotator=''))}"
            if not self._records.put(alias, InboxRead((inbox_id,))):
                first = self._records.get(alias, InboxRead)
                inbox_id = inbox_id if first is None else first.items[0]
        self._records.put(f"inbox/{inbox_id}", record)  # also after a writer that ended between the two
        return inbox_id

    def items(self, state: str | None = None) -> list[InboxItem]:
        """Return items, oldest first: those that wait, or those of one state."""
        return [review.item for review in self.reviews(state)]

    def reviews(self, state: str | None = None) -> list[InboxReview]:
        """Return the items that wait with their merges, or those of one state, oldest first."""
        if state is not None and state not in INBOX_STATES:
            raise BadInputError(f"state={state!r} is not known", hint=f"The states are {', '.join(INBOX_STATES)}.")
        names = self._records.names("inbox")
        decided = {name.split("/")[1] for name in names if name.count("/") == 2}
        wants_decided = state in ("accepted", "rejected")
        ids = [name.split("/")[1] for name in names if name.count("/") == 1]
        found = self._review([one for one in ids if (one in decided) == wants_decided])
        listed = [one for one in found if state is None or one.item.state == state]
        return sorted(listed, key=lambda one: (one.item.time, one.item.inbox_id))

    def review(self, inbox_id: str) -> InboxReview:
        """Return an item with the merge that `accept` would commit now."""
        return self._review([inbox_id])[0]

    def accept(self, inbox_id: str, *, prefer: str | None = None, author: str | None = None) -> str:
        """Merge an item into HEAD, and return the version. Objects that did not change keep their ids.

        An item that is stale is a `ConflictError`. So is one with conflicts, unless `prefer` is "head" or "returned".
        """
        if prefer not in (None, "head", "returned"):
            raise BadInputError(f"prefer={prefer!r} is not known", hint="Use 'head' or 'returned'.")
        review = self.review(inbox_id)
        merge = self._mergeable(review, prefer)
        resolved = merge if prefer is None else merge.resolve([prefer] * len(merge.conflicts))
        message = f"accept labels of {review.item.path}"[:200]
        return self._merge([(review, resolved)], message, f"inbox-{inbox_id}", author)

    def accept_seen(
        self, wanted: Sequence[InboxChoice], *, author: str | None = None, key: str | None = None
    ) -> list[InboxOutcome]:
        """Merge items that a person has seen, in one commit, and say what became of each.

        An item is left when its token is not that of its present state, when it is stale or decided, or when a conflict
        has no choice. Of several items of one image, the first is merged, because it changes what the others are about.
        """
        reviews = self._review(list(dict.fromkeys(one.inbox_id for one in wanted)))
        by_id = {one.item.inbox_id: one for one in reviews}
        merged: dict[str, tuple[InboxReview, ObjectMerge]] = {}
        reasons: dict[str, str] = {}
        for choice in wanted:
            review = by_id[choice.inbox_id]
            try:
                resolved = self._decided_merge(review, choice)
                if review.item.path in merged:
                    raise ConflictError(f"another label of {review.item.path!r} is merged first")
                merged[review.item.path] = (review, resolved)
            except ConflictError as error:
                reasons[choice.inbox_id] = error.message
        version = None
        if merged:
            ids = sorted(review.item.inbox_id for review, _ in merged.values())
            named = next(iter(merged)) if len(merged) == 1 else f"{len(merged):,} images"
            key = key or f"inbox-{sha256_hex(' '.join(ids).encode())[:_ID_LENGTH]}"
            version = self._merge([*merged.values()], f"accept labels of {named}"[:200], key, author)
        return [
            InboxOutcome(one.inbox_id, None if one.inbox_id in reasons else version, reasons.get(one.inbox_id))
            for one in wanted
        ]

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

    def _review(self, inbox_ids: Sequence[str]) -> list[InboxReview]:
        """Compute merges against the present HEAD. Tables are read once for all items, and once for each base."""
        records = {inbox_id: self._record(inbox_id) for inbox_id in inbox_ids}
        decisions = {one: self._records.get(f"inbox/{one}/decided", InboxDecision) for one in records}
        open_records = [record for inbox_id, record in records.items() if decisions[inbox_id] is None]
        paths = list(dict.fromkeys(record.path for record in open_records))
        head = self._collection.head
        hashes = _hashes(head, paths)
        ours = annotations_of(head, paths)
        bases = {
            version: annotations_of(self._collection.dataset(version), [one.path for one in group])
            for version, group in _by_base(one for one in open_records if hashes.get(one.path) == one.hash).items()
        }
        found = []
        for inbox_id, record in records.items():
            decision, returned = decisions[inbox_id], _objects(record)
            merge: ObjectMerge | None = None
            mine: tuple[Annotation, ...] = ()
            base: tuple[Annotation, ...] = ()
            if decision is not None:
                state = decision.status
            elif hashes.get(record.path) != record.hash:
                state = "stale"
            else:
                mine, base = tuple(ours.get(record.path, ())), tuple(bases[record.base].get(record.path, ()))
                unseen = [one for one in base if record.source == "label-studio" and not has_region(one)]
                merge = merge_objects(base, mine, (*returned, *unseen))
                state = "unchanged" if merge.is_empty else "conflict" if merge.conflicts else "clean"
            about = (record.path, record.source, record.annotator, record.time, len(returned), record.hash, record.base)
            found.append(InboxReview(InboxItem(inbox_id, state, *about), returned, mine, merge, record.lost, base))
        return found

    def _merge(
        self, merged: Sequence[tuple[InboxReview, ObjectMerge]], message: str, key: str, author: str | None
    ) -> str:
        """Commit merges of different images, and write the decisions down."""
        author = author or self._collection.session.settings.author
        head = self._collection.head
        with self._collection.changes(message, author=author, key=key) as change:
            for review, merge in merged:
                if merge.removed:
                    rows = _rows(head, review.item.path)
                    change.remove_annotations([rows[at]["id"] for at in merge.removed])
                if merge.added:
                    change.annotate(review.item.path, merge.added, author=review.item.annotator or None)
        assert change.version is not None
        for review, _ in merged:
            self._decide(review.item.inbox_id, "accepted", change.version, author, "")
        return change.version

    def _decided_merge(self, review: InboxReview, choice: InboxChoice) -> ObjectMerge:
        """Return the merge that a person chose. `ConflictError` if it is about something else by now."""
        merge = self._mergeable(review, "chosen")
        path, count = review.item.path, len(merge.conflicts)
        if choice.token not in (None, review.token):
            raise ConflictError(f"HEAD or the label of {path!r} changed after it was shown", hint="Look at it again.")
        if len(choice.choices) != count or not set(choice.choices) <= {"head", "returned"}:
            raise ConflictError(
                f"the label of {path!r} has {count} conflicts, and {len(choice.choices)} were decided",
                hint="Choose 'head' or 'returned' for each.",
                kind=ErrorKind.MERGE_CONFLICT,
            )
        return merge.resolve(choice.choices)

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
        return _hashes(dataset, [path]).get(path)


def _hashes(dataset: Dataset, paths: Sequence[str]) -> dict[str, str]:
    """Return the hashes of those images that a version has, by path."""
    found: dict[str, str] = {}
    for where in quoted_lists("path", paths):
        rows = read_columns(dataset, IMAGES, ["path", "hash"], where)
        found.update(zip(rows["path"].to_pylist(), rows["hash"].to_pylist(), strict=True))
    return found


def _by_base(records: Iterable[InboxRecord]) -> dict[str, list[InboxRecord]]:
    groups: dict[str, list[InboxRecord]] = {}
    for record in records:
        groups.setdefault(record.base, []).append(record)
    return groups


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
