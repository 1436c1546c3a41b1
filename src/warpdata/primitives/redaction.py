"""Secrets removed from text that people read: messages, logs, reprs, reports.

URLs carry passwords (`https://user:password@host`) and signatures (`?sig=…`). The object-store library puts whole URLs
into its messages.
"""

from __future__ import annotations

import re

__all__ = ["redact", "redact_exception"]

_USER = re.compile(r"(?<=://)[^/?#\s\"']*@")
_PARAMETER = re.compile(
    r"""([?&"'](?:[\w.-]*(?:sig|signature|token|secret|passw(?:or)?d|pwd|credential|api[_-]?key|auth|accesskeyid)|key)=)"""
    r"""[^&#\s"'<>)]+""",
    re.IGNORECASE,
)
_FIELD = re.compile(r'(password: Some\()"[^"]*"')
"""The library prints parsed URLs in the language it is written in."""


def redact(text: str) -> str:
    """Return the text with `***` in place of passwords and signatures of URLs. Applying it twice changes nothing."""
    if "://" not in text and "=" not in text:
        return text
    text = _USER.sub("***@", text)
    return _FIELD.sub(r'\1"***"', _PARAMETER.sub(r"\1***", text))


def redact_exception(error: BaseException) -> None:
    """Redact the arguments of an exception, which a traceback prints as the cause of another."""
    error.args = tuple(redact(value) if isinstance(value, str) else value for value in error.args)
