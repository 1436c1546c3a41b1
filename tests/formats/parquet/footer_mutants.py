"""Parquet files with damaged footers, read completely in one process.

    python -m tests.formats.parquet.footer_mutants SEED COUNT

Writes one line for each mutant before it is read: if a file takes the process down, the last line names it. Any error
that is not a `WarpError` ends the process with a traceback.
"""

from __future__ import annotations

import io
import random
import resource
import sys
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from warpdata.errors import WarpError
from warpdata.formats.parquet import describe_parquet
from warpdata.formats.parquet.shard import ShardFile, open_shard
from warpdata.limits import GIB
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.repository.manifest import Footer, Shard
from warpdata.session import connect

__all__ = ["mutate", "sample_file"]

_ROWS = 90


def sample_file() -> bytes:
    """Return a file with most types, nested columns, statistics, a page index, size statistics and three row groups."""
    rows = pa.table(
        {
            "i": range(_ROWS),
            "f": [n / 3 for n in range(_ROWS)],
            "s": [f"w{n % 7}" for n in range(_ROWS)],
            "l": [[n, n + 1] for n in range(_ROWS)],
            "st": [{"a": n, "b": [str(n)]} for n in range(_ROWS)],
            "b": [n % 2 == 0 for n in range(_ROWS)],
            "d": [date(2020, 1, 1 + n % 28) for n in range(_ROWS)],
            "t": [datetime(2020, 1, 1, n % 24) for n in range(_ROWS)],
            "n": [Decimal(n) for n in range(_ROWS)],
            "x": [bytes([n]) for n in range(_ROWS)],
            "u": pa.array([n % 200 for n in range(_ROWS)], pa.uint8()),
            "h": pa.array([1.5] * _ROWS, pa.float16()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=40, write_page_index=True, write_page_checksum=True, compression="zstd")
    return sink.getvalue()


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return the file with a few changes in its footer. The length in the trailer fits."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = bytearray(data[start:-8])
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(footer))
        change = rng.random()
        if change < 0.45:
            footer[at] ^= 1 << rng.randrange(8)
        elif change < 0.75:
            footer[at] = rng.randrange(256)
        elif change < 0.9:
            footer[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))
        else:
            other = rng.randrange(len(footer))
            footer[at : at + 16] = footer[other : other + 16]
    return data[:start] + bytes(footer) + len(footer).to_bytes(4, "little") + data[-4:]


def _read_all(file: ShardFile) -> None:
    """Call everything that readers call."""
    names = file.schema.names
    for group in file.row_groups():
        file.layout.bounds(group.index, names)
        file.layout.small_dictionaries(group.index, names)
        list(file.layout.split_columns(group.index, names, 100))
        file.fetch(group.index, names)
        for column in names:
            try:
                file.decode(group.index, [column])
            except WarpError:
                continue
        if group.row_count:
            file.decode_prefix(group.index, names, 1)


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 * GIB, 8 * GIB))
    rng, data, readable = random.Random(seed), sample_file(), 0
    store = connect(f"memory://footer-mutants-{seed}").writer
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "mutant.parquet"
        for number in range(count):
            sys.stdout.write(f"{seed} {number}\n")
            sys.stdout.flush()
            mutant = mutate(data, rng)
            path.write_bytes(mutant)
            row_count = _ROWS
            try:
                row_count = describe_parquet(path).row_count
                readable += 1
            except WarpError:
                pass
            digest, size = sha256_hex(mutant), int.from_bytes(mutant[-8:-4], "little") + 8
            store.create(blob_key(digest), mutant)
            footer = Footer(size, xxhash.xxh3_64_hexdigest(mutant[-size:]))
            try:
                shard = Shard(digest, len(mutant), row_count, footer)
                _read_all(open_shard(store, shard, may_fetch_whole=number % 2 == 0))
            except WarpError:
                pass
            store.delete(blob_key(digest))
    sys.stdout.write(f"done {readable}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
