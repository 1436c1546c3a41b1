"""The other end of a child process: commands come as lines of JSON, each is a method, its result the answer.

Imports nothing but the standard library, as it also serves under interpreters that do not have our package.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["serve"]


def serve(reader: object) -> None:
    """Until the input ends. What a library prints goes to the error stream, so that answers stay alone."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        act: Callable[..., dict[str, Any]] = getattr(reader, command.pop("do"))
        try:
            answer = act(**command)
        except Exception:  # noqa: BLE001
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
