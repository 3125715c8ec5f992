"""Files that a person names on the command line: read up to a bound."""

from __future__ import annotations

from pathlib import Path

from kraftlite.host.files import MAX_INDEX_BYTES, MAX_LINE_BYTES, MAX_TEXT_BYTES, bounded_lines, read_bounded

__all__ = ["MAX_INDEX_BYTES", "MAX_LINE_BYTES", "MAX_TEXT_BYTES", "bounded_lines", "read_bounded", "read_text"]


def read_text(path: str | Path) -> str:
    """UTF-8 of at most `MAX_TEXT_BYTES`. Raises OSError and ValueError."""
    data = read_bounded(path, MAX_TEXT_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line}: the byte 0x{data[error.start]:02x} is not UTF-8") from None
