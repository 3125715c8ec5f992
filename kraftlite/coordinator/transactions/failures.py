"""The meaning of a failed append for a transactional id. Source: TX-07, TX-09."""

from __future__ import annotations

from typing import Final

from kraftlite.model.errors import ErrorCode

_TOLD: Final = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The errors that clients are told when an append fails (TX-07); any other is UNKNOWN_SERVER_ERROR."""

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""A batch of records that its topic does not take."""


def told_of(error: ErrorCode) -> ErrorCode:
    """The error that a client is told when its append failed."""
    return _TOLD.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)
