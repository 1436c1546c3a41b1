"""If this fails, a label enters HEAD unseen, lands on bytes it was not drawn on, or undoes the work of another."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.collections.scenes import png
from tests.faults.scenes import link, memory
from warpdata.collections import Collection, InboxChoice, InboxFiles, InboxSource, merge_objects
from warpdata.errors import BadInputError, ConflictError, CorruptError, ObjectNotFoundError
from warpdata.formats.labels import Annotation, Box, Label, LabeledImage, annotation_members, label_studio_task
from warpdata.repository.catalog import parse_address

SIZE = (80, 60)
CAT, DOG = wd.Box("cat", 1, 2, 30, 20), wd.Box("dog", 40, 30, 10.1, 10 / 3)


numbers = count()


def pets() -> Collection:
    collection = wd.collection("a/pets", store=link(memory(f"inbox-{next(numbers)}")))
    collection.add("cats/1.png", png(1, *SIZE), annotations=[CAT, DOG])
    return collection


def returned(collection: Collection, objects: list[Annotation], *, annotator: str = "ann", at: str = "1") -> bytes:
    """Return what Label Studio puts into its target storage after a task of HEAD was labelled."""
    head = collection.head
    row = head.table("images").raw().to_arrow().to_pylist()[0]
    image = LabeledImage(row["path"], objects, row["width"], row["height"], hash=row["hash"])
    task = json.loads(label_studio_task(image, "s3://a/pets/cats/1.png", version=head.version))
    annotation = task["annotations"][0] if task["annotations"] else {"result": []}
    by = {"completed_by": {"id": 3, "email": annotator}, "updated_at": f"2026-01-0{at}T00:00:00Z", "unique_id": "u"}
    return json.dumps({**annotation, "id": 17, "task": {"id": 5, "data": task["data"]}, **by}).encode()


def test_nothing_enters_head_before_it_is_accepted() -> None:
    collection = pets()
    before = collection.head.version
    new = wd.Box("bird", 60, 5, 8, 8)
    [item] = collection.inbox.receive(returned(collection, [CAT, DOG, new]))
    assert collection.head.version == before
    review = collection.inbox.review(item)
    assert (review.item.state, review.item.annotator) == ("clean", "ann")
    assert review.merge is not None
    assert review.merge.added == (new,)
    ids = {row["id"] for row in collection.head.table("annotations").raw().to_arrow().to_pylist()}
    collection.inbox.accept(item)
    rows = collection.head.table("annotations").raw().to_arrow().to_pylist()
    assert collection.annotations("cats/1.png") == [CAT, DOG, new]
    assert {row["id"] for row in rows} > ids
    assert rows[-1]["author"] == "ann"
    assert collection.compare(before).added_annotations == 1
    assert collection.inbox.items() == []
    assert [one.inbox_id for one in collection.inbox.items("accepted")] == [item]
    with pytest.raises(ConflictError, match="is accepted already"):
        collection.inbox.accept(item)


def test_a_repeated_delivery_is_one_item() -> None:
    collection = pets()
    data = returned(collection, [CAT])
    assert collection.inbox.receive(data) == collection.inbox.receive(data)
    assert len(collection.inbox.items()) == 1
    assert collection.inbox.receive(returned(collection, [CAT], at="2")) != collection.inbox.receive(data)


def test_files_that_a_tool_has_sent_become_items_once() -> None:
    collection = pets()
    label = collection.create_version("v1")
    files, session = InboxFiles(collection.session, collection.id), collection.session
    found = session.catalog.resolve(parse_address(f"{collection.id}@v1"))

    def send(name: str, data: bytes, nonce: str) -> None:
        source = InboxSource("ann", "KEY", session.clock(), nonce)
        assert files.receive(found, "v1", name, data, source, "application/json")

    send("17", returned(collection, [CAT]), "a")
    send("18", b"no label", "b")
    done = collection.inbox.sync()
    assert [name for name, _ in done.unread] == ["v1/18"]
    [item] = done.items
    assert collection.inbox.review(item).item.base == found.version
    assert label.version == found.version
    collection.inbox.accept(item)
    assert collection.annotations("cats/1.png") == [CAT]
    assert collection.inbox.sync() == done
    assert collection.inbox.items() == [], "an item that was decided stays decided"


def test_a_label_of_other_bytes_is_stale() -> None:
    collection = pets()
    [item] = collection.inbox.receive(returned(collection, [CAT, DOG, Label("new")]))
    collection.add("cats/1.png", png(2, *SIZE), annotations=[CAT], replace=True)
    assert collection.inbox.review(item).item.state == "stale"
    with pytest.raises(ConflictError, match="stale"):
        collection.inbox.accept(item, prefer="returned")
    assert collection.inbox.accept_clean() == []
    assert collection.annotations("cats/1.png") == [CAT]
    collection.inbox.reject(item, note="old image")
    assert collection.inbox.items("rejected")[0].inbox_id == item
    collection.remove("cats/1.png")
    assert collection.inbox.items() == []


def test_both_sides_change_different_objects() -> None:
    collection = pets()
    [item] = collection.inbox.receive(returned(collection, [wd.Box("cat", 2, 2, 30, 20), DOG]))
    collection.annotate("cats/1.png", [CAT, wd.Box("wolf", 40, 30, 10.1, 10 / 3)], replace=True)
    collection.inbox.accept(item)
    assert sorted(one.class_name for one in collection.annotations("cats/1.png")) == ["cat", "wolf"]
    assert wd.Box("cat", 2, 2, 30, 20) in collection.annotations("cats/1.png")


def test_both_sides_change_one_object() -> None:
    collection = pets()
    mine, theirs = wd.Box("cat", 1, 2, 29, 20), wd.Box("lynx", 1, 2, 30, 20)
    [item] = collection.inbox.receive(returned(collection, [theirs, DOG]))
    collection.annotate("cats/1.png", [mine, DOG], replace=True)
    review = collection.inbox.review(item)
    assert review.item.state == "conflict"
    assert review.document()["conflicts"][0]["returned"] == annotation_members(theirs)
    assert collection.inbox.accept_clean() == []
    with pytest.raises(ConflictError, match="conflicts with HEAD in 1 objects"):
        collection.inbox.accept(item)
    collection.inbox.accept(item, prefer="returned")
    assert sorted(one.class_name for one in collection.annotations("cats/1.png")) == ["dog", "lynx"]


def test_a_rule_takes_only_annotators_it_names() -> None:
    collection = pets()
    [trusted] = collection.inbox.receive(returned(collection, [CAT, DOG, Label("in")], annotator="ann"))
    [other] = collection.inbox.receive(returned(collection, [CAT, DOG, Label("out")], annotator="bob"))
    assert collection.inbox.accept_clean(annotators=["ann"]) == [trusted]
    assert [one.inbox_id for one in collection.inbox.items()] == [other]
    assert Label("out") not in collection.annotations("cats/1.png")


def test_cvat_needs_the_version_that_was_seen() -> None:
    collection = pets()
    document = (
        b'<annotations><image id="0" name="cats/1.png" width="80" height="60">'
        b'<box label="cat" xtl="1" ytl="2" xbr="31" ybr="22" occluded="0"/></image></annotations>'
    )
    with pytest.raises(BadInputError, match="does not say which version"):
        collection.inbox.receive(document, "cvat")
    [item] = collection.inbox.receive(document, "cvat", version="HEAD", annotator="ann")
    review = collection.inbox.review(item)
    assert review.merge is not None
    assert [review.head[at] for at in review.merge.removed] == [DOG]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda body: body["task"]["data"].update(hash="0" * 64), BadInputError),
        (lambda body: body["task"]["data"].update(version="0" * 64), BadInputError),
        (lambda body: body["task"]["data"].update(path="../up.png"), CorruptError),
        (lambda body: body["task"]["data"].update(path="cats/2.png"), ObjectNotFoundError),
        (lambda body: body.pop("task"), CorruptError),
        (lambda body: body["result"][0]["value"].update(x="1"), CorruptError),
        (lambda body: body["result"][0]["value"].update(width=-1), CorruptError),
        (lambda body: body.update(result={}), CorruptError),
    ],
)
def test_a_label_that_cannot_be_bound_is_refused(change: Any, error: type[Exception]) -> None:
    collection = pets()
    body = json.loads(returned(collection, [CAT]))
    change(body)
    with pytest.raises(error):
        collection.inbox.receive(json.dumps(body).encode())
    assert collection.inbox.items() == []


def test_a_skipped_task_returns_nothing() -> None:
    collection = pets()
    body = json.loads(returned(collection, [CAT]))
    assert collection.inbox.receive(json.dumps({**body, "was_cancelled": True}).encode()) == []


def test_agreement_compares_annotators_of_the_same_bytes() -> None:
    collection = pets()
    collection.inbox.receive(returned(collection, [CAT, DOG], annotator="ann"))
    collection.inbox.receive(returned(collection, [CAT, wd.Box("cat", 40, 30, 10, 10 / 3)], annotator="bob"))
    rows = collection.inbox.agreement().to_pylist()
    assert [row["image"] for row in rows] == ["cats/1.png", None]
    assert (rows[1]["matched"], rows[1]["same_class"]) == (2, 1)
    assert rows[1]["mean_iou"] == pytest.approx((1 + 10 / 10.1) / 2)
    assert rows[1]["kappa"] == pytest.approx(0.0)


boxes = st.builds(
    Box,
    st.sampled_from(["cat", "dog"]),
    *(st.integers(0, 300).map(lambda n: n * 7.0) for _ in range(2)),
    *(st.just(5.0) for _ in range(2)),
)
"""Boxes that are equal, or do not overlap: which object is which is not in doubt."""
several = st.lists(boxes, max_size=5, unique_by=lambda box: (box.x, box.y))


def key(one: Annotation) -> str:
    return repr(one)


@given(several, several)
def test_a_merge_of_one_side_is_that_side(base: list[Box], changed: list[Box]) -> None:
    merge = merge_objects(base, base, changed)
    assert not merge.conflicts
    merged = [one for at, one in enumerate(base) if at not in merge.removed] + [*merge.added]
    assert sorted(merged, key=key) == sorted(changed, key=key)
    assert merge_objects(base, changed, base).is_empty
    assert merge_objects(base, changed, changed).is_empty


@given(several, several, several)
def test_a_merge_keeps_what_no_side_removed(base: list[Box], head: list[Box], back: list[Box]) -> None:
    """Objects that are on both sides stay. With no conflict, each object is as some side has it."""
    merge = merge_objects(base, head, back)
    merged = [one for at, one in enumerate(head) if at not in merge.removed] + [*merge.added]
    assert all(one in merged for one in head if one in back)
    assert all(one in head or one in back for one in merged)
    if not merge.conflicts:
        assert all(one in merged for one in back if one not in base)


def test_what_label_studio_cannot_show_is_not_taken_as_removed() -> None:
    collection = pets()
    pose = wd.Keypoints("cat", [(1, 2, 2), (5, 6, 2)])
    collection.annotate("cats/1.png", [CAT, pose], replace=True)
    bird = wd.Box("bird", 60, 5, 8, 8)
    [item] = collection.inbox.receive(returned(collection, [CAT, bird]))
    merge = collection.inbox.review(item).merge
    assert merge is not None
    assert (merge.removed, merge.added) == ((), (bird,))


def test_a_label_that_arrives_in_several_ways_is_one_item() -> None:
    collection = pets()
    sent = json.loads(returned(collection, [CAT]))
    [item] = collection.inbox.receive(json.dumps(sent).encode())
    assert collection.inbox.receive(json.dumps({**sent, "completed_by": 3}).encode()) == [item]
    assert collection.inbox.receive(json.dumps({**sent, "updated_at": "2026-02-01"}).encode()) != [item]


def test_several_items_are_one_commit_as_they_were_seen() -> None:
    collection = pets()
    collection.add("cats/2.png", png(2, *SIZE))
    bird = wd.Box("bird", 60, 5, 8, 8)
    [first] = collection.inbox.receive(returned(collection, [CAT, DOG, bird]))
    [second] = collection.inbox.receive(returned(collection, [CAT, DOG], at="2"))
    seen = {one.item.inbox_id: one.token for one in collection.inbox.reviews()}
    before = len(collection.head.history())
    outcomes = collection.inbox.accept_seen([InboxChoice(one, seen[one]) for one in (first, second)])
    assert outcomes[0].reason is None
    assert "is merged first" in (outcomes[1].reason or "")
    assert len(collection.head.history()) == before + 1
    [left] = collection.inbox.accept_seen([InboxChoice(second, seen[second])])
    assert "changed after it was shown" in (left.reason or "")
