"""The errors of a client's calls. All errors travel between processes."""

from __future__ import annotations

from typing import Any

from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition


class ClientError(Exception):
    """A call that failed for good. `code` is Kafka's; None: nobody answered."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code

    def __str__(self) -> str:
        return self.text


class UnknownTopic(ClientError):
    """No broker knows the topic, or that partition of it."""


class OffsetOutOfRange(ClientError):
    """The partition's log does not reach from its start to `offset`: that part is deleted, or was never there."""

    def __init__(self, text: str, tp: TopicPartition, offset: int) -> None:
        super().__init__(text, ErrorCode.OFFSET_OUT_OF_RANGE)
        self.tp = tp
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.tp, self.offset)


class RequestRefused(ClientError):
    """A broker refused the request. `reason`: its words, or else the name of `code`."""

    code: ErrorCode

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name, code)
        self.message = message
        self.reason = message or code.name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message)
