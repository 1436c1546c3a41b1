"""A program that forks while another thread holds every lock of the library, and reads everything in the child.

`python -m tests.faults.fork_scene STORE`. It prints the trace of the child if the child waits for one of the locks.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
from PIL import Image

import warpdata as wd
from tests.kinds.episodes.scenes import make_episode

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_PATIENCE_S = 30


def publish(store: str) -> None:
    names = [f"{n}.png" for n in range(4)]
    images = {name: _png(n) for n, name in enumerate(names)}
    builder = wd.DatasetBuilder("a/b", store)
    builder.add_table("main", {"id": range(4), "file": names, "word": ["red", "blue"] * 2})
    builder.add_artifact("raw", images).bind("main", "file", "raw", "image")
    builder.add_episodes("demos", [make_episode(0, 9)])
    builder.add_tensors("model", {"weight": np.eye(3, dtype=np.float32)}).publish()
    wd.dataset("a/b", store=store).create_index("main", "word", kind="text")


def _png(shade: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(out, "PNG")
    return out.getvalue()


def read_all(dataset: wd.Dataset) -> None:
    table = dataset.table()
    assert table.filter("id > 1").count() == 2
    assert table.filter("reverse(word) = 'der'").count() == 2
    assert table.duckdb().aggregate("count(*)").fetchall() == [(4,)]
    assert wd.sql("select count(*) as n from 'a/b'", store=dataset.session).to_pydict() == {"n": [4]}
    assert [image.as_numpy().shape for image in table.to_arrow()["file"]] == [(8, 8, 3)] * 4
    assert sum(len(batch["id"]) for batch in dataset.stream(batch_size=2, shuffle=True).epoch(0)) == 4
    assert len(dataset.search(text="red", column="word")) == 2
    episodes = dataset.episodes("demos")
    assert next(iter(episodes.windows(batch_size=2)))["step"].shape == (2,)
    assert episodes[0].load().length == episodes[0].length
    assert dataset.tensors("model")["weight"].numpy(verify=True).trace() == 3


def locks() -> Iterator[Any]:
    """Yield every lock that a module or an object of the library has, or a cached property of `functools`."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "warpdata":
            yield from _locks_of(vars(module).values())
    for item in gc.get_objects():
        kind = type(item)
        if str(kind.__module__).partition(".")[0] not in ("warpdata", "functools"):
            continue
        names = {name for each in kind.__mro__ for name in getattr(each, "__slots__", ())}
        values = [getattr(item, name, None) for name in names if isinstance(name, str)]
        yield from _locks_of([*values, *getattr(item, "__dict__", {}).values()])


def _locks_of(values: Any) -> Iterator[Any]:
    for value in list(values):
        if isinstance(value, _LOCKS):
            yield value
        elif isinstance(value, threading.Condition):
            yield value._lock  # type: ignore[attr-defined]


def main(store: str) -> None:
    publish(store)
    kept, fresh = wd.dataset("a/b", store=store), wd.dataset("a/b", store=store)
    read_all(kept)
    held, may_end = threading.Event(), threading.Event()
    found = list({id(lock): lock for lock in locks()}.values())
    assert len(found) > 20, "the locks are kept somewhere else now"

    def hold() -> None:
        with ExitStack() as stack:
            for lock in found:
                stack.enter_context(lock)
            held.set()
            may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(_PATIENCE_S)
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(_PATIENCE_S, exit=True)
        try:
            for dataset in (kept, fresh, wd.dataset("a/b", store=store)):
                read_all(dataset)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    may_end.set()
    thread.join()
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1])
