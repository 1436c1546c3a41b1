"""Three-way merge of the objects of one image: those at the base, those in HEAD, and those that an annotator returned.

Objects have no identity in other tools, so they are matched: first equal ones, then those of one kind that overlap
most. Pure. Implements "Merge" of docs/specs/label-inbox.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpdata.formats.labels import Annotation, annotation_members, bounds_of, box_iou, is_same_drawing

__all__ = ["MIN_IOU", "ObjectConflict", "ObjectMerge", "match_objects", "merge_objects"]

MIN_IOU = 0.5
"""Two objects that overlap less are different ones."""
_SAME_PLACE_IOU = 0.9
"""Two new objects that overlap more are the same one, drawn twice."""


@dataclass(frozen=True, slots=True)
class ObjectConflict:
    """An object that HEAD and the annotator changed in different ways. None: it was removed, or was not there."""

    base: Annotation | None
    head: Annotation | None
    returned: Annotation | None

    def document(self) -> dict[str, object]:
        """Return the three sides as plain values for JSON."""
        sides = {"base": self.base, "head": self.head, "returned": self.returned}
        return {name: None if one is None else annotation_members(one) for name, one in sides.items()}


@dataclass(frozen=True, slots=True)
class ObjectMerge:
    """The changes that make HEAD the merge: objects of HEAD to remove, by position, and objects to add.

    A conflict is resolved in favour of HEAD here; `resolve` decides each of them.
    """

    removed: tuple[int, ...]
    added: tuple[Annotation, ...]
    conflicts: tuple[ObjectConflict, ...] = ()
    conflict_heads: tuple[int | None, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if HEAD has all that the annotator drew."""
        return not self.removed and not self.added and not self.conflicts

    def prefer_returned(self) -> ObjectMerge:
        """Return the merge with all conflicts resolved in favour of the annotator."""
        return self.resolve(["returned"] * len(self.conflicts))

    def resolve(self, choices: Sequence[str]) -> ObjectMerge:
        """Return the merge with each conflict decided: "head" keeps what HEAD has, "returned" takes the other side."""
        taken = [at for at, choice in enumerate(choices) if choice == "returned"]
        heads = [self.conflict_heads[at] for at in taken]
        drawn = [self.conflicts[at].returned for at in taken]
        removed = [*self.removed, *(position for position in heads if position is not None)]
        return ObjectMerge(tuple(sorted(removed)), (*self.added, *(one for one in drawn if one is not None)))


def merge_objects(
    base: Sequence[Annotation], head: Sequence[Annotation], returned: Sequence[Annotation]
) -> ObjectMerge:
    """Merge the changes of the annotator into those of HEAD."""
    in_head, in_returned = match_objects(base, head), match_objects(base, returned)
    removed: list[int] = []
    added: list[Annotation] = []
    conflicts: list[ObjectConflict] = []
    heads: list[int | None] = []
    for number, old in enumerate(base):
        at, back = in_head.get(number), in_returned.get(number)
        ours = None if at is None else head[at]
        theirs = None if back is None else returned[back]
        if _is_same(theirs, old) or _is_same(ours, theirs):
            continue
        if not _is_same(ours, old):
            conflicts.append(ObjectConflict(old, ours, theirs))
            heads.append(at)
            continue
        removed += [] if at is None else [at]
        added += [] if theirs is None else [theirs]
    new_heads = [position for position in range(len(head)) if position not in in_head.values()]
    for position, one in enumerate(returned):
        if position in in_returned.values():
            continue
        near = next((at for at in new_heads if _is_same_place(head[at], one)), None)
        if near is None:
            added.append(one)
        elif not _is_same(head[near], one):
            conflicts.append(ObjectConflict(None, head[near], one))
            heads.append(near)
    return ObjectMerge(tuple(removed), tuple(added), tuple(conflicts), tuple(heads))


def match_objects(left: Sequence[Annotation], right: Sequence[Annotation]) -> dict[int, int]:
    """Return for each matched object of the left side its position on the right. Each object has at most one match."""
    found: dict[int, int] = {}
    free = dict.fromkeys(range(len(right)))
    for number, one in enumerate(left):
        same = next((at for at in free if _is_same(one, right[at])), None)
        if same is not None:
            found[number] = same
            del free[same]
    pairs = sorted(
        (
            (iou, one.class_name == right[at].class_name, -number, -at)
            for number, one in enumerate(left)
            if number not in found
            for at in free
            if (iou := _overlap(one, right[at])) >= MIN_IOU
        ),
        reverse=True,
    )
    for _, _, number, at in pairs:
        if -number not in found and -at in free:
            found[-number] = -at
            del free[-at]
    return found


def _overlap(one: Annotation, other: Annotation) -> float:
    """Return the overlap of two objects of one kind. Labels of an image overlap if they have one class."""
    if one.kind != other.kind:
        return 0.0
    if one.kind == "label":
        return float(one.class_name == other.class_name)
    first, second = bounds_of(one), bounds_of(other)
    return 0.0 if first is None or second is None else box_iou(first, second)


def _is_same_place(one: Annotation, other: Annotation) -> bool:
    return _overlap(one, other) >= _SAME_PLACE_IOU


def _is_same(one: Annotation | None, other: Annotation | None) -> bool:
    if one is None or other is None:
        return one is other
    return is_same_drawing(one, other)
