"""Publish to S3, warm the local cache, stop the server, and read the dataset without a network.

`warpdata.testing.S3Server` runs a real S3 server (SeaweedFS) on a loopback port.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import warpdata as wd
from warpdata.errors import NotCachedError
from warpdata.testing import S3Server

DATASET = "examples/notes"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        notes = Path(scratch, "notes")
        notes.mkdir()
        for number in range(50):
            (notes / f"{number:02}.txt").write_text(f"note {number}")
        rows = {"id": list(range(50)), "file": [f"{number:02}.txt" for number in range(50)]}

        with S3Server() as endpoint:
            settings = endpoint.settings(cache_dir=Path(scratch, "cache"))
            builder = wd.DatasetBuilder(DATASET, endpoint.url("prod"), settings=settings)
            builder.add_table("main", rows).add_artifact("texts", notes).bind("main", "file", "texts")
            version = builder.publish("fifty notes").version

            online = wd.dataset(f"{DATASET}@{version}", store=endpoint.url("prod"), settings=settings)
            warmed = online.warm()
            print(f"{warmed.blobs} blobs cached, {warmed.fetched_bytes} bytes fetched")

        offline = wd.dataset(f"{DATASET}@{version}", store=endpoint.url("prod"), settings=settings, mode="local")
        texts = [ref.read_bytes().decode() for ref in offline.table().to_arrow()["file"].to_pylist()]
        assert texts == [f"note {number}" for number in range(50)]
        print("read 50 notes without a network")

        try:
            wd.dataset("examples/unknown", store=endpoint.url("prod"), settings=settings, mode="local")
        except NotCachedError as error:
            print(f"as expected: {error.message}")


if __name__ == "__main__":
    main()
