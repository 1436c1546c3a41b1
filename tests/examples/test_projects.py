"""If this fails, a user who copies one of the example projects starts with a broken script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = sorted(path.parent for path in ROOT.glob("examples/*/main.py"))


def test_five_projects_are_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert len(PROJECTS) == 5
    assert all(f"[{project.name}]({project.name}/)" in listed for project in PROJECTS)


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_project_runs(project: Path, tmp_path: Path) -> None:
    run(project, tmp_path, times=1)


@pytest.mark.soak
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_project_runs_again(project: Path, tmp_path: Path) -> None:
    """The second run meets what the first one published."""
    run(project, tmp_path, times=2)


def run(project: Path, tmp_path: Path, times: int) -> None:
    paths = {"WARP_STORE": str(tmp_path / "store"), "WARP_CACHE_DIR": str(tmp_path / "cache")}
    for _ in range(times):
        done = subprocess.run(
            [sys.executable, str(project / "main.py")],
            cwd=tmp_path,
            env={**os.environ, **paths, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
