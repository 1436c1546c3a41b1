"""If this fails, SQL over published tables gives other rows than the tables, or a query reaches beyond them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.errors import BadInputError, CorruptError, ErrorKind, LimitExceededError, NotFoundError
from warpdata.primitives.hashing import blob_key
from warpdata.query import list_sources
from warpdata.session import Session

ROWS = 3000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("sql"))
    photos = pa.table({"user": [n % 3 for n in range(ROWS)], "label": ["cat", "dog"] * (ROWS // 2), "x": range(ROWS)})
    users = pa.table({"user": [0, 1], "name": ["ann", "bob"]})
    wd.DatasetBuilder("acme/photos", root).add_table("main", photos).add_table("tags", users).publish(label="v1")
    wd.DatasetBuilder("acme/users", root).add_table("people", users).publish()
    wd.DatasetBuilder("acme/photos", root).append_table("main", photos.slice(0, 1)).publish()
    return root


def ask(store: str, query: str, parameters: Any = None, **settings: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = wd.sql(query, parameters, store=store, **settings).to_pylist()
    return found


def test_tables_of_versions_are_joined(store: str) -> None:
    query = (
        "SELECT u.name, count(*) AS n FROM 'acme/photos@v1' a JOIN 'acme/users' u USING (user) GROUP BY 1 ORDER BY 1"
    )
    assert ask(store, query) == [{"name": "ann", "n": 1000}, {"name": "bob", "n": 1000}]
    assert ask(store, "SELECT count(*) AS n FROM 'acme/photos'") == [{"n": ROWS + 1}]
    assert ask(store, "SELECT count(*) AS n FROM 'acme/photos@main~1'") == [{"n": ROWS}]
    assert ask(store, "SELECT name FROM 'acme/photos@v1/tags' WHERE user = 1") == [{"name": "bob"}]
    assert ask(store, "WITH t AS (FROM 'acme/photos') SELECT max(x) AS m FROM t") == [{"m": ROWS - 1}]
    assert ask(store, "SELECT (SELECT min(x) FROM 'acme/photos') AS a") == [{"a": 0}]
    assert ask(store, "SELECT 1 AS a") == [{"a": 1}]


def test_parameters_by_position_and_by_name(store: str) -> None:
    assert ask(store, "SELECT x FROM 'acme/photos@v1' WHERE x < ? AND label = ?", [4, "dog"]) == [{"x": 1}, {"x": 3}]
    assert ask(store, "SELECT x FROM 'acme/photos@v1' WHERE x = $n", {"n": 7}) == [{"x": 7}]


@given(low=st.integers(-5, 3005), high=st.integers(-5, 3005), user=st.integers(0, 3))
def test_filters_that_duckdb_hands_on_keep_the_right_rows(store: str, low: int, high: int, user: int) -> None:
    query = "SELECT x FROM 'acme/photos@v1' WHERE x >= ? AND x < ? AND user = ? ORDER BY x"
    expected = [n for n in range(ROWS) if low <= n < high and n % 3 == user]
    assert [row["x"] for row in ask(store, query, [low, high, user])] == expected


def test_only_needed_columns_are_read(store: str) -> None:
    read: list[tuple[str, ...]] = []
    table = wd.dataset("acme/photos@v1", store=store).table()
    original = type(table).select

    def spy(self: Any, columns: Any) -> Any:
        read.append(tuple(columns))
        return original(self, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(table), "select", spy)
        ask(store, "SELECT sum(x) FROM 'acme/photos@v1' WHERE user = 1")
    assert {name for columns in read for name in columns} == {"x", "user"}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM 'secret.parquet'",
        "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
        "SELECT * FROM parquet_metadata('{file}')",
        "SELECT * FROM read_text('http://127.0.0.1:1/x')",
        "SELECT getenv('HOME')",
        "SELECT * FROM hidden",
        "ATTACH '{file}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "RESET memory_limit",
        "PRAGMA threads = 1",
        "COPY (SELECT 1) TO '{file}.csv'",
        "COPY 'acme/photos' TO '{file}.csv'",
        "EXPORT DATABASE '{file}.d'",
        "CREATE TABLE t AS SELECT 1",
        "CREATE SECRET (TYPE s3)",
        "INSERT INTO t VALUES (1)",
        'DROP VIEW "acme/photos"',
        "CALL pragma_version()",
        "USE memory",
        "SELECT 1; SELECT 2",
        "SELECT 1; ATTACH '{file}'",
        "PREPARE p AS SELECT 1",
        "CHECKPOINT",
        "VACUUM",
        "",
        "  ;",
        "-- nothing",
    ],
)
def test_a_query_reads_published_tables_and_nothing_else(store: str, tmp_path: Path, query: str) -> None:
    hidden = pa.table({"password": [1]})
    file = tmp_path / "secret"
    file.write_text("password")
    with pytest.raises(BadInputError):
        wd.sql(query.replace("{file}", str(file)), store=store)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret"]
    assert hidden.num_rows == 1


def test_a_query_sees_no_stored_secret(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with duckdb.connect(config={"secret_directory": f"{tmp_path}/.duckdb/stored_secrets"}) as connection:
        connection.execute("CREATE PERSISTENT SECRET web (TYPE http, BEARER_TOKEN 'hush')")
    for query in ("SELECT * FROM duckdb_secrets()", "SELECT * FROM which_secret('http://x', 'http')"):
        assert wd.sql(query, store=store).num_rows == 0


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ("SELECT " + "[" * 150 + "1" + "]" * 150, "Recursion level"),
        ("SELECT " + "not " * 900 + "true FROM 'acme/photos'", "nested too deeply"),
        ("SELECT " + "+".join(["x"] * 900) + " FROM 'acme/photos'", "nested too deeply"),
        ("FROM 'acme/photos' WHERE " + " OR ".join(f"x = {n}" for n in range(9000)), "more than 1,000 conditions"),
        ("FROM 'acme/photos' WHERE " + " AND ".join(f"x <> {n}" for n in range(9000)), "more than 1,000 conditions"),
    ],
    ids=["list", "not", "sum", "or", "and"],
)
def test_deep_and_wide_queries_are_refused(store: str, query: str, match: str) -> None:
    """The wide ones end the process with a full stack, if Arrow evaluates them."""
    with pytest.raises(BadInputError, match=match) as raised:
        wd.sql(query, store=store)
    assert raised.value.kind == ErrorKind.INVALID_QUERY
    conditions = " OR ".join(f"x = {n}" for n in range(500))
    assert wd.sql(f"SELECT count(*) AS n FROM 'acme/photos' WHERE {conditions}", store=store)["n"][0].as_py() > 499


TOO_LONG = [
    "SELECT printf('%1000000000d', x) FROM 'acme/photos'",
    "SELECT length(format('{:>300000000}', x)) FROM 'acme/photos'",
    "SELECT x FROM 'acme/photos' ORDER BY length(rpad('x', 300000000, '-'))",
    "SELECT x FROM 'acme/photos' WHERE EXISTS (SELECT repeat('x', 99999999))",
    "WITH t AS (SELECT repeat('x', 10000) AS s) SELECT repeat(s, 10000) FROM t",
    "VALUES (repeat('x', 1000000000))",
    "SELECT label.repeat(900000000) FROM 'acme/photos'",
    "SELECT length(a.label.rpad(900000000, '-')) FROM 'acme/photos' a",
    "SELECT repeat('x', x) FROM 'acme/photos'",
    "SELECT printf('%*d', x, x) FROM 'acme/photos'",
    "SELECT length(lpad('x', greatest(x, 100), '-')) FROM 'acme/photos'",
    "SELECT sum(length(repeat('x', r))) FROM range(10) t(r)",
]
"""DuckDB's memory limit does not cover these texts: the first one ends the process."""


@pytest.mark.parametrize("query", TOO_LONG)
def test_texts_of_a_query_have_a_bound(store: str, query: str) -> None:
    with pytest.raises(BadInputError, match=r"the query (makes texts|calls)") as raised:
        wd.sql(query, store=store)
    assert raised.value.kind == ErrorKind.INVALID_QUERY


@pytest.mark.parametrize(
    "query",
    [
        "SELECT printf('%08.3f', user::DOUBLE), lpad(label, 8, '0') FROM 'acme/photos'",
        "SELECT repeat('*', least(user, 50)), replace(label, 'a', label) FROM 'acme/photos'",
        "SELECT sum(r) FROM range(10000000) t(r)",
        "SELECT unnest(generate_series(DATE '2020-01-01', DATE '2020-03-01', INTERVAL 1 DAY))",
        "WITH t AS (SELECT rpad('x', 100, '-') AS s) SELECT string_agg(s, ',') || (SELECT max(s) FROM t) FROM t",
    ],
)
def test_texts_and_lists_of_usual_sizes_are_made(store: str, query: str) -> None:
    assert wd.sql(query, store=store).num_rows > 0


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("SELECT\n  nope FROM 'acme/photos'", "line 2, column 3"),
        ("SELECT x,, FROM 'acme/photos'", "line 1, column 10"),
        ("SELECT 'abc'::int", "line 1"),
    ],
)
def test_errors_have_a_place(store: str, query: str, where: str) -> None:
    with pytest.raises(BadInputError, match=where) as caught:
        wd.sql(query, store=store)
    assert caught.value.kind is ErrorKind.INVALID_QUERY
    assert caught.value.hint


def test_unknown_names_suggest_known_ones(store: str) -> None:
    for query, expected in (
        ("FROM 'acme/fotos'", "acme/photos"),
        ("FROM 'acme/photos/tagz'", "tags"),
        ("FROM 'acme/photos@mian'", "main"),
    ):
        with pytest.raises(NotFoundError) as caught:
            wd.sql(query, store=store)
        assert expected in str(caught.value.hint)
    with pytest.raises(BadInputError, match="ignores case"):
        list_sources("SELECT * FROM 'a/b@V1', 'a/b@v1'")


def test_memory_and_results_are_bounded(store: str) -> None:
    with pytest.raises(LimitExceededError):
        ask(store, "SELECT a.x, list(b.label) FROM 'acme/photos' a, 'acme/photos' b GROUP BY 1", memory_limit="30MB")
    with pytest.raises(BadInputError) as caught:
        ask(store, "SELECT a.x FROM 'acme/photos' a, 'acme/photos' b")
    assert caught.value.kind is ErrorKind.LARGE_EXPORT
    reader = wd.sql_reader("SELECT a.x FROM 'acme/photos' a, 'acme/photos' b", store=store)
    assert next(iter(reader)).num_rows > 0
    reader.close()


def test_corrupt_bytes_are_an_error_and_no_row() -> None:
    session = link(memory("sql-corrupt"))
    wd.DatasetBuilder("a/b", session).add_table("main", pa.table({"n": range(50_000)})).publish()
    blob = next(iter(_dataset(session).blobs()))
    data = bytearray(session.writer.read(blob_key(blob.hash)).data)
    data[200] ^= 0xFF
    session.writer.replace(blob_key(blob.hash), bytes(data))
    with pytest.raises(CorruptError):
        wd.sql("SELECT sum(n) FROM 'a/b'", store=session)


def _dataset(session: Session) -> wd.Dataset:
    from warpdata.datasets import open_dataset
    from warpdata.repository.catalog import parse_address

    return open_dataset(session, parse_address("a/b"))


def test_queries_run_in_several_threads_and_after_a_fork(store: str) -> None:
    """A process of its own, because threads of other tests would make the fork unsafe."""
    code = f"""
import concurrent.futures, warpdata as wd
ask = lambda n: wd.sql("SELECT count(*) AS n FROM 'acme/photos@v1' WHERE user = ?", [n], store={store!r}).to_pylist()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sorted(str(each) for each in pool.map(ask, [0, 1, 2, 3])))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.count("1000") == 3
