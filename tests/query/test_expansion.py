"""If this fails, a filter of a few characters takes all memory of the machine."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

from warpdata.errors import BadInputError, LimitExceededError
from warpdata.query import Evaluator, parse_filter

SCHEMA = pa.schema([("s", pa.string()), ("a", pa.int64()), ("l", pa.list_(pa.int64()))])


@pytest.mark.parametrize(
    "expression",
    [
        "printf('%1000000000d', a) = 'x'",
        "printf('%*d', 1000000000, a) = 'x'",
        "printf(s, a) = 'x'",
        "format('{:1000000000}', a) = 'x'",
        "format('{:{}}', a, 1000000000) = 'x'",
        "repeat(s, 1000000000) = 'x'",
        "repeat('x', 1000000000) = s",
        "main.Repeat(s, 1000000000) = 'x'",
        "s.repeat(1000000000) = 'x'",
        "repeat(repeat(s, 10000), 10000) = 'x'",
        "repeat(s, a) = 'x'",
        "repeat(s, 1000 * 1000000) = 'x'",
        "repeat([a], 100000000)[1] = 3",
        "lpad(s, 1000000000, 'x') = 'y'",
        "rpad(s, a, 'x') = 'y'",
        "bar(a, 0, 10, 1000000000) = 'x'",
        "len(range(1000000000)) > 3",
        "len(range(-1000000000, 0)) > 3",
        "len(generate_series(0, a)) > 3",
        "len(range(least(a, 5), 10)) > 3",
        "repeat(s, least(a, 1000000000)) = 'x'",
        "repeat(s, greatest(a, 5)) = 'x'",
        "repeat(s, least(a, NULL)) = 'x'",
        "list_resize(l, 100000000)[1] = 3",
        "bitstring('1', 1000000000) = bitstring('1', 5)",
        "to_base(a, 2, 1000000000) = '1'",
        f"replace(s, 'a', '{'b' * 60_000}') = repeat(s, 50)",
        "CAST([l] AS BIGINT[100000][100])[1][1] = 3",
        "sleep_ms(1000000) = 3",
    ],
)
def test_a_filter_without_a_bound_is_refused_before_it_runs(expression: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInputError):
        parse_filter(expression, SCHEMA)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 256 * 1024


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("lpad(s, 4, '0') = '00ab'", [0]),
        ("repeat(s, least(2, a + 2)) = 'abab'", [0]),
        ("printf('%05d', a) = '00001'", [1]),
        ("format('{:>3}', a) = '  0'", [0]),
        ("repeat(s, 3) = 'cdcdcd'", [1]),
        ("a < 5 AND s.repeat(3) = 'cdcdcd'", [1]),
        ("list_contains(range(5), a)", [0, 1]),
        ("replace(s, 'a', 'xyz') = 'xyzb'", [0]),
        ("regexp_replace(s, '[ac]', '-', 'g') LIKE '-%'", [0, 1]),
        ("array_to_string(l, ', ') = '1, 2'", [0, 1]),
    ],
)
def test_functions_with_small_results_work(expression: str, kept: list[int]) -> None:
    rows = pa.table({"s": ["ab", "cd"], "a": [0, 1], "l": [[1, 2], [1, 2]]}, schema=SCHEMA)
    row_filter = parse_filter(expression, SCHEMA)
    assert Evaluator(row_filter).mask(rows.select(list(row_filter.columns))).nonzero()[0].tolist() == kept


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is read from /proc")
def test_rows_that_expand_are_evaluated_a_few_at_a_time() -> None:
    """One vector of 2,048 rows would need 400 MB for the texts alone, and several copies of them."""
    script = """
        import re
        from pathlib import Path
        import pyarrow as pa
        from warpdata.query import Evaluator, parse_filter

        rows = pa.table({"s": [str(n % 10) * 100 for n in range(4000)]})
        row_filter = parse_filter("length(repeat(s, 2000)) = 200000 AND s LIKE '3%'", rows.schema)
        mask = Evaluator(row_filter, use_kernels=False).mask(rows)
        assert mask.nonzero()[0].tolist() == list(range(3, 4000, 10))
        peak_kb = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
        assert peak_kb < 400 * 1024, peak_kb
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=100)


def test_one_row_that_expands_too_far_is_refused() -> None:
    rows = pa.table({"s": ["a", "b" * 300_000]})
    row_filter = parse_filter("repeat(s, 5000) = 'x'", rows.schema)
    assert Evaluator(row_filter).mask(rows.slice(0, 1)).tolist() == [False]
    with pytest.raises(LimitExceededError, match="for one row"):
        Evaluator(row_filter).mask(rows)


def test_a_filter_that_is_nested_too_deeply_is_refused() -> None:
    for expression in ("NOT " * 10_000 + "a = 1", "(" * 10_000 + "a" + ")" * 10_000, "a = " + "-" * 9_000 + "1"):
        with pytest.raises(BadInputError):
            parse_filter(expression, SCHEMA)
