"""`python -m benchmarks.tables.publish_worker FILE STORE`: publish one file and print this process's peak memory in bytes.

The peak is the kernel's high-water mark of this program. `getrusage` would not do: there the peak of
the process that started us counts as ours.
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import warpdata as wd


def main(path: str, store: str) -> None:
    wd.DatasetBuilder("bench/one", store).add_table("main", path).publish()
    print(peak_bytes())


def peak_bytes() -> int:
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text(encoding="ascii")) if status.exists() else None
    kib = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib * 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
