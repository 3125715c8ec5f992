"""What librdkafka does behind a record that was sent and had no answer in time.

A partition's leader stands still. librdkafka takes that for an error behind which its producer goes on: it aborts, and then
asks for the next epoch of the producer that it is (KIP-360), so that the record, which the leader finds in its socket when it
goes on, belongs to nothing. Where the coordinator has lost its patience first, the abort is refused, and librdkafka takes the
refusal for a successor. Source: TX-15, TX-41; KIP-890. `--apache-kafka`: the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tests.clients.clusters import Start
from tests.clients.transactions import coordinator, keyed, state
from tests.harness.local import CALM, PATIENCE_S, Cluster, running, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("clients")]
RECORD_MS = 1_500
"""The time that a record may take; transactions have another."""


@pytest.fixture(scope="module")
def standing(request: pytest.FixtureRequest, start: Start) -> Iterator[Cluster]:
    """A cluster of processes, which can be told to stand still."""
    config = {**CALM, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with start(config) if request.config.getoption("--apache-kafka") else running(controllers=1, brokers=3, config=config) as it:
        yield it


class Slow:
    """A producer of a partition that is not led by the producer's coordinator."""

    def __init__(self, cluster: Cluster, topic: str, timeout_ms: int) -> None:
        self._topic, self._timeout_ms = topic, timeout_ms
        cluster.create_topic(topic, partitions=3)
        self._cluster = cluster
        self.producer = self.instance()
        self._partition = next(it for it in range(3) if cluster.leader(topic, it) != coordinator(cluster, topic))

    def instance(self) -> Producer:
        """A producer of the id, which is the topic's name. The last one fences those before."""
        config: dict[str, Any] = {
            "transactional.id": self._topic,
            "transaction.timeout.ms": self._timeout_ms,
            "message.timeout.ms": RECORD_MS,
            "log_level": 0,
        }
        found = Producer({"bootstrap.servers": self._cluster.bootstrap, "error_cb": lambda _error: None, **config})
        found.init_transactions(PATIENCE_S)
        return found

    def send(self, producer: Producer, value: str) -> str | None:
        """Write one record; return the name of the error, if it has come to nothing."""
        told: list[Any] = []
        producer.produce(
            self._topic, value.encode(), partition=self._partition, on_delivery=lambda error, _message: told.append(error)
        )
        assert producer.flush(PATIENCE_S) == 0
        return None if told[0] is None else str(told[0].name())

    def stand_still(self, name: str, until: str) -> None:
        """One record is in the transaction when its partition's leader stands still, and one is sent then. Returns when the
        leader goes on, and the transaction is in that state."""
        self.producer.begin_transaction()
        assert self.send(self.producer, f"{name}, in time") is None
        stands = self._cluster.leader(self._topic, self._partition)
        self._cluster.pause(stands)
        try:
            assert self.send(self.producer, f"{name}, late") == "_MSG_TIMED_OUT"
            if until != "Ongoing":
                wait_for("decided", lambda: state(self._cluster, self._topic) != "Ongoing", timeout_s=PATIENCE_S)
        finally:
            self._cluster.resume(stands)
        wait_for(until, lambda: state(self._cluster, self._topic) == until, timeout_s=PATIENCE_S)

    def commit(self, producer: Producer, value: str) -> None:
        producer.begin_transaction()
        assert self.send(producer, value) is None
        producer.commit_transaction(PATIENCE_S)

    def committed(self) -> list[str]:
        return [value for _key, value in keyed(self._cluster, self._topic, self._partition)]


def test_tx_15_a_producer_goes_on_behind_a_record_that_timed_out(standing: Cluster, topic: str) -> None:
    """It can only abort, and the next transactions are as any other; twice, so that it goes on from an epoch that it had so."""
    slow = Slow(standing, topic, 60_000)
    for turn in ("first", "second"):
        slow.stand_still(turn, "Ongoing")
        with pytest.raises(KafkaException) as caught:
            slow.producer.commit_transaction(PATIENCE_S)
        assert caught.value.args[0].txn_requires_abort(), caught.value
        slow.producer.abort_transaction(PATIENCE_S)
        for number in (1, 2):
            slow.commit(slow.producer, f"{turn}, {number} behind it")
    assert slow.committed() == [f"{turn}, {number} behind it" for turn in ("first", "second") for number in (1, 2)]


@pytest.mark.parametrize("comes", [True, False], ids=["another-instance", "alone"])
def test_tx_41_it_is_fenced_when_its_coordinator_was_first(standing: Cluster, topic: str, comes: bool) -> None:
    """Behind the transaction's own timeout nothing of it is there, and the next instance of the id is unharmed, whether it has
    come before the first one hears of it or behind."""
    slow = Slow(standing, topic, 2_000)
    slow.stand_still("first", "CompleteAbort")
    second = slow.instance() if comes else None
    if second is not None:
        second.begin_transaction()
        assert slow.send(second, "of the second") is None
    with pytest.raises(KafkaException) as caught:
        slow.producer.abort_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal(), caught.value
    if second is not None:
        second.commit_transaction(PATIENCE_S)
    slow.commit(second or slow.instance(), "the last")
    assert slow.committed() == [*(["of the second"] if comes else []), "the last"]
