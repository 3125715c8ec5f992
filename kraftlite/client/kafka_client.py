"""A synchronous, blocking Kafka client for raw record batches, as tasks in forked Spark workers need it.

Every call finds leaders and coordinators by itself. It asks for metadata again and repeats what may go better, broken connections
included, until the settings' time is over; then it raises. Speaks to kraftlite and to Apache Kafka from 3.0 on.

Source: the Kafka protocol; KIP-98 (idempotent producers).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kraftlite.client.connection import Connection, code_of
from kraftlite.client.errors import ClientError, OffsetOutOfRange
from kraftlite.client.routing import FAILURES, TopicInfo, told
from kraftlite.client.settings import ClientSettings
from kraftlite.client.transactional import Transactional, check_verifies
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition, by_topic
from kraftlite.protocol import api_keys
from kraftlite.protocol import record_requests as codec
from kraftlite.protocol.record_requests import Fetched, OffsetAt, ProduceResult

E = ErrorCode


class KafkaClient(Transactional):
    """One per process and thread (`client_for`); connects when it must, keeps its connections, and begins anew after a fork.

    Methods raise ClientError when they fail for good, UnknownTopic (one of it) for topics and partitions that nobody knows.
    """

    # --- topics

    def topics(self) -> dict[str, TopicInfo]:
        """Every topic, by name in order; internal ones too."""
        return self._describe(None, self._budget("topics"))

    def describe(self, names: Iterable[str], *, create: bool = False) -> dict[str, TopicInfo]:
        """Those that exist, by name in order. `create`: the cluster may make what is missing, if it is configured to."""
        wanted = sorted({*names})
        return self._describe(wanted, self._budget("describe"), create=create) if wanted else {}

    def partitions_for(self, topic: str, *, create: bool = False) -> tuple[int, ...]:
        """Raises UnknownTopic. `create` as in `describe`."""
        budget = self._budget("partitions")
        while True:
            found = self._describe([topic], budget, create=create).get(topic)
            if found is not None and found.partitions:
                return found.partitions
            budget.unknown(topic)

    # --- offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after each timestamp (ms), -1: the end (of what is committed, if asked so), -2: the start."""
        committed = self.settings.read_committed if read_committed is None else read_committed
        found: dict[TopicPartition, OffsetAt] = {}

        def send(connection: Connection, tps: list[TopicPartition], deadline: float) -> None:
            epochs = {tp: (self._leaders[tp].epoch, wanted[tp]) for tp in tps}
            body = codec.encode_list_offsets(epochs, read_committed=committed)
            connection.send(api_keys.LIST_OFFSETS, [body], deadline)

        def receive(frame: memoryview) -> dict[TopicPartition, tuple[ErrorCode, str]]:
            codes = {}
            for tp, (code, at) in codec.decode_list_offsets(frame).items():
                codes[tp] = (code, "")
                if code is E.NONE:
                    found[tp] = at
                elif not code.retriable:
                    raise ClientError(f"offsets of {tp}: {code.name}", code)
            return codes

        self._spread(sorted(wanted), send, receive, self._budget("list offsets"))
        return {tp: found[tp] for tp in wanted}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commit as a consumer without membership: the group must have no members."""

        def partition(tp: TopicPartition) -> dict[str, Any]:
            offset = {"committed_offset": offsets[tp], "committed_leader_epoch": -1, "committed_metadata": metadata}
            return {"partition_index": tp.partition, **offset}

        topics = [{"name": name, "partitions": [partition(tp) for tp in tps]} for name, tps in by_topic(sorted(offsets)).items()]
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": topics,
        }
        if offsets:
            self._ask_coordinator(group, api_keys.OFFSET_COMMIT, values, self._budget(f"commit of group {group}"))

    def committed_offsets(self, group: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """None: nothing is committed."""
        wanted = sorted({*tps})
        if not wanted:
            return {}
        topics = [{"name": name, "partition_indexes": [tp.partition for tp in one]} for name, one in by_topic(wanted).items()]
        values = {"group_id": group, "topics": topics, "require_stable": True}
        budget = self._budget(f"committed offsets of group {group}")
        answer = self._ask_coordinator(group, api_keys.OFFSET_FETCH, values, budget)
        found: dict[TopicPartition, int | None] = dict.fromkeys(wanted)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.committed_offset >= 0:
                    found[TopicPartition(str(topic.name), int(part.partition_index))] = int(part.committed_offset)
        return found

    def committed_metadata(self, group: str) -> tuple[str, ...]:
        """The different texts that the group's offsets were committed with, in order."""
        values = {"group_id": group, "topics": None, "require_stable": True}
        answer = self._ask_coordinator(group, api_keys.OFFSET_FETCH, values, self._budget(f"metadata of group {group}"))
        return tuple(sorted({str(part.metadata or "") for topic in answer.topics for part in topic.partitions}))

    def list_groups(self) -> tuple[str, ...]:
        """Every group of every live broker, in order. A broker that does not answer, or loads them yet, is left out."""
        found: set[str] = set()
        for answer in self._ask_all(api_keys.LIST_GROUPS, {"states_filter": []}, self._budget("list groups")):
            found.update(str(it.group_id) for it in answer.groups)
        return tuple(sorted(found))

    # --- records

    def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int | None = None,
        read_committed: bool | None = None,
        max_wait_ms: int = 500,
    ) -> Fetched:
        """Whole batches from the one that holds `offset` on (the last may be cut off): at least that one, however large. Empty
        when there is nothing yet. Raises OffsetOutOfRange. The records are overwritten by this client's next fetch."""
        budget = self._budget(f"fetch of {tp} at {offset}")
        size = self.settings.fetch_bytes if max_bytes is None else max_bytes
        committed = self.settings.read_committed if read_committed is None else read_committed
        while True:
            leader = self._locate([tp], budget)[tp]
            body = codec.encode_fetch(
                tp, offset, leader_epoch=leader.epoch, max_bytes=size, max_wait_ms=max_wait_ms, read_committed=committed
            )
            try:
                deadline = budget.deadline() + max_wait_ms / 1000
                connection = self._connect(leader.address, deadline)
                connection.send(api_keys.FETCH, [body], deadline)
                frame = connection.receive(deadline, self._suspicion(leader.address, [tp]), self._buffer)
                code, found = codec.decode_fetch(frame, tp)
            except FAILURES as error:
                self._lost(leader.address)
                self._forget([tp])
                budget.pause(told(leader.address, error), E.NETWORK_EXCEPTION)
                continue
            if code is E.NONE:
                return found
            if code is E.OFFSET_OUT_OF_RANGE:
                log = (
                    f"its log is [{found.log_start_offset}, {found.high_watermark})"
                    if found.high_watermark >= 0
                    else "not in its log"
                )
                raise OffsetOutOfRange(f"fetch of {tp} at {offset}: OFFSET_OUT_OF_RANGE, {log}", tp, offset)
            if not code.retriable:
                raise ClientError(f"fetch of {tp} at {offset}: {code.name}", code)
            self._again({tp: (code, "")}, budget)

    def init_producer_id(self) -> tuple[int, int]:
        """A new (producer id, epoch) for an idempotent producer."""
        budget = self._budget("init producer id")
        values = {"transactional_id": None, "transaction_timeout": 0, "producer_id": -1, "producer_epoch": -1}
        while True:
            answer = self._ask_anyone(api_keys.INIT_PRODUCER_ID, values, budget)
            code = code_of(answer)
            if code is E.NONE:
                return int(answer.producer_id), int(answer.producer_epoch)
            if not code.retriable:
                raise ClientError(f"init producer id: {code.name}", code)
            budget.pause(code.name, code)

    def produce(
        self,
        batches: Sequence[tuple[TopicPartition, bytes]],
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
        transactional_id: str | None = None,
    ) -> dict[TopicPartition, ProduceResult]:
        """One encoded batch for each partition; one request for each leader, all on their way at once. `timeout_ms` is for the
        call, retries included; None: the settings' `delivery_timeout_ms`. What cannot be retried is in the results, not raised. A
        batch with a producer id and sequence is written once, however often it is sent; another may be written again by a retry.
        `transactional_id`: of transactional batches, whose partitions are in the transaction.
        """
        data = dict(batches)
        if len(data) != len(batches):
            raise ValueError("produce: more than one batch for the same partition")
        results: dict[TopicPartition, ProduceResult] = {}
        limit_ms = self.settings.delivery_timeout_ms if timeout_ms is None else timeout_ms
        wait_ms = min(self.settings.request_timeout_ms, limit_ms)

        def send(connection: Connection, tps: list[TopicPartition], deadline: float) -> None:
            if transactional_id is not None:
                check_verifies(connection)
            theirs = {tp: data[tp] for tp in tps}
            body = codec.encode_produce(theirs, acks=acks, timeout_ms=wait_ms, transactional_id=transactional_id)
            connection.send(api_keys.PRODUCE, body, deadline, silent=acks == 0)
            if acks == 0:
                results.update(dict.fromkeys(tps, ProduceResult(0, -1)))

        def receive(frame: memoryview) -> dict[TopicPartition, tuple[ErrorCode, str]]:
            codes = {}
            for tp, (code, base_offset, message) in codec.decode_produce(frame).items():
                if code is E.DUPLICATE_SEQUENCE_NUMBER:  # it is there, further back than the broker remembers offsets of
                    code, base_offset = E.NONE, -1
                codes[tp] = (code, message)
                if not code.retriable:
                    done = code is E.NONE
                    results[tp] = ProduceResult(int(code), base_offset if done else -1, "" if done else message)
            return codes

        self._spread(sorted(data), send, receive if acks != 0 else None, self._budget("produce", limit_ms))
        return results


_LOCAL = threading.local()


def client_for(settings: ClientSettings) -> KafkaClient:
    """The client of this process and thread for these settings: made once, so that tasks of the same worker share connections."""
    if getattr(_LOCAL, "pid", None) != os.getpid():
        _LOCAL.pid, _LOCAL.clients = os.getpid(), {}
    clients: dict[ClientSettings, KafkaClient] = _LOCAL.clients
    if settings not in clients:
        clients[settings] = KafkaClient(settings)
    return clients[settings]
