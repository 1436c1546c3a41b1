"""If this fails, the TypeScript library fails its own tests, or writes another manifest than the Python library.

`test_languages.py`, `test_forged.py` and `test_recorders.py` have the comparisons that all languages share. Skipped
without node, or if the packages of the library are neither installed nor installable.
"""

from __future__ import annotations

from pathlib import Path

from tests.formats.wshard.chunk_scenes import long_episode, pieces
from tests.formats.wshard.drivers import GOLDEN, Driver, run
from tests.formats.wshard.scenes import VECTORS
from tests.formats.wshard.typescript import NODE
from warpdata.formats.wshard.codecs import crc32c
from warpdata.wshard import ChunkedEpisodeWriter

TEST_S = 100


def test_package_tests_pass(library: Path) -> None:
    """Reference files, refusals, properties, sources, the browser platform."""
    files = [str(path) for path in sorted((library / "dist" / "test").glob("*.test.js"))]
    places = {"WSHARD_VECTORS": str(VECTORS), "WSHARD_GOLDEN": str(GOLDEN)}
    code, output = run([NODE, "--test", *files], TEST_S, library, **places)
    assert code == 0, output[-8000:]
    assert "# pass 0\n" not in output


def test_manifests_are_written_alike(js_driver: Driver, tmp_path: Path) -> None:
    with ChunkedEpisodeWriter(tmp_path, "long") as writer:
        for chunk in pieces(long_episode(), [0, 10, 20, 30]):
            writer.write_chunk(chunk)
    data = writer.manifest_path.read_bytes()
    assert js_driver.answer("manifest_checksum", writer.manifest_path) == crc32c(data)
