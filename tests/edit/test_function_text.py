"""If this fails, finished work of a function is used for another one, or is never found again."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable

from warpdata.edit.function_text import function_text

SOURCE = """
from warpdata.edit.function_text import function_text
print(function_text(lambda batch: [n in {"a", "b", "c"} for n in batch]))
"""


def scaled(factor: object) -> Callable[[int], object]:
    return lambda value: (value, factor)


def test_code_constants_defaults_and_closures_count() -> None:
    texts = [
        function_text(lambda x: x + 1),
        function_text(lambda x: x + 2),
        function_text(lambda x: x - 1),
        function_text(lambda x, n=1: x + n),
        function_text(lambda x, n=2: x + n),
        function_text(scaled(1)),
        function_text(scaled(2)),
        function_text(scaled(scaled(1))),
        function_text(scaled(scaled(2))),
        function_text(functools.partial(scaled, 1)),
        function_text(functools.partial(scaled, 2)),
        function_text(functools.partial(scaled, factor=2)),
    ]
    assert len(set(texts)) == len(texts)
    assert function_text(scaled([1])) == function_text(scaled([2])), "objects are not compared"


def test_the_text_is_the_same_in_another_process() -> None:
    """Sets of texts have another order in each process."""
    texts = {subprocess.check_output([sys.executable, "-c", SOURCE], env={"PYTHONHASHSEED": seed}) for seed in "1234"}
    assert len(texts) == 1
