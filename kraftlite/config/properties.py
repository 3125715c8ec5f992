"""Java's `.properties` format, as far as a `server.properties` file uses it: all of it.

Source: java.util.Properties: comments with # or !, `=`, `:` or blanks between key and value, escapes, continued lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_FOUR_DIGITS = re.compile("[0-9a-fA-F]{4}")


@dataclass(frozen=True, slots=True)
class Property:
    """One `key=value`, and the line (from 1) on which it begins."""

    key: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """All properties in file order, duplicates included. Raises ValueError naming the line of a malformed \\u escape. A mark of
    byte order, as some editors write it, is no part of the first key, which may be one that protects."""
    return [_split(line, number) for number, line in _logical_lines(text.removeprefix("\ufeff"))]


def format_properties(values: dict[str, str]) -> str:
    """The inverse for what we write ourselves: one `key=value` per line."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in values.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + text if text.startswith(" ") else text


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending: list[str] = []
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        if not pending:
            start = number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending.append(line[:-1])
            continue
        yield start, "".join((*pending, line))
        pending.clear()
    if pending:
        yield start, "".join(pending)


def _split(line: str, number: int) -> Property:
    i = 0
    while i < len(line) and line[i] not in "=: \t\f":
        i += 2 if line[i] == "\\" else 1
    key = line[:i]
    rest = line[i:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return Property(_unescape(key, number), _unescape(rest, number), number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    i = 0
    while i < len(text):
        char = text[i]
        if char != "\\" or i + 1 == len(text):
            out.append(char if char != "\\" else "")
            i += 1
            continue
        following = text[i + 1]
        if following == "u":
            digits = text[i + 2 : i + 6]
            if not _FOUR_DIGITS.fullmatch(digits):
                raise ValueError(f"line {number}: \\u{digits} is not an escape; allowed are four hexadecimal digits")
            out.append(chr(int(digits, 16)))
            i += 6
            continue
        out.append(_ESCAPES.get(following, following))
        i += 2
    return _joined("".join(out), number)


def _joined(text: str, number: int) -> str:
    """Join the two escapes of a character beyond U+FFFF into one character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"line {number}: half of a surrogate pair; allowed are both \\u escapes of a character") from None
