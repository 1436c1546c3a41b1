"""If this fails, a check of labels misses what it looks for, or reports what is not there."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

import warpdata as wd
from tests.collections.scenes import png
from tests.faults.scenes import link, memory
from warpdata.collections import QualityOptions, check_quality
from warpdata.collections.agreement import cohens_kappa
from warpdata.errors import BadInputError


def photo(seed: int, *, noise: int = 0) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 255, (8, 9, 3), np.uint8)
    large = np.kron(pixels, np.ones((12, 12, 1), np.uint8))
    large[0, 0] ^= noise
    out = io.BytesIO()
    Image.fromarray(large).save(out, "PNG")
    return out.getvalue()


def test_each_check_finds_its_objects() -> None:
    collection = wd.collection("a/pets", store=link(memory("quality")))
    with collection.changes("draw") as change:
        change.add("tiny.png", png(1, 50, 50), annotations=[wd.Box("cat", 1, 1, 3, 3)], split="train")
        change.add("outside.png", png(2, 50, 50), annotations=[wd.Box("cat", 40, 40, 20, 5)], split="train")
        twice = [wd.Box("cat", 1, 1, 20, 20), wd.Box("cat", 1, 1, 20, 19), wd.Box("dog", 1, 1, 20, 20)]
        change.add("twice.png", png(3, 50, 50), annotations=twice, split="train")
        change.add("copy.png", png(1, 50, 50), split="val")
        change.add("clean.png", png(4, 50, 50), annotations=[wd.Box("dog", 1, 1, 9, 9), wd.Label("dog")], split="val")
    found = check_quality(collection.head, QualityOptions())
    assert found.counts == {
        "tiny": 1, "outside": 1, "overlapping": 2, "duplicate": 1, "leakage": 1, "near_leakage": 0,
    }  # fmt: skip
    assert found.paths("tiny") == ["tiny.png"]
    assert found.paths("outside") == ["outside.png"]
    assert found.paths("duplicate") == ["twice.png"]
    assert set(found.paths("leakage")) == {"tiny.png", "copy.png"}
    assert collection.head.table("images").filter(found.filter("leakage")).count() == 2
    assert collection.head.table("images").filter(found.filter("near_leakage")).count() == 0
    overall = {row["class_name"]: row for row in found.classes.to_pylist() if row["split"] is None}
    assert (overall["cat"]["objects"], overall["dog"]["objects"]) == (4, 3)
    assert overall["dog"]["ratio_to_largest"] == 3 / 4
    with pytest.raises(BadInputError, match="tiny"):
        found.paths("big")


def test_similar_images_in_two_splits_are_found() -> None:
    collection = wd.collection("a/pets", store=link(memory("near")))
    with collection.changes("photos") as change:
        change.add("a.png", photo(1), split="train")
        change.add("a2.png", photo(1, noise=3), split="val")
        change.add("b.png", photo(2), split="val")
        change.add("broken.png", png(5), split="val")
    found = check_quality(collection.head, QualityOptions(near_bits=4))
    assert found.paths("near_leakage") == ["a2.png", "a.png"]
    assert (found.counts["leakage"], found.unread) == (0, 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=2))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    found = cohens_kappa(Counter(pairs))
    one, other = zip(*pairs, strict=True)
    if len({*one, *other}) == 1:
        assert found is None
    else:
        assert found == pytest.approx(cohen_kappa_score(one, other))
