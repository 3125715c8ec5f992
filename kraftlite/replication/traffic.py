"""The records that clients have written and read since this node started, counted by partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Counts of one replica, or of several. `produces`: batches appended here as the leader; `fetches`: reads of a client that
    found records. Followers' fetches are not counted. Source: Kafka's BrokerTopicMetrics."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produces: int = 0
    fetches: int = 0

    def appended(self, messages: int, size: int) -> None:
        self.messages_in += messages
        self.bytes_in += size
        self.produces += 1

    def read(self, size: int) -> None:
        self.bytes_out += size
        self.fetches += 1

    def add(self, other: Traffic) -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.produces += other.produces
        self.fetches += other.fetches
