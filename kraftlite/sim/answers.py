"""The answers that simulated clients get, counted by API and error code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import AnyMethod

NO_ANSWER: Final = "(no answer)"
"""A call that timed out or whose connection broke."""
_ERRORS: Final = ("error", "error_code")
_names: dict[type[Any], tuple[str, ...]] = {}


def api_of(method: AnyMethod, request: object) -> str:
    """The name of an API: a method's, or that of the operation for methods that carry several (their requests have a `kind`)."""
    kind = getattr(request, "kind", None)
    return kind if isinstance(kind, str) else method.name


def errors_of(response: object) -> Iterator[str]:
    """The codes of an answer: of the whole and of each topic, partition or resource in it. NONE when there is no other."""
    found = [code for code in _codes(response) if code != ErrorCode.NONE]
    if not found:
        yield ErrorCode.NONE.name
    for code in dict.fromkeys(found):
        try:
            yield ErrorCode(code).name
        except ValueError:
            yield str(code)


def _codes(value: object) -> Iterator[int]:
    cls = type(value)
    names = _names.get(cls)
    if names is None:
        names = _names[cls] = tuple(it.name for it in fields(cls)) if is_dataclass(cls) else ()
    for name in names:
        part = getattr(value, name)
        if name in _ERRORS and isinstance(part, int):
            yield part
        elif isinstance(part, tuple | list) and part and is_dataclass(part[0]):
            for item in part:
                yield from _codes(item)
        elif is_dataclass(part):
            yield from _codes(part)
