"""The keys that clients choose and a coordinator remembers, group ids and transactional ids: how much memory they take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn, TypeVar

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import KIB, MIB

V = TypeVar("V")

ENTRY_BYTES: Final = KIB
"""About what an entry takes without its key."""


class Keyed(dict[str, V]):
    """Entries by key. `key_bytes`: about what they take in memory, without what a live group or transaction has besides."""

    def __init__(self) -> None:
        super().__init__()
        self.key_bytes = 0

    def __setitem__(self, key: str, value: V) -> None:
        if key not in self:
            self.key_bytes += _bytes_of(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.key_bytes -= _bytes_of(key)

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self.key_bytes -= _bytes_of(key)
        return super().pop(key, *default)

    def _not_counted(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError("nobody counts what this changes")

    update = setdefault = clear = popitem = _not_counted


def check_room(entries: Iterable[Keyed[Any]], most_bytes: int, what: str) -> None:
    """Raise ApiError(POLICY_VIOLATION), with which every client ends, when there is no room for another key. What is there
    already, or in the log, is served whatever it takes."""
    if sum(one.key_bytes for one in entries) >= most_bytes:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"this broker remembers as many {what} as it may ({most_bytes // MIB} MiB): a new one waits until some have expired",
        )


def _bytes_of(key: str) -> int:
    return ENTRY_BYTES + len(key.encode("utf-8", "surrogatepass"))
