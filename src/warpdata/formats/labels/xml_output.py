"""Text of XML documents: names and values as elements and attributes hold them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["attribute_text", "attribute_value", "element", "quote", "writable_name"]

_REFERENCES = {ord(char): f"&#{ord(char)};" for char in "\n\r\t"}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def quote(value: object) -> str:
    """Return the text of an attribute or an element, without quotes around it."""
    return escape(str(value), quote=True).translate(_REFERENCES)


def element(name: str, attributes: Mapping[str, object], *content: str) -> str:
    """Return an element with content that is XML already. An attribute that is None is left out."""
    given = "".join(f' {key}="{quote(value)}"' for key, value in attributes.items() if value is not None)
    return f"<{name}{given}>{''.join(content)}</{name}>" if content else f"<{name}{given}/>"


def writable_name(name: str) -> str:
    """Return the name of a class without characters that XML forbids, and without space at its ends."""
    return _FORBIDDEN.sub("\ufffd", name).strip() or "_"


def attribute_text(value: Any) -> str:
    """Return the text of an attribute's value: as it is, or as JSON if it is no text, or would be read as JSON."""
    is_plain = isinstance(value, str) and not _FORBIDDEN.search(value) and value.strip() == value
    return value if is_plain and attribute_value(value) == value else json.dumps(value)


def attribute_value(text: str) -> Any:
    """Return the value of a text: that of JSON, or the text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Any:
    raise ValueError(name)
