"""If this fails, threads that need a library at once use it before its import has ended."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from warpdata.primitives.extras import require


def test_a_module_is_returned_after_its_import_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_library.py").write_text("import threading, time\ntime.sleep(0.3)\nready = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found: list[bool] = []

    def use() -> None:
        found.append(hasattr(require("slow_library", purpose="this test"), "ready"))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del sys.modules["slow_library"]
    assert found == [True] * 4
