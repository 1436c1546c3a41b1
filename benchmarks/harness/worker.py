"""Server loop of a worker process: each input line is a JSON command, each output line its JSON answer.

The module imports only the standard library, because it also runs under interpreters without warpdata.
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
    """Call the method that each command names, until the input ends.

    Prints of libraries go to the error stream, so that the output carries only answers.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        command = json.loads(line)
        method: Callable[..., dict[str, Any]] = getattr(reader, command.pop("method"))
        try:
            answer = method(**command)
        except Exception:  # noqa: BLE001
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
