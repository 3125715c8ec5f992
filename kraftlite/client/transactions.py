"""Transactions as administrators see them: listed, described, fenced, looked for in partitions, and ended there.

Every function takes a `ClusterClient`. Source: KIP-664, KIP-994, KIP-1152; Kafka's AdminClient (which errors are worth another
attempt).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraftlite.client.admin import by_topic
from kraftlite.client.cluster import ClusterClient, Coordinator, Partition, check
from kraftlite.client.connection import code_of
from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.model.errors import ErrorCode
from kraftlite.protocol.api_keys import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)

E = ErrorCode
PARTITIONS_AT_ONCE: Final = 500
NOT_SET: Final = -1
_LOADING: Final = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE)
_FENCE_TIMEOUT_MS: Final = 30_000
"""The transaction timeout of whoever is fenced, until its next producer says another."""


class ListedTransaction(NamedTuple):
    """A transactional id. `state` as Kafka calls it, such as Ongoing; `coordinator`: the id of a broker."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """`start_ms` None: nothing is open. `partitions`: while an outcome is carried out, those in which it is not written yet."""

    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[Partition, ...]


class ProducerState(NamedTuple):
    """The facts that a replica knows of a producer. `coordinator_epoch` None: no marker was ever written. `start_offset` None: it
    has no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    start_offset: int | None


class Abort(NamedTuple):
    """The transaction of a producer to be aborted in one partition."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


def list_transactions(
    cluster: ClusterClient,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = NOT_SET,
    pattern: str | None = None,
) -> list[ListedTransaction]:
    """The transactional ids that every live broker coordinates. Raises ClientError when one cannot tell. The version is the
    lowest that has the filters: brokers before Kafka 3.8 have no durations, those before 4.1 no patterns."""
    values: dict[str, Any] = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}
    values |= {"duration_filter": longer_than_ms, "transactional_id_pattern": pattern}
    version = 2 if pattern else 1 if longer_than_ms >= 0 else 0
    found: list[ListedTransaction] = []
    for broker, answer in zip(cluster.brokers(), cluster.at_brokers(LIST_TRANSACTIONS, version, values, _LOADING), strict=True):
        found += [
            ListedTransaction(str(one.transactional_id), broker, int(one.producer_id), str(one.transaction_state))
            for one in check(answer).transaction_states
        ]
    return found


def describe_transactions(
    cluster: ClusterClient, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | ClientError]:
    """The state of transactional ids, in the order asked."""

    def ask(at: Coordinator, names: list[str]) -> dict[str, TransactionDescription | ClientError]:
        answer = at.call(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": names})
        found: dict[str, TransactionDescription | ClientError] = {}
        for one in answer.transaction_states:
            code = code_of(one)
            name = str(one.transactional_id)
            found[name] = _description(at.node.id, one) if code is E.NONE else RequestRefused(code)
        return found

    return cluster.at_coordinators(transactional_ids, ask, transactions=True)


def _description(coordinator: int, one: Any) -> TransactionDescription:
    start_ms = int(one.transaction_start_time)
    return TransactionDescription(
        coordinator,
        int(one.producer_id),
        int(one.producer_epoch),
        str(one.transaction_state),
        round(one.transaction_timeout.total_seconds() * 1000),
        None if start_ms < 0 else start_ms,
        tuple((str(topic.topic), int(index)) for topic in one.topics for index in topic.partitions),
    )


def describe_producers(
    cluster: ClusterClient, partitions: Sequence[Partition], *, broker: int | None = None
) -> dict[Partition, list[ProducerState] | RequestRefused]:
    """The producers that wrote to partitions of late, as their leaders know, or as one broker that has replicas of them does."""

    def ask(node: int, theirs: list[Partition]) -> dict[Partition, list[ProducerState] | RequestRefused]:
        topics = [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(theirs).items()]
        answer = cluster.call(DESCRIBE_PRODUCERS, 0, {"topics": topics}, broker=node)
        return {
            (str(topic.name), int(one.partition_index)): _producers(one) for topic in answer.topics for one in topic.partitions
        }

    found: dict[Partition, list[ProducerState] | RequestRefused] = {}
    leaders = cluster.leaders(sorted({topic for topic, _index in partitions})) if broker is None else {}
    for at in range(0, len(partitions), PARTITIONS_AT_ONCE):
        some = list(partitions[at : at + PARTITIONS_AT_ONCE])
        if broker is not None:
            found |= ask(broker, some)
            continue
        nobody = {it: RequestRefused(E.LEADER_NOT_AVAILABLE if it in leaders else E.UNKNOWN_TOPIC_OR_PARTITION) for it in some}
        found |= nobody
        found |= cluster.at_leaders({it: leaders.get(it) for it in some}, ask, _code)
    return found


def _producers(one: Any) -> list[ProducerState] | RequestRefused:
    code = code_of(one)
    if code is not E.NONE:
        return RequestRefused(code, one.error_message)
    return [
        ProducerState(
            int(it.producer_id),
            int(it.producer_epoch),
            int(it.last_sequence),
            int(it.last_timestamp),
            None if it.coordinator_epoch < 0 else int(it.coordinator_epoch),
            None if it.current_txn_start_offset < 0 else int(it.current_txn_start_offset),
        )
        for it in one.active_producers
    ]


def _code(found: list[ProducerState] | RequestRefused) -> ErrorCode:
    return found.code if isinstance(found, RequestRefused) else E.NONE


def abort_transaction(cluster: ClusterClient, abort: Abort) -> None:
    """Abort a transaction in one partition, at its leader, whether or not a coordinator knows it (TA-05). Raises RequestRefused:
    INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED when it has been ended since."""
    partition = abort.partition
    topic, index = partition
    marker = {
        "producer_id": abort.producer_id,
        "producer_epoch": abort.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [index]}],
        "coordinator_epoch": abort.coordinator_epoch,
    }

    def ask(leader: int, theirs: list[Partition]) -> dict[Partition, ErrorCode]:
        answer = cluster.call(WRITE_TXN_MARKERS, 1, {"markers": [marker]}, broker=leader)
        return {
            (str(one.name), int(part.partition_index)): code_of(part)
            for result in answer.markers
            for one in result.topics
            for part in one.partitions
        }

    leaders = cluster.leaders([topic])
    nobody = E.LEADER_NOT_AVAILABLE if partition in leaders else E.UNKNOWN_TOPIC_OR_PARTITION
    found = cluster.at_leaders({partition: leaders.get(partition)}, ask, lambda code: code)
    code = found.get(partition, nobody)
    if code is not E.NONE:
        raise RequestRefused(code)


def fence_producer(cluster: ClusterClient, transactional_id: str) -> tuple[int, int]:
    """Take a transactional id away from whoever has it, which aborts its transaction (TA-06), and return the producer id and the
    epoch that are the newest now. Raises ClientError."""
    values = {
        "transactional_id": transactional_id,
        "transaction_timeout": _FENCE_TIMEOUT_MS,
        "producer_id": NOT_SET,
        "producer_epoch": NOT_SET,
    }

    def ask(at: Coordinator, names: list[str]) -> Mapping[str, tuple[int, int] | ClientError]:
        answer = at.call(INIT_PRODUCER_ID, 3, values)
        code = code_of(answer)
        return {name: _identity(answer) if code is E.NONE else RequestRefused(code) for name in names}

    again = (E.CONCURRENT_TRANSACTIONS,)
    found = cluster.at_coordinators([transactional_id], ask, again, transactions=True)[transactional_id]
    if isinstance(found, ClientError):
        raise found
    return found


def _identity(answer: Any) -> tuple[int, int]:
    return int(answer.producer_id), int(answer.producer_epoch)
