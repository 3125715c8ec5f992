"""The producer's side of transactions: who is asked, what is asked again, and which answers are final.

Source: KIP-98, KIP-890; SX-02.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.client.settings import ClientSettings
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.protocol.api_keys import ADD_PARTITIONS_TO_TXN, END_TXN, FIND_COORDINATOR, INIT_PRODUCER_ID

E = ErrorCode
P = Producer(5, 2)


class Coordinators(KafkaClient):
    """`answers`: the error codes of requests to coordinators, in turn. `verifies`: AddPartitionsToTxn up to this version.
    `patience_ms`: how long it is worth a try, which is short only where it is the thing that ends."""

    def __init__(self, *answers: Any, verifies: int = 4, patience_ms: int = 60_000) -> None:
        quick = {"retry_timeout_ms": patience_ms, "retry_backoff_ms": 0, "retry_backoff_max_ms": 1, "reconnect_backoff_ms": 0}
        super().__init__(ClientSettings(bootstrap=("one:9092",), **quick))  # type: ignore[arg-type]
        self.answers = list(answers)
        self.verifies = verifies
        self.asked: list[tuple[int, dict[str, Any]]] = []

    def _connect(self, address: tuple[str, int], deadline: float) -> Any:
        def ask(api_key: int, values: dict[str, Any], *_more: Any, version: int | None = None) -> Any:
            self.asked.append((api_key, values))
            if api_key == FIND_COORDINATOR:
                assert values["key_type"] == 1
                return SimpleNamespace(error_code=E.NONE, host="two", port=9092)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer if isinstance(answer, SimpleNamespace) else SimpleNamespace(error_code=answer)

        return SimpleNamespace(ask=ask, offers=lambda _key, version: version <= self.verifies, close=lambda: None)


def given(code: ErrorCode, producer_id: int = 5, epoch: int = 2) -> SimpleNamespace:
    return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)


def added(*codes: tuple[int, ErrorCode]) -> SimpleNamespace:
    parts = [SimpleNamespace(partition_index=index, partition_error_code=code) for index, code in codes]
    return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(name="t", results_by_partition=parts)])


def test_an_id_is_taken_over_when_its_past_has_ended() -> None:
    """A coordinator that is busy with the transaction before is asked again, another one is looked for when it has moved."""
    client = Coordinators(
        given(E.CONCURRENT_TRANSACTIONS),
        given(E.NOT_COORDINATOR),
        OSError("gone"),
        given(E.COORDINATOR_LOAD_IN_PROGRESS),
        given(E.NONE),
    )
    assert client.init_transactions("x", 700) == P
    kinds = [key for key, _ in client.asked]
    find, init = FIND_COORDINATOR, INIT_PRODUCER_ID
    assert kinds == [find, init, init, find, init, find, init, find, init]
    values = client.asked[1][1]
    assert values == {"transactional_id": "x", "transaction_timeout": 700, "producer_id": -1, "producer_epoch": -1}
    with pytest.raises(ClientError, match="transactional id x: INVALID_TRANSACTION_TIMEOUT"):
        Coordinators(given(E.INVALID_TRANSACTION_TIMEOUT)).init_transactions("x", 1)
    with pytest.raises(ClientError, match="the coordinator gave Producer"):
        Coordinators(given(E.NONE, -1, -1)).init_transactions("x", 1)
    with pytest.raises(ClientError, match=r"take over transactional id x: CONCURRENT_TRANSACTIONS \(tried for"):
        Coordinators(*[given(E.CONCURRENT_TRANSACTIONS)] * 10_000, patience_ms=50).init_transactions("x", 1)


def test_partitions_are_added_all_or_none() -> None:
    tps = [TopicPartition("t", 1), TopicPartition("t", 0)]
    client = Coordinators(
        added((0, E.UNKNOWN_TOPIC_OR_PARTITION), (1, E.OPERATION_NOT_ATTEMPTED)), added((0, E.NONE), (1, E.NONE))
    )
    client.add_partitions("x", P, tps)
    key, values = client.asked[1]
    assert key == ADD_PARTITIONS_TO_TXN and values["v3_and_below_topics"] == [{"name": "t", "partitions": [0, 1]}]
    assert (values["v3_and_below_producer_id"], values["v3_and_below_producer_epoch"]) == P
    with pytest.raises(ClientError, match="transactional id x: PRODUCER_FENCED"):
        Coordinators(added((0, E.PRODUCER_FENCED), (1, E.PRODUCER_FENCED))).add_partitions("x", P, tps)
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        codes = (0, E.OPERATION_NOT_ATTEMPTED), (1, E.TOPIC_AUTHORIZATION_FAILED)
        Coordinators(added(*codes)).add_partitions("x", P, tps)
    with pytest.raises(ClientError, match="answers for"):
        Coordinators(*[added((0, E.NONE))] * 10_000, patience_ms=50).add_partitions("x", P, tps)
    nobody = Coordinators()
    nobody.add_partitions("x", P, [])
    assert nobody.asked == []


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (E.NONE, True),
        (E.PRODUCER_FENCED, False),
        (E.INVALID_PRODUCER_EPOCH, False),
        (E.INVALID_PRODUCER_ID_MAPPING, False),
        (E.INVALID_TXN_STATE, False),
    ],
)
def test_an_end_is_taken_or_refused_for_good(code: ErrorCode, ended: bool) -> None:
    client = Coordinators(E.CONCURRENT_TRANSACTIONS, ConnectionResetError("lost"), code)
    assert client.end_transaction("x", P, commit=True) is ended
    key, values = client.asked[-1]
    assert key == END_TXN and values == {"transactional_id": "x", "producer_id": 5, "producer_epoch": 2, "committed": True}


@pytest.mark.parametrize("code", [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.UNKNOWN_SERVER_ERROR])
def test_what_is_not_known_is_an_error(code: ErrorCode) -> None:
    with pytest.raises(ClientError, match=code.name):
        Coordinators(code).end_transaction("x", P, commit=False)


@pytest.mark.parametrize(
    "call",
    [
        lambda it: it.init_transactions("x", 1),
        lambda it: it.add_partitions("x", P, [TopicPartition("t", 0)]),
        lambda it: it.end_transaction("x", P, commit=True),
    ],
)
def test_sx_02_a_broker_that_does_not_verify_is_refused(call: Callable[[Coordinators], object]) -> None:
    """Apache Kafka before 3.6. Nothing is asked of it."""
    client = Coordinators(verifies=3)
    with pytest.raises(ClientError, match=r"does not verify what is written in transactions: Apache Kafka 3\.6 or newer"):
        call(client)
    assert [key for key, _ in client.asked] == [FIND_COORDINATOR]
