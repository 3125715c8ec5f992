"""Subscriptions by regular expression: what is one, and which topics match.

A client sends the expression and every broker's loop runs it, so nothing may be exponential: RE2 itself, whose language is that
of re2j, which Kafka uses. Source: KIP-848, "Regular Expressions"; `TopicRegexResolver` of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import re2

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.regex import compiled

MAX_REGEX_LENGTH: Final = 1_000

_WORDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""RE2's words for what is wrong, and re2j's. Others are the same."""


def check(pattern: str) -> None:
    """Raise ApiError(INVALID_REGULAR_EXPRESSION) when it is none."""
    reason = f"longer than {MAX_REGEX_LENGTH} characters" if len(pattern) > MAX_REGEX_LENGTH else problem(pattern)
    if reason is not None:
        raise _refusal(pattern, reason)


def problem(pattern: str) -> str | None:
    """Say in re2j's words why this is no expression; None when it is one."""
    try:
        compiled(pattern)
    except re2.error as error:
        return _reason(error)
    return None


def matching(pattern: str, topics: Iterable[str]) -> tuple[str, ...]:
    """The topics whose whole name matches, in the order given. Of an expression that is none, as older software may have taken
    it, nothing does. There may be many topics: of bytes RE2 need not tell where the characters of a match are, which costs more
    than to match."""
    try:
        found = compiled(pattern)
    except re2.error:
        return ()
    return tuple(topic for topic in topics if found.fullmatch(topic.encode()) is not None)


def _reason(error: Exception) -> str:
    """Describe the error as re2j does, without the part of the expression that RE2 adds."""
    (text,) = error.args
    words = (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)).partition(": ")[0]
    return _WORDS.get(words, words)


def _refusal(pattern: str, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern[:MAX_REGEX_LENGTH]}` is not a valid regular expression: {reason}.",
    )
