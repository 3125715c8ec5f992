"""The records that clients have written and read since this node started, counted by partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftlite.model.errors import ErrorCode

_USUAL: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_USUAL_OF_PRODUCE: Final = _USUAL | {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
}
_USUAL_OF_FETCH: Final = _USUAL | {
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}
"""The refusals that a consumer meets when leaders change, or when it asks for what is gone."""


@dataclass(slots=True)
class Traffic:
    """Counts of one replica, or of several. `produces`: batches appended here as the leader; `fetches`: reads of a client that
    found records. Followers' fetches are not counted. `failed_produces`, `failed_fetches`: partitions of requests that were
    refused for a reason that clients do not meet in the course of things. Source: Kafka's BrokerTopicMetrics, ReplicaManager."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produces: int = 0
    fetches: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0

    def appended(self, messages: int, size: int) -> None:
        self.messages_in += messages
        self.bytes_in += size
        self.produces += 1

    def read(self, size: int) -> None:
        self.bytes_out += size
        self.fetches += 1

    def produce_failed(self, error: ErrorCode) -> None:
        self.failed_produces += error not in _USUAL_OF_PRODUCE

    def fetch_failed(self, error: ErrorCode) -> None:
        self.failed_fetches += error not in _USUAL_OF_FETCH

    def add(self, other: Traffic) -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.produces += other.produces
        self.fetches += other.fetches
        self.failed_produces += other.failed_produces
        self.failed_fetches += other.failed_fetches
