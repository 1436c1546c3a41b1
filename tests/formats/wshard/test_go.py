"""If this fails, the Go library fails its own tests, or writes other chunks than the Python library.

`test_languages.py`, `test_forged.py` and `test_recorders.py` have the comparisons that all languages share. Skipped
without the Go compiler, or if its libraries are neither installed nor reachable.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.formats.wshard.chunk_scenes import long_episode, pieces
from tests.formats.wshard.drivers import GOLDEN, Driver, run
from tests.formats.wshard.golang import GO, go_environment
from tests.formats.wshard.scenes import VECTORS, same_episode
from warpdata.wshard import (
    ChunkedEpisodeWriter,
    load_chunk_manifest,
    load_wshard,
    save_wshard,
    validate_chunk_continuity,
)

TEST_S = 110


def test_package_tests_pass(go_library: Path) -> None:
    """Reference files, refusals, sources, recordings, the command, and the seeds of the fuzz target."""
    places = {"WSHARD_VECTORS": str(VECTORS), "WSHARD_GOLDEN": str(GOLDEN), **go_environment(go_library)}
    source = go_library / "src" / "wshard"
    try:
        code, output = run([GO, "test", "./..."], TEST_S, source, **places)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the Go compiler did not finish in {TEST_S} s")
    assert code == 0, output[-8000:]
    if formatter := shutil.which("gofmt"):
        assert run([formatter, "-l", "."], TEST_S, source) == (0, "")


@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "seal": True}], ids=str)
def test_chunks_of_go_are_those_of_python(go_driver: Driver, options: dict[str, Any], tmp_path: Path) -> None:
    """Uncompressed chunks and manifests have the same bytes, also after the episode continued."""
    source, ours, theirs = tmp_path / "a.wshard", tmp_path / "ours", tmp_path / "theirs"
    save_wshard(long_episode(), source)
    for cuts, is_resumed in (([0, 10, 20], False), ([20, 30], True)):
        with ChunkedEpisodeWriter(ours, "long", resume=is_resumed, **options) as writer:
            for chunk in pieces(long_episode(), cuts):
                writer.write_chunk(chunk)
        go_driver.answer("chunks", source, to=str(theirs), cuts=cuts, resume=is_resumed, options=options)
        manifest = load_chunk_manifest(theirs / "long_manifest.wshard")
        validate_chunk_continuity(manifest, theirs)
        same_episode(load_wshard(theirs / "long_manifest.wshard"), load_wshard(ours / "long_manifest.wshard"))
        assert sorted(path.name for path in theirs.iterdir()) == sorted(path.name for path in ours.iterdir())
        if not options:
            for path in ours.iterdir():
                assert (theirs / path.name).read_bytes() == path.read_bytes(), path.name
    assert go_driver.ask("chunks", source, to=str(theirs), cuts=[0, 10])[0] == "already_exists"
