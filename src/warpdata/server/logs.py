"""Logs of the service: one line for each request and each failure, as text or as JSON.

A line has the pattern of a route and never a whole URL, because signed URLs and queries carry secrets.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

__all__ = ["set_up_logs"]

_OWN = "warpdata"
_MEMBERS = ("request_id", "method", "route", "status", "duration_ms", "workspace", "dataset", "ip")
"""What lines about requests have beside the message."""


def set_up_logs(kind: str) -> None:
    """Write the logs of the library to stderr, as "text" or "json". Other libraries are heard from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if kind == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN).setLevel(logging.INFO)


_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _MEMBERS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
