"""If this fails, wrong arguments pass the public interface, or valid ones are refused."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
import pytest

from warpdata.errors import BadInputError
from warpdata.primitives.arguments import check_arguments, check_keywords
from warpdata.primitives.paths import check_path

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

Mode = Literal["fast", "slow"]
Hook = Callable[[int], None]


class Options(TypedDict, total=False):
    size: int
    mode: Mode


@check_arguments
def call(
    text: str = "",
    *,
    count: int = 0,
    share: float = 0.0,
    flag: bool = False,
    names: Sequence[str] | None = None,
    pair: tuple[int, int] | str = "auto",
    table: Mapping[str, Any] | None = None,
    mode: Mode = "fast",
    hook: Hook | None = None,
    path: Path | None = None,
    unknown: Unknown | None = None,
    **rest: object,
) -> str:
    return text


@check_arguments
class Thing:
    def __init__(self, name: str) -> None:
        self.name = name

    def rename(self, name: str) -> None:
        self.name = name

    def _private(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    "keywords",
    [
        {"count": np.int64(5), "share": np.float32(0.5), "flag": np.bool_(True)},
        {"share": 1, "count": -(2**63) + 1},
        {"names": ("a",)},
        {"names": np.array(["a", "b"])},
        {"names": []},
        {"names": None},
        {"pair": [1, 2]},
        {"pair": "auto"},
        {"table": {}},
        {"mode": "slow"},
        {"hook": print},
        {"path": Path()},
        {"unknown": object()},
        {"anything": object()},
    ],
)
def test_valid_arguments_pass(keywords: Any) -> None:
    assert call("x", **keywords) == "x"


@pytest.mark.parametrize(
    "keywords",
    [
        {"text": 5},
        {"text": b"x"},
        {"count": True},
        {"count": 1.0},
        {"count": 2**63},
        {"share": "1"},
        {"flag": 1},
        {"names": "ab"},
        {"names": ["a", 5]},
        {"names": {"a": 1}},
        {"names": iter(["a"])},
        {"pair": (1, 2, 3)},
        {"pair": (1, "2")},
        {"pair": 5},
        {"table": []},
        {"mode": "medium"},
        {"mode": np.zeros(2)},
        {"hook": 5},
        {"path": "x"},
    ],
)
def test_wrong_arguments_are_refused(keywords: Any) -> None:
    with pytest.raises(BadInputError, match=rf"call: {next(iter(keywords))} must be"):
        call(**keywords)


def test_a_class_checks_its_public_methods_and_its_constructor() -> None:
    thing = Thing("a")
    for attempt in (lambda: Thing(5), lambda: thing.rename(None)):  # type: ignore[arg-type]
        with pytest.raises(BadInputError, match="must be str"):
            attempt()
    assert thing._private(5) == 5  # type: ignore[arg-type, comparison-overlap]
    with pytest.raises(TypeError, match="missing"):
        Thing()  # type: ignore[call-arg]


def test_keywords_are_checked_by_the_fields_of_a_typed_dict() -> None:
    check_keywords("call", {"size": 5, "mode": "fast", "other": object()}, Options)
    for keywords in ({"size": "5"}, {"mode": "medium"}):
        with pytest.raises(BadInputError, match=r"call: (size|mode) must be"):
            check_keywords("call", keywords, Options)


@pytest.mark.parametrize("path", ["a\0b", "\ud800", 5, None, b"x", io.StringIO()])
def test_text_that_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(BadInputError, match="is not a path"):
        check_path(path)
