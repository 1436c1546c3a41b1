"""If this fails, an address names another version than its documentation says, or two spellings clash."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.faults.scenes import link, memory, rows
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import BadInputError, NotFoundError
from warpdata.repository.catalog import Address, parse_address
from warpdata.repository.catalog.names import parse_ref
from warpdata.session import Session
from warpdata.storage import Writer

BEGIN = datetime(2026, 11, 1, 12, tzinfo=UTC)


def at(store: Writer, hours: int) -> Session:
    return replace(link(store, hours), clock=lambda: BEGIN + timedelta(hours=hours))


def make(name: str) -> tuple[Writer, list[str]]:
    """Publish five versions, one each hour from 2026-11-01T12:00Z on."""
    store, versions = memory(name), []
    for hour in range(5):
        done = wd.DatasetBuilder("a/b", at(store, hour)).add_table("main", rows(hour)).publish()
        versions.append(done.version)
    return store, versions


def opened(store: Writer, ref: str) -> Dataset:
    return open_dataset(link(store), parse_address(f"a/b@{ref}"))


def test_steps_back_and_times_from_every_kind_of_name() -> None:
    store, versions = make("addresses")
    opened(store, "main~1").snapshot("v4")
    opened(store, "v4").branch("exp")
    expected = {
        "main~0": 4,
        "main~4": 0,
        "v4": 3,
        "v4~1": 2,
        "exp~3": 0,
        f"{versions[2]}~2": 0,
        f"{versions[2][:10]}~1": 1,
        "2026-11-01T12:00Z": 0,
        "2026-11-01T13:59:59.999Z": 1,
        "2026-11-01T16:00+02:00": 2,
        "2026-11-02": 4,
        "main@2026-11-02": 4,
        "v4@2026-11-02": 3,
        "exp@2026-11-01T12:30Z": 0,
    }
    for ref, number in expected.items():
        assert opened(store, ref).version == versions[number], ref
    assert [entry.version for entry in opened(store, "main~2").history()] == versions[2::-1]


def test_a_label_named_like_a_day_wins_over_the_day() -> None:
    store, versions = make("days")
    assert opened(store, "2026-11-02").version == versions[4]
    opened(store, "main~3").snapshot("2026-11-02")
    assert opened(store, "2026-11-02").version == versions[1]
    assert opened(store, "main@2026-11-02").version == versions[4]


@pytest.mark.parametrize(
    "ref", ["main~5", "2026-11-01", "2026-11-01T11:59Z", "main@2020-01-01", "nope~1", "nope@2026-11-02"]
)
def test_what_is_not_there_is_said(ref: str) -> None:
    store, _ = make(f"absent-{ref}")
    with pytest.raises(NotFoundError) as caught:
        opened(store, ref)
    assert "a/b" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "ref",
    [
        "",
        "~",
        "~1",
        "main~",
        "main~-1",
        "main~1~2",
        "main~x",
        "main~1234567890",
        "@",
        "main@",
        "main@v1",
        "main~1@2026-11-01",
        "2026-11-01T12:00",
        "main:1",
        "a/b",
        "2026-13-01T12:00Z",
        "main@2026-02-30",
        "2026-11-01T12Z:",
        "main@2026-11-01@x",
    ],
)
def test_malformed_refs_are_refused_before_any_request(ref: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_address(f"a/b@{ref}")
    assert caught.value.hint


@given(st.text(alphabet="am1~@:-TZ0", max_size=20))
def test_every_text_is_a_ref_or_refused(text: str) -> None:
    try:
        address = parse_address(f"a/b@{text}")
    except BadInputError:
        return
    assert str(address) == f"a/b@{text}"
    assert address == Address("a/b", text)
    steps = parse_ref(text)
    assert not (steps.back and steps.time)
    assert (steps.time is not None) == (":" in text or "@" in text)
