"""If this fails, `import warpdata` is slow or has side effects."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "duckdb", "obstore", "torch", "fastapi", "numpy", "pandas", "polars", "rich", "click", "msgspec")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_nothing_heavy_is_loaded() -> None:
    loaded = run(f"import sys, warpdata; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded == "[]"


def test_no_thread_is_started_and_no_file_is_opened() -> None:
    code = (
        "import sys, threading\n"
        "seen = []\n"
        "def watch(event, args):\n"
        "    if event == 'open' and not str(args[0]).endswith(('.py', '.pyc')) and 'warpdata' in str(args[0]):\n"
        "        seen.append(args[0])\n"
        "    if event.startswith(('socket.', 'subprocess.', 'os.putenv')):\n"
        "        seen.append(event)\n"
        "sys.addaudithook(watch)\n"
        "import warpdata\n"
        "print(seen, threading.active_count())"
    )
    assert run(code) == "[] 1"


def test_environment_is_not_read_at_import() -> None:
    code = (
        "import os, sys\n"
        "class Guard(dict):\n"
        "    def __getitem__(self, key): raise AssertionError(key)\n"
        "    def get(self, key, default=None): raise AssertionError(key)\n"
        "import importlib\n"
        "os.environ = Guard()\n"
        "import warpdata\n"
        "print('ok')"
    )
    assert run(code) == "ok"


def test_names_resolve_lazily_and_to_the_same_thing() -> None:
    code = (
        "import warpdata as wd, warpdata.publish as p\n"
        "print(wd.DatasetBuilder is p.DatasetBuilder, callable(wd.dataset))"
    )
    assert run(code) == "True True"


def test_datasets_load_without_optional_parts() -> None:
    packages = ("warpdata.kinds.episodes", "warpdata.streaming", "warpdata.tensors", "warpdata.wshard")
    parts = (*packages, "duckdb", "numpy", "pyarrow", "torch")
    loaded = run(f"import sys, warpdata; warpdata.dataset; print([name for name in {parts!r} if name in sys.modules])")
    assert loaded == "[]"
