"""kafka-verifiable-consumer: what a member of a group gets, as JSON lines. Source: TO-30; VerifiableConsumer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from kraftlite.cli.compat import clients
from kraftlite.cli.compat.tool import Parser, UsageError, addresses, told_to_stop, whole
from kraftlite.cli.compat.verifiable_producer import say


def run(arguments: Sequence[str]) -> int:
    parser = Parser("kafka-verifiable-consumer", "This tool consumes messages from a topic and emits consumer events as JSON.")
    parser.connection()
    for name in ("topic", "group-id", "group-instance-id", "assignment-strategy", "group-remote-assignor"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--group-protocol", default="classic")
    parser.add_argument("--max-messages", type=whole(32), default=-1)
    parser.add_argument("--session-timeout", type=whole(32), default=30_000)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--reset-policy", default="earliest", choices=("earliest", "latest", "none"))
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE")
    options = parser.read(arguments)
    for name in ("topic", "group_id"):
        if not getattr(options, name):
            raise UsageError(f"argument --{name.replace('_', '-')} is required")
    files = [(options.command_config, "--command-config"), (options.consumer_config, "--consumer.config")]
    config: dict[str, object] = {
        "group.id": options.group_id,
        "enable.auto.commit": options.enable_autocommit,
        "auto.offset.reset": "error" if options.reset_policy == "none" else options.reset_policy,
        "fetch.wait.max.ms": 100,
        **clients.properties(files, []),
    }
    if options.group_protocol.lower() == "consumer":
        config["group.protocol"] = "consumer"
        if options.group_remote_assignor:
            config["group.remote.assignor"] = options.group_remote_assignor
    else:
        config["session.timeout.ms"] = options.session_timeout
        if options.assignment_strategy:
            config["partition.assignment.strategy"] = clients.assignor(options.assignment_strategy)
    if options.group_instance_id:
        config["group.instance.id"] = options.group_instance_id
    Reader(clients.consumer(addresses(options), config), options).go()
    return 0


def _partitions(partitions: Any) -> list[dict[str, object]]:
    return [{"topic": one.topic, "partition": one.partition} for one in partitions]


class Reader:
    """Consumes until it has enough or is told to stop."""

    def __init__(self, consumer: Any, options: argparse.Namespace) -> None:
        self._consumer = consumer
        self._options = options
        self._stopping = False
        self._count = 0

    def go(self) -> None:
        with told_to_stop(self._stop):
            say("startup_complete")
            try:
                self._consumer.subscribe([self._options.topic], on_assign=self._assigned, on_revoke=self._revoked)
                while not self._stopping and not self._enough():
                    self._take()
            finally:
                self._consumer.close()
        say("shutdown_complete")

    def _stop(self, _number: int, _frame: object) -> None:
        self._stopping = True

    def _enough(self) -> bool:
        return bool(0 <= self._options.max_messages <= self._count)

    @staticmethod
    def _assigned(_consumer: Any, partitions: Any) -> None:
        say("partitions_assigned", partitions=_partitions(partitions))

    @staticmethod
    def _revoked(_consumer: Any, partitions: Any) -> None:
        say("partitions_revoked", partitions=_partitions(partitions))

    def _take(self) -> None:
        options = self._options
        wanted = 500 if options.max_messages < 0 else min(500, options.max_messages - self._count)
        records = [one for one in self._consumer.consume(wanted, 0.1) if one.error() is None]
        if not records:
            return
        self._count += len(records)
        by_partition: dict[tuple[str, int], list[int]] = {}
        for one in records:
            by_partition.setdefault((one.topic(), one.partition()), []).append(one.offset())
        parts = [
            {"topic": topic, "partition": index, "count": len(found), "minOffset": min(found), "maxOffset": max(found)}
            for (topic, index), found in by_partition.items()
        ]
        if options.verbose:
            for one in records:
                key, value = (
                    (part or b"").decode("utf-8", "replace") if part is not None else None for part in (one.key(), one.value())
                )
                say("record_data", key=key, value=value, topic=one.topic(), partition=one.partition(), offset=one.offset())
        say("records_consumed", count=len(records), partitions=parts)
        if not options.enable_autocommit:
            self._commit(by_partition)

    def _commit(self, by_partition: dict[tuple[str, int], list[int]]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        offsets = [TopicPartition(topic, index, max(found) + 1) for (topic, index), found in by_partition.items()]
        shown = [{"topic": one.topic, "partition": one.partition, "offset": one.offset} for one in offsets]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            say("offsets_committed", offsets=shown, success=False, error=str(error.args[0].str()))
        else:
            say("offsets_committed", offsets=shown, success=True)
