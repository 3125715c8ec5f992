"""Whom a client believes when brokers tell different things: the highest leader epoch of the newest topic of that name.

Source: KIP-320; KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition

ONE, TWO = UUID(int=1), UUID(int=2)
T0 = TopicPartition("t", 0)


class Brokers(KafkaClient):
    """Two of them; `says` is what each tells of the topic: (id, leader, epoch)."""

    def __init__(self, **says: tuple[UUID | None, int, int]) -> None:
        quick = {"retry_timeout_ms": 50, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1, "reconnect_backoff_ms": 0}
        super().__init__(ClientSettings(bootstrap=("one:9092", "two:9092"), **quick))  # type: ignore[arg-type]
        self.says = says

    def _connect(self, address: tuple[str, int], deadline: float) -> Any:
        return SimpleNamespace(ask=lambda *_given, version=None: self._metadata(self.says[address[0]]), close=lambda: None)

    @staticmethod
    def _metadata(said: tuple[UUID | None, int, int]) -> Any:
        topic_id, leader, epoch = said
        part = SimpleNamespace(partition_index=0, leader_id=leader, leader_epoch=epoch)
        topic = SimpleNamespace(name="t", topic_id=topic_id, error_code=ErrorCode.NONE, is_internal=False, partitions=(part,))
        nodes = [SimpleNamespace(node_id=number, host=host, port=9092) for number, host in ((1, "one"), (2, "two"))]
        return SimpleNamespace(brokers=nodes, topics=[topic])

    def leader(self) -> tuple[str, int]:
        found = self._locate([T0], self._budget("test"))[T0]
        return found.address[0], found.epoch

    def forget(self) -> None:
        """As after a request that the leader did not carry out."""
        self._forget([T0])


def test_a_leader_of_an_older_epoch_is_not_believed_after_a_failure() -> None:
    brokers = Brokers(one=(ONE, 2, 7), two=(ONE, 2, 7))
    assert brokers.leader() == ("two", 7)
    brokers.says = {"one": (ONE, 1, 6), "two": (ONE, 2, 7)}
    brokers.forget()
    assert brokers.leader() == ("two", 7), "the broker that is behind is asked after the other one"


def test_nobody_is_believed_while_all_are_behind() -> None:
    brokers = Brokers(one=(ONE, 2, 7), two=(ONE, 2, 7))
    assert brokers.leader() == ("two", 7)
    brokers.says = {"one": (ONE, 1, 6), "two": (ONE, 1, 6)}
    brokers.forget()
    with pytest.raises(ClientError, match="has no leader"):
        brokers.leader()


def test_a_topic_that_is_made_again_begins_with_its_epochs_anew() -> None:
    brokers = Brokers(one=(ONE, 2, 7), two=(ONE, 2, 7))
    assert brokers.leader() == ("two", 7)
    brokers.says = {"one": (TWO, 1, 0), "two": (ONE, 2, 7)}
    brokers.forget()
    assert brokers.leader() == ("one", 0)


def test_a_topic_that_is_gone_does_not_come_back() -> None:
    brokers = Brokers(one=(TWO, 1, 0), two=(ONE, 2, 7))
    brokers.says = {"one": (ONE, 2, 7), "two": (ONE, 2, 7)}
    assert brokers.leader() == ("two", 7)
    brokers.says = {"one": (TWO, 1, 0), "two": (TWO, 1, 0)}
    brokers.forget()
    assert brokers.leader() == ("one", 0)
    brokers.says = {"one": (ONE, 2, 8), "two": (TWO, 1, 1)}
    brokers.forget()
    assert brokers.leader() == ("one", 1), "told by the broker that knows the newer topic"
    assert brokers.describe(["t"])["t"].topic_id == TWO
    assert brokers.topics()["t"].topic_id == TWO


@pytest.mark.parametrize("epochs", [(5, 5), (5, 6), (-1, -1)])
def test_equal_and_higher_epochs_are_believed(epochs: tuple[int, int]) -> None:
    brokers = Brokers(one=(None, 1, epochs[0]), two=(None, 1, epochs[0]))
    assert brokers.leader() == ("one", epochs[0])
    said: Mapping[str, Any] = {"one": (None, 2, epochs[1]), "two": (None, 2, epochs[1])}
    brokers.says = dict(said)
    brokers.forget()
    assert brokers.leader() == ("two", epochs[1])
