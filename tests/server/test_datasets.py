"""If this fails, the service tells something else about a dataset than its store does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.server.conftest import Scene, publish
from warpdata.server import create_user, synchronize
from warpdata.server.cells import json_rows
from warpdata.server.database import DatasetRow, ServiceTable, open_database
from warpdata.server.samples import SamplePosition

API = "/api/v1"
PETS = f"{API}/datasets/acme/pets"


def pages(scene: Scene, **query: Any) -> list[dict[str, Any]]:
    """Return all samples of a paged read."""
    found, cursor = [], None
    for _ in range(50):
        answer = scene["ana"].get(f"{PETS}/samples", params={**query, **({"cursor": cursor} if cursor else {})})
        assert answer.status_code == 200, answer.text
        found += answer.json()["samples"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize(("expression", "limit"), [(None, 3), ("label = 'cat'", 2), ("number > 5", 1), ("false", 5)])
def test_pages_are_the_rows_of_the_library(local: Scene, expression: str | None, limit: int) -> None:
    table = wd.dataset("acme/pets", store=local.store).table().raw()
    wanted = (table.filter(expression) if expression else table).to_arrow().to_pylist()
    query = {"limit": limit, **({"filter": expression} if expression else {})}
    found = [one["values"] for one in pages(local, **query)]
    assert json.dumps(found) == json.dumps(wanted).replace("NaN", '"NaN"')


def test_pages_stay_at_their_version(scene: Scene) -> None:
    first = scene["ana"].get(f"{PETS}/samples", params={"limit": 4}).json()
    with wd.dataset("acme/pets", store=scene.store).edit("fewer") as edit:
        edit.delete("main", "number < 8")
    after = scene["ana"].get(f"{PETS}/samples", params={"limit": 100}).json()
    assert (first["total"], after["total"]) == (10, 2)
    rest = scene["ana"].get(f"{PETS}/samples", params={"limit": 100, "cursor": first["next_cursor"]}).json()
    assert rest["version"] == first["version"] != after["version"]
    assert [one["row"] for one in rest["samples"]] == [4, 5, 6, 7, 8, 9]
    assert [one["id"] for one in after["samples"]] == [8, 9]  # sample ids stay, row numbers do not


@pytest.mark.parametrize("cursor", ["x", "e30", "W10", "WzEsMiwzXQ", "a" * 1000, "WyIiLCIiLC0xXQ"])
def test_forged_cursors_are_refused(local: Scene, cursor: str) -> None:
    assert local["ana"].get(f"{PETS}/samples", params={"cursor": cursor}).status_code == 422


def test_a_cursor_is_for_one_question(local: Scene) -> None:
    cursor = local["ana"].get(f"{PETS}/samples", params={"limit": 1}).json()["next_cursor"]
    other = local["ana"].get(f"{PETS}/samples", params={"cursor": cursor, "filter": "number > 1"})
    assert (other.status_code, other.json()["code"]) == (422, "token_mismatch")
    secret = wd.dataset("rival/secret", store=local.store).version
    forged = SamplePosition(secret, SamplePosition.decode(cursor).question, 0).encode()
    assert local["ana"].get(f"{PETS}/samples", params={"cursor": forged}).status_code == 404


def test_bad_filters_are_explained(local: Scene) -> None:
    bad = ("nope = 1", "label =", "1; DROP TABLE x", "label = (SELECT 1)", "\u0000", "read_csv('/etc/passwd')")
    for expression in bad:
        answer = local["ana"].get(f"{PETS}/samples", params={"filter": expression})
        assert answer.status_code in (404, 422), (expression, answer.text)
        assert answer.json()["detail"]


def test_statistics_equal_an_independent_count(local: Scene) -> None:
    found = local["ana"].get(f"{PETS}/stats", params={"columns": ["label", "number", "score"], "filter": "number > 2"})
    label, number, score = found.json()["columns"]
    assert label["top"] == [{"value": "cat", "count": 4}, {"value": "dog", "count": 3}]
    assert (number["rows"], number["minimum"], number["maximum"], number["mean"]) == (7, 3, 9, 6.0)
    assert sum(one["count"] for one in number["histogram"]) == 7
    assert (score["minimum"], score["maximum"]) == (2.0, 4.5)  # NaN is no number
    assert sum(one["count"] for one in score["histogram"]) == 6


def test_history_and_names(scene: Scene) -> None:
    ana = scene["ana"]
    first = ana.get(f"{PETS}/head").json()["version"]
    assert ana.post(f"{PETS}/labels", json={"name": "v1"}).status_code == 201
    assert ana.post(f"{PETS}/branches", json={"name": "trial", "ref": "v1"}).status_code == 201
    assert [(one["kind"], one["name"]) for one in ana.get(f"{PETS}/refs").json()["refs"]] == [
        ("branch", "main"),
        ("branch", "trial"),
        ("label", "v1"),
    ]
    with wd.dataset("acme/pets", store=scene.store).edit("fewer") as edit:
        edit.delete("main", "number < 8")
    diff = ana.get(f"{PETS}/diff", params={"from": "v1", "to": "main"}).json()
    assert diff["samples"] == {"added": 0, "removed": 8}
    stale = ana.patch(f"{PETS}/head", json={"ref": "v1"}, headers={"If-Match": f'"{first}"'})
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    now = ana.get(f"{PETS}/head").headers["etag"]
    assert ana.patch(f"{PETS}/head", json={"ref": "v1"}, headers={"If-Match": now}).json()["version"] == first
    commits = ana.get(f"{PETS}/commits").json()["commits"]
    assert commits[0]["author"] == "ana"
    page = ana.get(f"{PETS}/commits", params={"limit": 2}).json()
    rest = ana.get(f"{PETS}/commits", params={"cursor": page["next_cursor"]}).json()
    assert page["commits"] + rest["commits"] == commits
    assert ana.delete(f"{PETS}/refs/v1").status_code == 204
    assert ana.get(PETS, params={"ref": "v1"}).json()["code"] == "ref_not_found"


def test_an_empty_database_gives_the_same_answers_after_a_reindex(
    make_scene: Callable[..., Scene], database_url: str, tmp_path: Path
) -> None:
    """The store is the truth: byte for byte, all that the index answers comes from it."""
    scene = make_scene(database_url)
    publish(scene.store, "acme/birds", 4)
    with wd.dataset("acme/pets", store=scene.store).edit("fewer") as edit:
        edit.delete("main", "number < 8")
    synchronize(scene.service)
    again = make_scene(f"sqlite:///{tmp_path}/again.db")
    asked = [
        f"{API}/datasets",
        f"{API}/datasets?limit=1",
        f"{API}/datasets?contains=pet",
        f"{API}/workspaces",
        *(f"{PETS}{rest}" for rest in ("", "/schema", "/refs", "/commits", "/head", "/samples")),
        f"{PETS}/stats?columns=label",
    ]
    for url in asked:
        assert scene["root"].get(url).content == again["root"].get(url).content, url
    assert scene["root"].get(f"{API}/datasets").json()["datasets"][1]["rows"] == 2


def test_the_index_follows_the_store(scene: Scene) -> None:
    publish(scene.store, "acme/birds", 4)
    wd.remove("acme/pets", store=scene.store)
    done = synchronize(scene.service)
    assert (done.datasets, done.changed, done.removed) == (2, 1, 1)
    assert [one["id"] for one in scene["ana"].get(f"{API}/datasets").json()["datasets"]] == ["acme/birds"]
    assert synchronize(scene.service).changed == 0
    with scene.service.database.read() as db:
        assert db.get(DatasetRow, "acme/pets") is None


def test_lists_are_paged(local: Scene) -> None:
    for name in ("a", "b", "c"):
        publish(local.store, f"acme/{name}", 1)
    synchronize(local.service)
    found: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(10):
        page = local["ana"].get(f"{API}/datasets", params={"limit": 2, **cursor}).json()
        found += [one["id"] for one in page["datasets"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert found == ["acme/a", "acme/b", "acme/c", "acme/pets"]


def test_fifty_writers_at_once(local: Scene) -> None:
    """SQLite has one writer at a time. None of the others may fail."""

    def write(number: int) -> str:
        return create_user(local.service, f"user-{number}").id

    with ThreadPoolExecutor(50) as pool:
        assert len(set(pool.map(write, range(200)))) == 200


def test_two_connections_write_at_once(local: Scene, tmp_path: Path) -> None:
    """Two processes have no lock in common but that of the file."""
    others = [Scene(local.service, local.store) for _ in range(4)]
    databases = [open_database(f"sqlite:///{tmp_path}/local.db") for _ in others]

    def write(numbered: tuple[int, int]) -> None:
        place, number = numbered
        with databases[place].write() as db:
            row = DatasetRow(id=f"w/{place}-{number}", workspace="w", name="x", version="", commit="", updated="")
            row.row_count, row.size_bytes, row.file_count, row.sections = 0, 0, 0, {}
            db.merge(row)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, itertools.product(range(4), range(25))))
    with local.service.database.read() as db:
        assert db.query(DatasetRow).where(DatasetRow.workspace == "w").count() == 100


def test_migrations_make_the_tables_of_the_code(database_url: str) -> None:
    database = open_database(database_url)
    open_database(database_url).close()  # a second start changes nothing
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), ServiceTable.metadata) == []
    database.close()


@given(
    st.lists(st.one_of(st.none(), st.floats(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary()), max_size=3)
)
def test_rows_become_json_that_every_parser_reads(values: list[Any]) -> None:
    columns = {str(at): pa.array([value]) for at, value in enumerate(values)}
    for row, _ in json_rows(pa.table(columns)):
        text = json.dumps(row, allow_nan=False)
        for at, value in enumerate(values):
            read = json.loads(text)[str(at)]
            if isinstance(value, bytes):
                assert read == {"size_bytes": len(value)}
            elif isinstance(value, float) and abs(value) == float("inf"):
                assert float(read) == value
            elif value == value:
                assert read == value


def test_long_cells_are_cut_and_say_so() -> None:
    table = pa.table({"text": ["x" * 20_000], "list": [list(range(5000))], "short": ["x"]})
    ((row, cut),) = json_rows(table)
    assert cut == ["text", "list"]
    assert (len(row["text"]), len(row["list"])) == (16_384, 4096)
