"""Times and spans of time on the command line, such as 250ms and 2026-01-31T12:00:00."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_SPAN: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(us|ms|s|m|h|d)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNIX_S: Final = 1_000_000_000
"""Numbers from here on are seconds since 1970; smaller ones are since the first recorded event."""


def span_us(text: str) -> int | None:
    """`250ms`, `1.5s`, `2m` in microseconds; None for what is no span of time."""
    match = _SPAN.fullmatch(text.strip())
    return None if match is None else round(float(match[1]) * _US[match[2]])


class Span(click.ParamType[int]):
    """A span of time, in microseconds."""

    name = "SPAN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = span_us(str(value))
        if found is None:
            raise click.UsageError(f"{value}: allowed is a number and a unit: us, ms, s, m, h or d, as in 250ms")
        return found


class Jump(Span):
    """A signed span of time, in milliseconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if span_us(text[1:] if text[:1] in ("+", "-") else text) is None:
            raise click.UsageError(f"{text}: allowed is a span of time with its sign: +1h, -250ms (us, ms, s, m, h or d)")
        ms = super().convert(text.lstrip("+-"), param, ctx) // 1000
        return -ms if text.startswith("-") else ms


def moment(text: str | None, option: str, now_ms: int, begin_ms: int) -> int | None:
    """`-5m`, an ISO time, or seconds, in milliseconds since 1970. Raises UsageError for what is not a time."""
    if text is None:
        return None
    span = span_us(text[1:]) if text.startswith("-") else None
    if span is not None:
        return now_ms - span // 1000
    try:
        number = float(text)
        return int(number * 1000) + (0 if number >= _UNIX_S else begin_ms)
    except (ValueError, OverflowError):
        pass
    found = _iso_ms(text)
    if found is None:
        raise click.UsageError(f"{option} {text}: allowed are -5m, 2026-01-31T12:00:00, and seconds")
    return found


def since(text: str | None, now_ms: int) -> int:
    """`5m` before now, or an ISO time, in milliseconds since 1970; None is the beginning. Raises UsageError."""
    if text is None:
        return 0
    span = span_us(text)
    found = _iso_ms(text) if span is None else now_ms - span // 1000
    if found is None:
        raise click.UsageError(f"--since {text}: allowed are 5m (or us, ms, s, h, d) and 2026-01-31T12:00:00")
    return found


def since_1970_ms(when: datetime) -> int:
    """The whole milliseconds since 1970 of a time with a zone. As a float it would often come out one less."""
    return (when - _EPOCH) // _MILLISECOND


def _iso_ms(text: str) -> int | None:
    try:
        return since_1970_ms(datetime.fromisoformat(text).astimezone(UTC))
    except (ValueError, OverflowError):
        return None
