"""If this fails, a wrong argument ends in a bare `TypeError` or `AttributeError` from deep inside the library.

Every public function and method is called with every kind of wrong value for each of its parameters. A call may accept
the value; otherwise it must raise an error of this library.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata import ingest
from warpdata.errors import BadInputError, WarpError
from warpdata.wshard import Channel, Episode

WRONG: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "number": lambda: 5,
    "negative": lambda: -7,
    "huge": lambda: 2**70,
    "fraction": lambda: 1.5,
    "nan": lambda: math.nan,
    "empty text": lambda: "",
    "text": lambda: "no such thing",
    "control": lambda: "a\0b\n",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"bytes",
    "list": lambda: [1, None],
    "texts": lambda: ["x", 5],
    "empty list": list,
    "tuple": lambda: (1, 2, 3),
    "dict": lambda: {1: 2},
    "set": lambda: {"x"},
    "object": object,
    "class": lambda: int,
    "array": lambda: np.zeros((2, 2)),
    "arrow": lambda: pa.array([1, 2]),
    "path": lambda: Path("no/such/file"),
    "function": lambda: lambda: None,
    "iterator": lambda: iter([1]),
}

SKIPPED = {
    "Stream.count_batch",  # bookkeeping of loaders, with objects of the library as arguments
    "Stream.seek",
    "Stream.schedule",
    "Stream.for_worker",
    "Stream.source_of",
    "Episodes.open_windows",
    "Artifact.submit",
}
RETURNED = {
    "warpdata.exporters.report",
    "warpdata.edit.table_merge",
    "warpdata.kinds.tables.table",
    "warpdata.query.filter",
}
"""Modules of dataclasses that the library constructs and callers only receive."""
CALLBACKS = {"progress", "on_step", "report", "transform", "make", "model"}
"""Functions of the caller, whose own errors pass through."""
DEFAULTS: dict[str, Any] = {
    "address": "a/b",
    "older": "a/b",
    "newer": "a/b",
    "dataset_id": "a/b",
    "txn_id": "0" * 32,
    "target": "a/b",
    "dim": 0,
    "dim0": 0,
    "dim1": 1,
    "length": 1,
    "start": 0,
    "name": "x",
    "table": "main",
    "column": "n",
    "artifact": "raw",
    "label": "v1",
    "expression": "n > 1",
    "path": "a.bin",
    "paths": ["a.bin"],
    "locator": "a.bin",
    "locators": ["a.bin"],
    "expires_s": 60,
    "content": b"abc",
    "columns": ["n"],
    "rows": [0],
    "channels": ["joints"],
    "number": 0,
    "epoch": 0,
    "step": 0,
    "row": 0,
    "samples_done": 0,
    "count": 1,
    "state": {},
    "version": "main",
    "index": 0,
    "seconds": 0.0,
    "refs": [],
    "place": "nowhere.safetensors",
    "data": b"abc",
    "annotations": [],
    "message": "text",
    "ref": "HEAD",
    "job_id": "job-1",
    "status": "completed",
    "task_type": "detection",
    "model_name": "model",
    "action": "mark_broken",
    "token": "0" * 64,
    "directory": "no/such/directory",
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return one object of every public class, by its name."""
    store = tmp_path_factory.mktemp("store").as_uri()
    rows = pa.table({"n": range(8), "file": ["a.bin", "b.bin"] * 4})
    steps = np.zeros((5, 2), np.float32)
    episode = Episode(id="e", length=5, observations={"joints": Channel("joints", steps)})
    builder = wd.DatasetBuilder("a/b", store)
    builder.add_table("main", rows).add_artifact("raw", {"a.bin": b"a", "b.bin": b"b"}).bind("main", "file", "raw")
    builder.add_episodes("demos", [episode]).add_tensors("weights", {"w": steps}).publish()
    dataset = wd.dataset("a/b", store=store)
    ref = dataset.table().take([0])["file"][0].as_py()
    pets = wd.collection("a/pets", store=store)
    pets.add("a.bin", b"a")
    return {
        "store": store,
        "Dataset": lambda: dataset,
        "Table": dataset.table,
        "Artifact": dataset.artifact,
        "Episodes": dataset.episodes,
        "StoredEpisode": lambda: dataset.episodes()[0],
        "Stream": lambda: dataset.stream(batch_size=2),
        "DatasetBuilder": lambda: wd.DatasetBuilder("a/new", store),
        "FileRef": lambda: ref,
        "ImageRef": lambda: wd.ImageRef(ref.artifact, ref.locator),
        "AudioRef": lambda: wd.AudioRef(ref.artifact, ref.locator),
        "VideoRef": lambda: wd.VideoRef(ref.artifact, ref.locator),
        "Edit": dataset.edit,
        "Schema": lambda: wd.Schema(n=wd.Integer()),
        "Filter": wd.Filter.All,
        "DatasetWriter": lambda: wd.open_writer("a/b", store=store),
        "Collection": lambda: pets,
    }


def functions() -> Iterator[tuple[str, str | None, Callable[..., Any]]]:
    """Yield every public function and method: its name, the class that has it, and the function."""
    for name in wd.__all__:
        value = getattr(wd, name)
        if inspect.isfunction(value):
            yield name, None, value
        elif inspect.isclass(value):
            for member, method in inspect.getmembers(value, inspect.isfunction):
                if not member.startswith("_") and f"{name}.{member}" not in SKIPPED:
                    is_static = isinstance(inspect.getattr_static(value, member), staticmethod)
                    yield f"{name}.{member}", None if is_static else name, method
    yield "DatasetBuilder", None, wd.DatasetBuilder
    for name in ingest.__all__:
        value = getattr(ingest, name)
        if inspect.isfunction(value) and value.__annotations__["return"] == "DatasetBuilder":
            yield f"ingest.{name}", None, value


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    listed = inspect.signature(function).parameters.values()
    return [each for each in listed if each.name != "self" and each.kind not in variadic]


CALLS = [
    pytest.param(owner, function, parameter.name, id=f"{name}-{parameter.name}")
    for name, owner, function in functions()
    for parameter in parameters_of(function)
]
STREAM_KEYWORDS = [
    "batch_size",
    "shuffle",
    "seed",
    "shard",
    "remainder",
    "prefetch",
    "transform",
    "progress",
    "columns",
    "filter",
    "decode",
    "on_error",
    "resize",
    "collate",
]


def use(result: Any) -> None:
    """Ask a lazy result for its first item."""
    if isinstance(result, Iterator | wd.Stream):
        next(iter(result), None)
    elif isinstance(result, wd.DatasetBuilder):
        result.plan()


def problem_of(call: Callable[[], Any]) -> str | None:
    """Return the error of a call that is not typed."""
    try:
        use(call())
    except WarpError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize(("owner", "function", "parameter"), CALLS)
def test_wrong_values_raise_typed_errors(
    scene: dict[str, Any],
    owner: str | None,
    function: Callable[..., Any],
    parameter: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # some texts are names of new directories
    problems = []
    for kind, make in WRONG.items():
        if parameter in CALLBACKS and kind in ("class", "function"):
            continue
        keywords = {
            each.name: DEFAULTS.get(each.name) for each in parameters_of(function) if each.default is each.empty
        }
        names = {each.name for each in parameters_of(function)}
        if "store" in names and owner is None:
            keywords["store"] = scene["store"]
        if "folder" in names:
            keywords["folder"] = str(tmp_path)
        if "source" in keywords:
            keywords["source"] = pa.table({"n": [1]})
        keywords[parameter] = make()
        arguments = [] if owner is None else [scene[owner]()]
        problem = problem_of(lambda: function(*arguments, **keywords))  # noqa: B023 - called at once
        if problem is not None:
            problems.append(f"{parameter}={kind}: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("keyword", STREAM_KEYWORDS)
def test_wrong_stream_keywords_raise_typed_errors(scene: dict[str, Any], keyword: str) -> None:
    problems = []
    for kind, make in WRONG.items():
        if keyword in CALLBACKS and kind in ("class", "function"):
            continue
        keywords: Any = {"batch_size": 2, keyword: make()}
        problem = problem_of(lambda: scene["Dataset"]().stream(**keywords))  # noqa: B023 - called at once
        if problem is not None:
            problems.append(f"{keyword}={kind}: {problem}")
    assert not problems, "\n".join(problems)


CONSTRUCTED = [
    value
    for value in (getattr(wd, name) for name in wd.__all__)
    if inspect.isclass(value) and dataclasses.is_dataclass(value) and value.__module__ not in RETURNED
]
FIELDS = [pytest.param(cls, each.name, id=f"{cls.__name__}-{each.name}") for cls in CONSTRUCTED for each in fields(cls)]


@pytest.mark.parametrize(("constructed", "field"), FIELDS)
def test_wrong_fields_of_what_callers_construct_raise_typed_errors(
    constructed: type[Any], field: str, tmp_path: Path
) -> None:
    required: dict[str, Any] = {"store_url": f"{tmp_path}/store", "cache_dir": tmp_path / "cache", "dim": 3}
    required |= {"block_rows": 4, "window_blocks": 2}
    required |= {"class_name": "cat", "x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0}
    required |= {"points": [(0, 0), (4, 0), (4, 3)], "rle": {"size": [2, 2], "counts": [4]}}
    given = {each.name: required[each.name] for each in fields(constructed) if each.name in required}
    constructed(**given)
    problems = []
    for kind, make in WRONG.items():

        def construct() -> object:
            value = constructed(**{**given, field: make()})  # noqa: B023 - called at once
            if isinstance(value, wd.Settings):
                wd.connect("s3://bucket/lake", settings=value)
                return wd.DatasetBuilder("a/b", settings=value).add_table("main", pa.table({"n": [1]})).plan()
            return wd.Schema(x=value) if hasattr(value, "required") else repr(value)

        problem = problem_of(construct)
        if problem is not None:
            problems.append(f"{field}={kind}: {problem}")
    assert not problems, "\n".join(problems)


def test_the_cases_of_the_audit(scene: dict[str, Any]) -> None:
    dataset, table = scene["Dataset"](), scene["Table"]()
    for call in (
        lambda: dataset.table(5),
        lambda: table.filter(None),
        lambda: wd.dataset(None),  # type: ignore[arg-type]
        lambda: wd.DatasetBuilder("a/c", scene["store"]).add_artifact("raw", 5).plan(),  # type: ignore[arg-type]
        lambda: wd.DatasetBuilder("a/c", scene["store"]).add_table(5, pa.table({"n": [1]})),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadInputError):
            call()
    assert next(table.batches(columns="n")).schema.names == ["n"]
    assert set(next(iter(dataset.stream(columns="n", batch_size=2)))) == {"n"}
