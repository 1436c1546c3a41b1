"""If this fails, a damaged table or a forged token ends a run with an untyped error, or takes all memory."""

from __future__ import annotations

import copy
import json
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.datasets.table_source import choose_shuffle
from warpdata.errors import BadInputError, CorruptError, LimitExceededError, WarpError
from warpdata.limits import GIB, MAX_SHUFFLE_BLOCKS
from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.manifest import canonical_json
from warpdata.streaming import Columns, LoadedRows, Order, ShuffleBuffer

ROWS = 20


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> wd.Stream:
    store = tmp_path_factory.mktemp("tokens").as_uri()
    publish = wd.DatasetBuilder("a/t", store).append_table("main", pa.table({"id": range(ROWS)})).publish
    publish()
    return wd.dataset("a/t", store=store).stream(batch_size=4, shuffle=wd.Shuffle(2, 3), seed=1, collate="dict")


@pytest.fixture
def bounded_memory() -> Iterator[None]:
    """A forged size fails at once instead of filling the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 * GIB, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def invalid_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ok\xff\xfe")])


@pytest.mark.parametrize(
    "column", [invalid_text(), pa.StructArray.from_arrays([invalid_text()], ["inner"])], ids=["text", "nested"]
)
def test_invalid_text_is_a_typed_error(column: pa.Array) -> None:
    rows = pa.table({"id": [1, 2], "words": column})
    with pytest.raises(CorruptError, match=r"column 'words'(.|\n)*UTF-8(.|\n)*collate='arrow'"):
        Columns.of(LoadedRows(rows, {}))


def test_a_shard_with_fewer_rows_than_promised_is_a_typed_error() -> None:
    def load(samples: Any, _needed: Any) -> LoadedRows:
        return LoadedRows(pa.table({"id": samples[:-1]}), {})

    executor = IO_POOL.executor(1)
    buffer = ShuffleBuffer(Order(8, None, 0, 0), load, executor, np.arange, sample_bytes=8.0)
    with pytest.raises(CorruptError, match="7 rows"):
        buffer.samples(0, 8)


def forged(stream: wd.Stream, after: Any, *, epoch: Any = 0, done: Any = 0) -> dict[str, Any]:
    """Return a token whose hash fits its content."""
    token = copy.deepcopy(stream.state_dict())
    token["plan"] |= {"after": after, "epoch": epoch}
    token |= {"epoch": epoch, "samples_done": done}
    with suppress(WarpError):
        token["plan_hash"] = sha256_hex(canonical_json(token["plan"]))
    return token


sizes = st.sampled_from([0, 1, 2, 7, 2**31, 2**40, 2**53 - 1, 2**62, 2**63, 2**80, -1, 1.5, True, "2", None])
segments = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["own", "0" * 64, "main", "", 5]), st.lists(sizes, max_size=4), sizes).map(list),
        st.tuples(st.sampled_from(["own", "0" * 64]), st.none(), sizes).map(list),
        sizes,
        st.lists(sizes, max_size=4),
    ),
    max_size=3,
)


@example([["own", [2**40, 1], 1]], 0, 0)
@given(segments, sizes, sizes)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("bounded_memory")
def test_a_forged_token_is_refused_or_resumes(stream: wd.Stream, after: list[Any], epoch: Any, done: Any) -> None:
    version = stream.identity.document()["version"]
    after = [[version, *part[1:]] if isinstance(part, list) and part[:1] == ["own"] else part for part in after]
    try:
        stream.load_state_dict(forged(stream, after, epoch=epoch, done=done))
    except WarpError:
        return
    assert sum(len(batch["id"]) for batch in stream) <= ROWS


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5) | st.floats(), st.lists, max_leaves=5), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_token_with_any_wrong_value_is_refused(stream: wd.Stream, value: Any, data: st.DataObject) -> None:
    token = stream.state_dict()
    target = data.draw(st.sampled_from([token, token["plan"]]))
    target[data.draw(st.sampled_from(sorted(target)))] = value
    try:
        stream.load_state_dict(token)
    except BadInputError:
        return
    json.dumps(stream.state_dict())


def test_a_token_with_a_long_plan_has_a_short_error(stream: wd.Stream) -> None:
    token = copy.deepcopy(stream.state_dict())
    token["plan"]["filter"] = "x" * 1_000_000
    token["plan_hash"] = "0" * 64
    with pytest.raises(BadInputError, match="filter") as caught:
        stream.load_state_dict(token)
    assert len(str(caught.value)) < 2_000


def test_a_token_of_endless_segments_is_refused(stream: wd.Stream) -> None:
    version = stream.identity.document()["version"]
    with pytest.raises(LimitExceededError, match="segments"):
        stream.load_state_dict(forged(stream, [[version, [2, 3], 0]] * 100_000))


@pytest.mark.parametrize("numbers", [(1.5, 2), ("2", 2), (True, 2), (2**60, 2), (2, 2**60), (2, 2, 2**60)])
def test_a_shuffle_of_impossible_sizes_is_refused(numbers: tuple[Any, ...]) -> None:
    with pytest.raises(BadInputError):
        wd.Shuffle(*numbers)


@pytest.mark.usefixtures("bounded_memory")
def test_blocks_larger_than_the_table_cost_nothing() -> None:
    order = Order(ROWS, wd.Shuffle(2**50, 2**50, 2**50), 3, 0)
    assert sorted(order.samples(0, ROWS).tolist()) == list(range(ROWS))


def test_too_many_blocks_are_refused_before_they_are_made() -> None:
    order = Order(2**45, wd.Shuffle(1, 2**20), 3, 0)
    with pytest.raises(LimitExceededError, match=f"{MAX_SHUFFLE_BLOCKS:,}(.|\n)*block_rows"):
        order.samples(0, 1)


def test_a_false_row_count_does_not_take_memory(tmp_path: Path) -> None:
    """The number of rows of a foreign manifest is known to be false only when a shard is open."""
    wd.DatasetBuilder("a/t", tmp_path.as_uri()).add_table("main", pa.table({"id": range(ROWS)})).publish()
    table = wd.dataset("a/t", store=tmp_path.as_uri()).table()
    (shard,) = table.entry.shards.shards
    shards = replace(table.entry.shards, shards=(msgspec.structs.replace(shard, row_count=2**40),))
    chosen = choose_shuffle(replace(table, entry=replace(table.entry, shards=shards)), 1e-6, 1e-6)
    assert 2**40 / chosen.block_rows <= MAX_SHUFFLE_BLOCKS / 4
