"""If this fails, the first use of an optional library from several threads fails at random."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from warpdata.primitives.extras import require


def test_threads_wait_for_a_module_that_is_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_library.py").write_text("import time\ntime.sleep(0.3)\nready = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found: list[bool] = []

    def use() -> None:
        found.append(hasattr(require("slow_library", purpose="this test"), "ready"))

    threads = [threading.Thread(target=use) for _ in range(4)]
    first, *others = threads
    first.start()
    while "slow_library" not in sys.modules and first.is_alive():
        time.sleep(0.001)
    for thread in others:
        thread.start()
    for thread in threads:
        thread.join()
    sys.modules.pop("slow_library", None)
    assert found == [True] * 4
