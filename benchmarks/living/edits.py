"""Ten versions with 0.1 % edited rows, deletes and a new column: time and bytes, beside other libraries.

The rows are in one local store or repository for each library. Bytes are the growth of its directory. Lance and
warpdata edit rows where a condition holds. icechunk writes elements of a chunked array. Oxen and DVC keep the whole
file of each version, which is written with Arrow. DVC runs as a program.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.timing import Arm, RunOptions, Timings, interleave
from benchmarks.living.dataset import copy_of, directory_bytes, make_rows, open_dataset, publish_rows
from benchmarks.results import Measurement, Outcome

__all__ = ["run"]

_VERSIONS = 10
_EVERY = 1000
_DELETED = 400
_PEERS = {"Lance": "pylance", "icechunk": "icechunk", "Oxen": "oxenai"}
_ZARR_CHUNK = 65_536

Work = Callable[[Path], None]


def run(options: RunOptions) -> Outcome:
    count = 20_000 if options.is_smoke else 1_000_000
    rows = make_rows(count)
    bases: dict[str, tuple[Callable[[Path], Path], Work]] = {
        "ours": (lambda rows: publish_rows("edits-base", rows), _edit_ours),
        "Lance": (_make_lance, _edit_lance),
        "icechunk": (_make_icechunk, _edit_icechunk),
        "Oxen": (_make_oxen, lambda place: _edit_oxen(place, rows)),
    }
    if shutil.which("dvc") is not None:
        bases["DVC"] = (_make_dvc, lambda place: _edit_dvc(place, rows))
    present = [name for name in bases if name not in _PEERS or is_installed(_PEERS[name])]
    made = {name: bases[name][0](rows) for name in present}
    sizes: dict[str, list[int]] = {name: [] for name in present}
    arms = {name: _arm(name, made[name], bases[name][1], sizes[name]) for name in present}
    timings = interleave(arms, options.rounds, warmups=0)
    measurements = [measured for peer in present[1:] for measured in _compare(timings, sizes, peer)]
    return Outcome(
        title=f"Ten versions of {count:,} rows with {count // _EVERY:,} edited rows each",
        method="Local stores. Each run begins with a copy of the same store; ten commits are timed.",
        measurements=[*measurements, _delete(made["ours"], count), *_add_column(made["ours"], count)],
        skipped=skip_lines(
            [*(_PEERS[name] for name in _PEERS if name not in present), *([] if "DVC" in present else ["dvc"])]
        ),
    )


def _arm(name: str, base: Path, edit: Work, sizes: list[int]) -> Arm:
    def prepare() -> Callable[[], int]:
        place = copy_of(base, f"edits-{name}")
        before = directory_bytes(place)

        def edit_all() -> int:
            edit(place)
            sizes.append(directory_bytes(place) - before)
            return _VERSIONS

        return edit_all

    return prepare


def _compare(timings: Timings, sizes: dict[str, list[int]], peer: str) -> list[Measurement]:
    ours, theirs = statistics.median(sizes["ours"]), statistics.median(sizes[peer])
    return [
        Measurement(
            case=f"bytes of ten versions, {peer}",
            unit="kB",
            ours=ours / 1e3,
            peer=theirs / 1e3,
            peer_name=peer,
            ratio=theirs / ours,
            quantity="bytes",
            promise="edit-bytes",
        ),
        timings.compare(f"time of ten versions, {peer}", "ours", peer, promise="edit-time"),
    ]


def _edit_ours(place: Path) -> None:
    for version in range(_VERSIONS):
        with open_dataset(place).edit() as edit:
            edit.update("main", f"id % {_EVERY} = {version}", {"x": wd.expr("x + 1")})


def _make_lance(rows: Path) -> Path:
    import lance  # type: ignore[import-not-found,unused-ignore]

    place = scratch("edits-lance-base")
    lance.write_dataset(pq.read_table(rows), str(place / "rows.lance"))
    return place


def _edit_lance(place: Path) -> None:
    import lance

    dataset = lance.dataset(str(place / "rows.lance"))
    for version in range(_VERSIONS):
        dataset.update({"x": "x + 1"}, where=f"id % {_EVERY} = {version}")


def _make_icechunk(rows: Path) -> Path:
    import icechunk  # type: ignore[import-not-found,unused-ignore]
    import zarr

    place = scratch("edits-icechunk-base")
    session = icechunk.Repository.create(_ice_storage(place)).writable_session("main")
    group = zarr.create_group(session.store)
    table = pq.read_table(rows)
    for name in ("id", "x", "y"):
        values = table[name].to_numpy()
        array = group.create_array(name, shape=values.shape, chunks=(_ZARR_CHUNK,), dtype=values.dtype)
        array[:] = values
    session.commit("base")
    return place


def _ice_storage(place: Path) -> Any:
    import icechunk

    return icechunk.local_filesystem_storage(str(place))


def _edit_icechunk(place: Path) -> None:
    import icechunk
    import zarr

    repository = icechunk.Repository.open(_ice_storage(place))
    for version in range(_VERSIONS):
        session = repository.writable_session("main")
        array: Any = zarr.open_group(session.store)["x"]
        wanted = np.arange(version, array.shape[0], _EVERY)
        array.set_coordinate_selection(wanted, array.get_coordinate_selection(wanted) + 1)
        session.commit(f"edit {version}")


def _make_oxen(rows: Path) -> Path:
    import oxen  # type: ignore[import-not-found,import-untyped,unused-ignore]

    place = scratch("edits-oxen-base")
    oxen.user.config_user("bench", "bench@example.org")
    repository = oxen.Repo(str(place)).init()
    (place / "rows.parquet").write_bytes(rows.read_bytes())
    repository.add(str(place / "rows.parquet"))
    repository.commit("base")
    return place


def _edit_oxen(place: Path, rows: Path) -> None:
    import oxen  # type: ignore[import-not-found,import-untyped,unused-ignore]

    repository = oxen.Repo(str(place))
    for version in _write_versions(place, rows):
        repository.add(str(place / "rows.parquet"))
        repository.commit(f"edit {version}")


def _write_versions(place: Path, rows: Path) -> Iterator[int]:
    """Write the whole file with the rows of each version edited, for libraries that keep whole files."""
    table = pq.read_table(rows)
    ids, values = table["id"].to_numpy(), table["x"].to_numpy().copy()
    for version in range(_VERSIONS):
        values[ids % _EVERY == version] += 1
        pq.write_table(table.set_column(1, "x", pa.array(values)), place / "rows.parquet", compression="zstd")
        yield version


def _make_dvc(rows: Path) -> Path:
    place = scratch("edits-dvc-base")
    _call(place, "git", "init", "-q")
    _call(place, "dvc", "init", "-q")
    (place / "rows.parquet").write_bytes(rows.read_bytes())
    _call(place, "dvc", "add", "-q", "rows.parquet")
    return place


def _edit_dvc(place: Path, rows: Path) -> None:
    for _ in _write_versions(place, rows):
        _call(place, "dvc", "add", "-q", "rows.parquet")


def _call(place: Path, *command: str) -> None:
    subprocess.run(command, cwd=place, check=True, capture_output=True)


def _delete(base: Path, count: int) -> Measurement:
    """Delete scattered rows, and count all bytes that the commit wrote."""
    place = copy_of(base, "edits-delete")
    before = directory_bytes(place)
    gone = np.random.default_rng(5).choice(count, _DELETED, replace=False)
    with open_dataset(place).edit() as edit:
        assert edit.delete("main", f"id IN ({', '.join(map(str, gone))})") == _DELETED
    assert open_dataset(place).table().count() == count - _DELETED
    written = directory_bytes(place) - before
    return Measurement(case=f"delete {_DELETED} scattered rows", unit="kB", ours=written / 1e3, promise="delete-bytes")


def _add_column(base: Path, count: int) -> list[Measurement]:
    """Add an embedding of 512 floats to each row. Random floats do not compress, so the column has a known size."""
    place = copy_of(base, "edits-column")
    before, width = directory_bytes(place), 512
    rng = np.random.default_rng(6)
    with open_dataset(place).edit() as edit:
        edit.add_column(
            "main", "embedding", lambda batch: rng.random((batch.num_rows, width), np.float32), columns="id"
        )
    (files,) = {tuple(file.byte_size for file in shard.files) for shard in _shards(place)[:1]}
    column_bytes = sum(file.byte_size for shard in _shards(place) for file in shard.files)
    assert files
    written = directory_bytes(place) - before
    return [
        Measurement(
            case=f"bytes of a new column of {width} floats",
            unit="MB",
            ours=written / 1e6,
            peer=column_bytes / 1e6,
            peer_name="the column alone",
            is_baseline=True,
            ratio=written / column_bytes,
            quantity="bytes",
            promise="column-bytes",
            detail=f"{count:,} rows",
        )
    ]


def _shards(place: Path) -> list[Any]:
    from warpdata.repository.manifest import iter_shards

    table = open_dataset(place).table()
    return list(iter_shards(table.entry.shards, table.load_page))
