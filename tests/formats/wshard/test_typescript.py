"""If this fails, the TypeScript library fails its own tests, or disagrees on chunks and their manifest.

`test_languages.py` has the comparisons that all languages share. Skipped without node, or if the packages of the
library are neither installed nor installable.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from tests.formats.wshard.drivers import GOLDEN, Driver, described, run
from tests.formats.wshard.scenes import VECTORS
from tests.formats.wshard.typescript import NODE
from warpdata.formats.wshard.codecs import crc32c
from warpdata.wshard import Channel, ChunkedEpisodeWriter, Episode, load_wshard

TEST_S = 100


def test_package_tests_pass(library: Path) -> None:
    """Reference files, refusals, properties, sources, the browser platform."""
    files = [str(path) for path in sorted((library / "dist" / "test").glob("*.test.js"))]
    places = {"WSHARD_VECTORS": str(VECTORS), "WSHARD_GOLDEN": str(GOLDEN)}
    code, output = run([NODE, "--test", *files], TEST_S, library, **places)
    assert code == 0, output[-8000:]
    assert "# pass 0\n" not in output


def test_chunks_and_their_manifest(js_driver: Driver, tmp_path: Path) -> None:
    writer = ChunkedEpisodeWriter(tmp_path, "long", chunk_size_t=10, total_chunks=3)
    for start in (0, 10, 20):
        state = Channel("s", np.arange(start, start + 10, dtype=np.float64))
        writer.write_chunk(Episode("long", 10, "E", observations={"s": state}))
    manifest = writer.finalize_manifest()
    path = tmp_path / "long_manifest.wshard"
    manifest_document, checksum = js_driver.answer("manifest", path)
    assert checksum == crc32c(path.read_bytes())
    assert (manifest_document["episodeId"], manifest_document["totalTimesteps"]) == ("long", 30)
    spelled = {"first_step": "firstStep", "last_step": "lastStep"}
    listed = [{spelled.get(key, key): value for key, value in asdict(entry).items()} for entry in manifest.chunks]
    assert manifest_document["chunks"] == listed
    for entry in manifest.chunks:
        chunk = tmp_path / entry.uri
        assert js_driver.answer("load", chunk) == described(load_wshard(chunk))
