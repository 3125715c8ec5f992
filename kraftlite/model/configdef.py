"""The definition of a configuration key: name, type, default, limits, and whether it may change while a node runs.

Source: Kafka's `ConfigDef`; the type and source numbers are those of DescribeConfigs on the wire.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Literal

from kraftlite.model.limits import MAX_INT32, MAX_INT64
from kraftlite.model.shown import shown

_LONGEST_NUMBER = 400
"""Zeros in front count: who reads a value again by `int` takes no more than 4300 digits."""
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?")


class ConfigType(IntEnum):
    """The number is `ConfigType` of a DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The origin of a value, strongest first (CM-49). The number is `ConfigSource` of a DescribeConfigs response."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


UpdateMode = Literal["read-only", "per-broker", "cluster-wide"]
"""read-only: only in the file. per-broker: dynamically, but for one broker at a time. cluster-wide: for all, too."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A limit on a parsed value: `check` and the words that say what is allowed.

    `protocol` says of a value that is not allowed what Kafka's validator says, for clients; of a list the first item that is not
    allowed is named, or (`whole`) all of it.
    """

    check: Callable[[Any], bool]
    words: str
    protocol: Callable[[Any], str] | None = None
    whole: bool = False


def at_least(low: int) -> Allowed:
    return Allowed(lambda value: value >= low, f"a value of at least {low}", lambda _: f"Value must be at least {low}")


def between(low: float, high: float) -> Allowed:
    return Allowed(
        lambda value: low <= value <= high,
        f"a value between {low} and {high}",
        lambda value: f"Value must be at least {low}" if value < low else f"Value must be no more than {high}",
    )


def one_of(*choices: str) -> Allowed:
    known = ", ".join(choices)
    return Allowed(lambda value: value in choices, f"one of {known}", lambda _: f"String must be one of: {known}")


def each_of(*choices: str, empty: bool = False) -> Allowed:
    known = ", ".join(choices)
    return Allowed(
        lambda value: (empty or bool(value)) and all(item in choices for item in value),
        f"a list of {known}",
        lambda _: f"String must be one of: {known}",
    )


def either(value: int, other: Allowed) -> Allowed:
    kafkas = f"Value must be {other.words.removeprefix('a value ')} or equal to {value}"
    return Allowed(lambda found: found == value or other.check(found), f"{value} or {other.words}", lambda _: kafkas)


class BadValue(ValueError):
    """A value that its key does not allow. The text is for whoever wrote a file; `protocol` is Kafka's, for clients."""

    def __init__(self, told: str, protocol: str) -> None:
        super().__init__(told)
        self.protocol = protocol


def protocol_message(error: ValueError) -> str:
    """Return the text that a client gets for a value that was refused: Kafka's where it has one."""
    return error.protocol if isinstance(error, BadValue) else f"Invalid value for configuration {error}"


_BOOLEANS = "Expected value to be either true or false"
_INT_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), MAX_INT32),
    ConfigType.LONG: (-(2**63), MAX_INT64),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One configuration key. Keys are compared by name in the maps that hold them.

    `default` is the text of the default, or None when there is none (unset, or required).
    `server_key` (topic keys): the broker key that supplies the default (CM-49). `parse` raises BadValue, a ValueError, naming the
    key, the value and what is allowed.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str = ""
    sensitive: bool = False
    allowed: Allowed | None = None
    server_key: str | None = None
    dynamic: UpdateMode = "read-only"

    def parse(self, text: str) -> Any:
        """The typed value: bool, int, float, str or, for a LIST, a tuple of stripped non-empty strings."""
        try:
            value = _parse(self.type, text.strip())
        except ValueError as error:
            reason = _BOOLEANS if self.type is ConfigType.BOOLEAN else f"Not a number of type {self.type.name}"
            raise self._bad(text, str(error), text, reason) from None
        if self.allowed is not None and not self.allowed.check(value):
            reason = f"allowed is {self.allowed.words}"
            kafkas = reason if self.allowed.protocol is None else self.allowed.protocol(value)
            item = str(value)
            if isinstance(value, tuple):
                first = next((it for it in value if not self.allowed.check((it,))), "")
                item = f"[{', '.join(value)}]" if self.allowed.whole else first
            raise self._bad(text, reason, item, kafkas)
        return value

    def _bad(self, text: str, reason: str, item: str, kafkas: str) -> BadValue:
        return BadValue(
            f"{self.name}={self._shown(text)}: {reason}",
            f"Invalid value {self._shown(item)} for configuration {self.name}: {kafkas}",
        )

    def _shown(self, text: str) -> str:
        return "[hidden]" if self.sensitive else shown(text, 200)


def _parse(kind: ConfigType, text: str) -> Any:
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError("allowed is true or false")
        return lowered == "true"
    if kind in _INT_RANGES:
        return _parse_int(kind, text)
    if kind is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(text) or not math.isfinite(value := float(text)):
            raise ValueError("allowed is a decimal number of at most 1.7976931348623157E308")
        return value
    if kind is ConfigType.LIST:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    return text


def _parse_int(kind: ConfigType, text: str) -> int:
    low, high = _INT_RANGES[kind]
    digits = text[1:] if text[:1] in "+-" else text
    digits = digits.lstrip("0") or digits[-1:]
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(MAX_INT64)) or len(text) > _LONGEST_NUMBER:
        raise ValueError(f"allowed is a whole number from {low} to {high}")
    value = -int(digits) if text[0] == "-" else int(digits)
    if not low <= value <= high:
        raise ValueError(f"allowed is a whole number from {low} to {high}")
    return value


def changed_list(text: str, named: str, *, append: bool) -> str:
    """A list after the items `named` were appended, or taken away."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    other = [item.strip() for item in named.split(",") if item.strip()]
    if append:
        return ",".join([*items, *(item for item in dict.fromkeys(other) if item not in items)])
    return ",".join(item for item in items if item not in other)


def by_name(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    """A read-only map in sorted order. A key defined twice is a bug."""
    found: dict[str, ConfigKey] = {}
    for key in sorted(keys, key=lambda key: key.name):
        assert key.name not in found, f"{key.name} is defined twice"
        if key.default is not None:
            key.parse(key.default)
        found[key.name] = key
    return MappingProxyType(found)
