"""Numbers that somebody has typed."""

from __future__ import annotations

from kraftlite.model.limits import MAX_INT64


def whole(text: str, most: int = MAX_INT64) -> int | None:
    """The number that `text` has in decimal digits; None where it has anything else, or more than `most`.

    Ask this instead of `isdigit` and `int`: that raises ValueError for more than 4300 digits.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0")[: len(str(most)) + 1]
    number = int(digits or "0")
    return number if number <= most else None
