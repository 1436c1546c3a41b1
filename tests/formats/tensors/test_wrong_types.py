"""If this fails, a wrong type raises an error from inside the library, which a caller cannot interpret or catch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warpdata.tensors as tensors
from warpdata.errors import WarpError

WRONG: list[Any] = [None, 5, 1.5, b"x", "x", ["x"], {"a": 5}, {"a": ("torch.float32", 5)}, object()]
INDEX = tensors.pack_index({"a": ("torch.float32", (2,))})
CALLS: dict[str, Callable[[Any], object]] = {
    "create_tensors": lambda value: tensors.create_tensors("x", value),
    "write_tensors": lambda value: tensors.write_tensors("x", value),
    "open_arrays": tensors.open_arrays,
    "open_tensors": tensors.open_tensors,
    "open_shards": lambda value: tensors.open_shards(value, value, []),
    "open_sources": lambda value: tensors.open_sources(value, [], []),
    "serve_tensors": tensors.serve_tensors,
    "pack_index": tensors.pack_index,
    "parse_index": tensors.parse_index,
    "normalize": lambda value: tensors.normalize(INDEX, value),
}
VALID = {"normalize": (None,)}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_typed_errors(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in WRONG:
        if value in VALID.get(name, ()):
            continue
        with pytest.raises(WarpError):
            CALLS[name](value)
