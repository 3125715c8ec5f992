"""Transactions that hang, and those that are to be aborted: what the commands of both kinds share.

Source: TA-05, TA-07; KIP-664.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraftlite.client.errors import ClientError, RequestRefused
from kraftlite.client.transactions import Abort, ProducerState, describe_producers, describe_transactions, list_transactions
from kraftlite.model.errors import ErrorCode

if TYPE_CHECKING:
    from kraftlite.client.cluster import ClusterClient, Partition

MINUTE_MS: Final = 60_000
DEFAULT_MAX_TIMEOUT_MIN: Final = 15
"""The default of `transaction.max.timeout.ms`: no transaction may be open for longer."""

STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
"""The states of transactional ids that brokers list."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: Partition
    producer: ProducerState


class NotDescribed(RequestRefused):
    """The producers of a partition are not known, for this reason."""

    def __init__(self, partition: Partition, refused: RequestRefused) -> None:
        super().__init__(refused.code, refused.message or "the producers of {}-{} are not known".format(*partition))
        self.partition = partition
        self.refused = refused

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.partition, self.refused)


class NoSuchTopic(Exception):
    """The topic that was named does not exist."""


class NoSuchTransaction(Exception):
    """No transaction is open at that offset."""


def now_ms() -> int:
    """The wall clock of whoever asks: ages of transactions are told by it."""
    return int(time.time() * 1000)


def partitions_of(cluster: ClusterClient, topic: str | None, partition: int | None, broker: int | None) -> list[Partition]:
    """The partitions to search: one, those of a topic, or all, and with `broker` those that it has replicas of. Raises
    NoSuchTopic."""
    if topic is not None and partition is not None:
        return [(topic, partition)]
    found = cluster.topics(None if topic is None else [topic])
    if topic is not None and topic not in found:
        raise NoSuchTopic
    return [
        (name, int(part.partition_index))
        for name in found
        for part in sorted(found[name].partitions, key=lambda part: int(part.partition_index))
        if broker is None or broker in part.replica_nodes
    ]


def open_transactions(
    cluster: ClusterClient, partitions: Sequence[Partition], *, broker: int | None, since_ms: int
) -> list[OpenTransaction]:
    """Those in which nothing was written since a time (wall clock milliseconds). Raises NotDescribed, ClientError."""
    found = []
    for partition, producers in describe_producers(cluster, partitions, broker=broker).items():
        if isinstance(producers, RequestRefused):
            raise NotDescribed(partition, producers)
        found += [
            OpenTransaction(partition, it) for it in producers if it.start_offset is not None and it.last_timestamp_ms < since_ms
        ]
    return found


def hanging(cluster: ClusterClient, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those that no coordinator will end: none knows the producer, or its transaction is not of that partition (TA-07). Raises
    ClientError."""
    producer_ids = list(dict.fromkeys(it.producer.producer_id for it in candidates))
    if not producer_ids:
        return []
    listed = list_transactions(cluster, producer_ids=producer_ids)
    names = {it.producer_id: it.transactional_id for it in listed if it.producer_id in producer_ids}
    described = describe_transactions(cluster, names.values())
    found = []
    for one in candidates:
        name = names.get(one.producer.producer_id)
        description = None if name is None else described[name]
        if isinstance(description, ClientError):
            if description.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise description
            description = None
        if description is None or one.partition not in description.partitions:
            found.append(one)
    return found


def abort_at(cluster: ClusterClient, partition: Partition, start_offset: int) -> Abort:
    """Return what is to be aborted where a transaction begins. Raises NoSuchTransaction; ClientError."""
    producers = describe_producers(cluster, [partition])[partition]
    if isinstance(producers, ClientError):
        raise producers
    for it in producers:
        if it.start_offset == start_offset:
            return Abort(partition, it.producer_id, it.producer_epoch, it.coordinator_epoch or 0)
    raise NoSuchTransaction
