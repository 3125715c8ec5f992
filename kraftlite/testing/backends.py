"""The cluster that a test run's fixtures stand for: an embedded one, or one that was there before (`--kafka-external`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from kraftlite.testing.cluster import SyncCluster
from kraftlite.testing.errors import ClusterError, WaitTimeout
from kraftlite.testing.marker import TopicSpec

RECORDS_SHOWN: Final = 20
PARTITIONS_SHOWN: Final = 50
EXTERNAL_LIMIT_S: Final = 20.0
EXTERNAL_POLL_S: Final = 0.05
HEADING: Final = "partitions of the test's topics:"
INTERNAL: Final = "__"
"""The prefix of the names of Kafka's own topics."""


class Backend(Protocol):
    """Raises ClusterError when the cluster does not do or tell what is asked."""

    @property
    def bootstrap_servers(self) -> str: ...

    def topics(self) -> Sequence[str]:
        """The names of all topics, in order."""

    def create_topic(self, name: str, spec: TopicSpec) -> None:
        """Led when it returns."""

    def describe(self, topics: Sequence[str]) -> list[str]:
        """Lines for the report of a failed test: nodes, these topics' partitions, metadata records."""


class Embedded:
    """The backend for a cluster in this process."""

    def __init__(self, cluster: SyncCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    def topics(self) -> Sequence[str]:
        return list(self.cluster.topics())

    def create_topic(self, name: str, spec: TopicSpec) -> None:
        self.cluster.create_topic(name, spec.partitions, spec.replication_factor, spec.config)

    def describe(self, topics: Sequence[str]) -> list[str]:
        active = self.cluster.controller()
        lines = ["nodes:"]
        for node in self.cluster.nodes.values():
            told = f"  {node.id} {' and '.join(node.roles)}: {node.state}"
            lines.append(f"{told}, the active controller" if node.id == active else told)
        lines += [f"  {it}" for it in self.cluster.troubles() if not it.startswith("node ") or " ended itself" in it]
        lines += self._partitions(topics)
        records = self.cluster.metadata_records(RECORDS_SHOWN)
        return [*lines, f"the last {len(records)} records of the metadata log:", *(f"  {it}" for it in records)]

    def _partitions(self, topics: Sequence[str]) -> list[str]:
        try:
            known = self.cluster.topics()
        except ClusterError as error:
            return [f"partitions: {error}"]
        partitions = [(name, index) for name in topics for index in known.get(name, ())]
        lines = [HEADING if partitions else f"{HEADING} none"]
        for name, index in partitions[:PARTITIONS_SHOWN]:
            view = self.cluster.partition(name, index)
            leader = "nobody" if view.leader is None else str(view.leader)
            marks = "" if view.leader is None else f", HW {view.hw}, LEO {view.leo}"
            told = f"leader {leader} in epoch {view.leader_epoch}, replicas {_ids(view.replicas)}, ISR {_ids(view.isr)}"
            lines.append(f"  {name}-{index}: {told}{marks}")
        return [*lines, *_more(len(partitions))]


class External:
    """The backend for a cluster that is only reached through its clients' listeners."""

    def __init__(self, bootstrap_servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap_servers = bootstrap_servers
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def topics(self) -> Sequence[str]:
        return sorted(self._metadata().topics)

    def create_topic(self, name: str, spec: TopicSpec) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        factor = -1 if spec.replication_factor is None else spec.replication_factor
        texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in spec.config.items()}
        topic = NewTopic(name, num_partitions=spec.partitions, replication_factor=factor, config=texts)
        try:
            self._admin.create_topics([topic], request_timeout=EXTERNAL_LIMIT_S)[name].result(EXTERNAL_LIMIT_S)
        except KafkaException as error:
            raise ClusterError(f"topic {name} was refused: {error.args[0]}") from None
        end_s = time.monotonic() + EXTERNAL_LIMIT_S
        while not self._is_led(name, spec.partitions):
            if time.monotonic() > end_s:
                raise WaitTimeout(f"topic {name} was created, but has no leader after {EXTERNAL_LIMIT_S:g} s")
            time.sleep(EXTERNAL_POLL_S)

    def delete_topic(self, name: str) -> None:
        from confluent_kafka import KafkaException

        try:
            self._admin.delete_topics([name], request_timeout=EXTERNAL_LIMIT_S)[name].result(EXTERNAL_LIMIT_S)
        except KafkaException as error:
            raise ClusterError(f"topic {name} was not deleted: {error.args[0]}") from None

    def describe(self, topics: Sequence[str]) -> list[str]:
        metadata = self._metadata()
        lines = [f"brokers of {self.bootstrap_servers}: {_ids(sorted(metadata.brokers))}"]
        found = [it for it in topics if it in metadata.topics]
        partitions = [
            (name, metadata.topics[name].partitions[index]) for name in found for index in metadata.topics[name].partitions
        ]
        shown = partitions[:PARTITIONS_SHOWN]
        marks = self._high_watermarks([(name, it.id) for name, it in shown])
        lines.append(HEADING if partitions else f"{HEADING} none")
        for name, it in shown:
            leader = "nobody" if it.leader < 0 else str(it.leader)
            told = f"leader {leader}, replicas {_ids(it.replicas)}, ISR {_ids(it.isrs)}"
            lines.append(f"  {name}-{it.id}: {told}, HW {marks[(name, it.id)]}")
        return [*lines, *_more(len(partitions))]

    def _metadata(self) -> Any:
        from confluent_kafka import KafkaException

        try:
            return self._admin.list_topics(timeout=EXTERNAL_LIMIT_S)
        except KafkaException as error:
            raise ClusterError(f"{self.bootstrap_servers} does not answer: {error.args[0]}") from None

    def _is_led(self, name: str, partitions: int) -> bool:
        found = self._metadata().topics.get(name)
        return (
            found is not None and len(found.partitions) == partitions and all(it.leader >= 0 for it in found.partitions.values())
        )

    def _high_watermarks(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        if not partitions:
            return {}
        latest: Any = OffsetSpec
        asked = {TopicPartition(name, index): latest.latest() for name, index in partitions}
        found = {}
        for tp, answer in self._admin.list_offsets(asked, request_timeout=EXTERNAL_LIMIT_S).items():
            try:
                found[(tp.topic, tp.partition)] = str(answer.result(EXTERNAL_LIMIT_S).offset)
            except KafkaException as error:
                found[(tp.topic, tp.partition)] = f"unknown ({error.args[0].name()})"
        return found


def _ids(node_ids: Sequence[int]) -> str:
    return ",".join(str(it) for it in node_ids) or "none"


def _more(partitions: int) -> list[str]:
    return [f"  … and {partitions - PARTITIONS_SHOWN} more"] if partitions > PARTITIONS_SHOWN else []
