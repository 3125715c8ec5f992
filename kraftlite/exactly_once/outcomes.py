"""A partition's records with the producer of each and the outcome of its transaction, for those who look at what was written.

Source: KIP-98 (control batches).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraftlite.client.errors import ClientError
from kraftlite.client.kafka_client import KafkaClient
from kraftlite.exactly_once.reading import bounds, scan
from kraftlite.log.batch import BatchHeader, Record
from kraftlite.model.errors import ApiError
from kraftlite.model.producer import Producer
from kraftlite.model.topic_partition import TopicPartition


class Outcome(NamedTuple):
    """A record and the outcome of its transaction: `committed` None, it is open; true outside transactions. `producer` None: the
    record was written without one."""

    offset: int
    producer: Producer | None
    transactional: bool
    committed: bool | None
    record: Record


def outcomes(client: KafkaClient, tp: TopicPartition) -> Iterator[Outcome]:
    """Read all records that are there now, in order; the log is read twice, at first for the ends of transactions. The client
    may fetch nothing else meanwhile. Raises ClientError, also when a batch is damaged."""
    start, end = bounds(client, tp)
    endings = _endings(client, tp, start, end)
    for stored in scan(client, tp, start, end):
        header = stored.header
        if stored.ends is not None or header.is_control:
            continue
        producer = Producer(header.producer_id, header.producer_epoch) if header.producer_id >= 0 else None
        committed = _ending(header, endings) if header.is_transactional else True
        try:
            for offset, record in stored.records():
                yield Outcome(offset, producer, header.is_transactional, committed, record)
        except ApiError as error:
            raise ClientError(f"{tp}, batch at offset {header.base_offset}: {error.message}", error.code) from error


def _endings(client: KafkaClient, tp: TopicPartition, start: int, end: int) -> dict[int, list[tuple[int, bool]]]:
    """By producer id: the offset of each end of a transaction, from the last one back, and whether it is a commit."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for stored in scan(client, tp, start, end):
        if stored.ends is not None:
            found.setdefault(stored.header.producer_id, []).append((stored.header.base_offset, stored.ends))
    return {producer: ends[::-1] for producer, ends in found.items()}


def _ending(header: BatchHeader, endings: dict[int, list[tuple[int, bool]]]) -> bool | None:
    """Batches are asked about in the order of the log: what lies in front of one is not needed any more."""
    ahead = endings.get(header.producer_id, [])
    while ahead and ahead[-1][0] < header.base_offset:
        ahead.pop()
    return ahead[-1][1] if ahead else None
