"""Texts that others chose, inside messages for people: cut, so that the message can be read and fits where it is sent."""

from __future__ import annotations

from typing import Final

MAX_SHOWN: Final = 100
"""Characters of a name or value; more than the names that people choose have."""
MAX_ERROR_TEXT: Final = 4_096
"""Characters of an error text on the wire. As UTF-8 they fit into the 32,767 bytes of a string of Kafka's protocol."""


def shown(text: str, limit: int = MAX_SHOWN) -> str:
    """Return the text, or its first `limit` characters and an ellipsis."""
    return text if len(text) <= limit else text[:limit] + "…"


def printable(text: str, kept: str = "") -> str:
    """Return the text with what a terminal acts upon as escapes; characters in `kept` stay as they are."""
    return text if text.isprintable() else "".join(one if one in kept or one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
