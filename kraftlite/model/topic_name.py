"""The rules for the name of a topic. Source: CM-15; Kafka's `Topic.validate`."""

from __future__ import annotations

import re
from typing import Final

from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.limits import MAX_TOPIC_NAME

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: str) -> None:
    """Raises ApiError(INVALID_TOPIC_EXCEPTION) that says what is wrong, in Kafka's words."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME}"
    elif _LEGAL.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
