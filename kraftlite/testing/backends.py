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
        from kraftlite.client.cluster import ClusterClient
        from kraftlite.client.properties import settings_from

        limit_ms = f"{EXTERNAL_LIMIT_S * 1000:.0f}"
        self.bootstrap_servers = bootstrap_servers
        self._cluster = ClusterClient(settings_from({"bootstrap.servers": bootstrap_servers, "default.api.timeout.ms": limit_ms}))

    def topics(self) -> Sequence[str]:
        return list(self._known())

    def create_topic(self, name: str, spec: TopicSpec) -> None:
        from kraftlite.client.admin import create_topic
        from kraftlite.client.errors import ClientError

        factor = -1 if spec.replication_factor is None else spec.replication_factor
        texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in spec.config.items()}
        try:
            create_topic(self._cluster, name, spec.partitions, factor, texts)
        except ClientError as error:
            raise ClusterError(f"topic {name} was refused: {error}") from None
        end_s = time.monotonic() + EXTERNAL_LIMIT_S
        while not self._is_led(name, spec.partitions):
            if time.monotonic() > end_s:
                raise WaitTimeout(f"topic {name} was created, but has no leader after {EXTERNAL_LIMIT_S:g} s")
            time.sleep(EXTERNAL_POLL_S)

    def delete_topic(self, name: str) -> None:
        from kraftlite.client.admin import delete_topics
        from kraftlite.client.errors import ClientError

        refused: ClientError | None
        try:
            refused = delete_topics(self._cluster, [name])[name]
        except ClientError as error:
            refused = error
        if refused is not None:
            raise ClusterError(f"topic {name} was not deleted: {refused}")

    def describe(self, topics: Sequence[str]) -> list[str]:
        known = self._known()
        lines = [f"brokers of {self.bootstrap_servers}: {_ids(self._brokers())}"]
        partitions = [
            (name, it)
            for name in topics
            if name in known
            for it in sorted(known[name].partitions, key=lambda it: int(it.partition_index))
        ]
        shown = partitions[:PARTITIONS_SHOWN]
        marks = self._high_watermarks({(name, int(it.partition_index)): int(it.leader_id) for name, it in shown})
        lines.append(HEADING if partitions else f"{HEADING} none")
        for name, it in shown:
            leader = "nobody" if it.leader_id < 0 else str(it.leader_id)
            told = f"leader {leader}, replicas {_ids(it.replica_nodes)}, ISR {_ids(it.isr_nodes)}"
            lines.append(f"  {name}-{it.partition_index}: {told}, HW {marks[(name, int(it.partition_index))]}")
        return [*lines, *_more(len(partitions))]

    def _known(self) -> dict[str, Any]:
        from kraftlite.client.errors import ClientError

        try:
            return self._cluster.topics()
        except ClientError as error:
            raise ClusterError(f"{self.bootstrap_servers} does not answer: {error}") from None

    def _brokers(self) -> list[int]:
        from kraftlite.client.errors import ClientError

        try:
            return list(self._cluster.brokers())
        except ClientError as error:
            raise ClusterError(f"{self.bootstrap_servers} does not answer: {error}") from None

    def _is_led(self, name: str, partitions: int) -> bool:
        found = self._known().get(name)
        return found is not None and len(found.partitions) == partitions and all(it.leader_id >= 0 for it in found.partitions)

    def _high_watermarks(self, leaders: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], str]:
        from kraftlite.client.admin import list_offsets
        from kraftlite.client.errors import ClientError
        from kraftlite.model.errors import ErrorCode
        from kraftlite.protocol.record_requests import LATEST

        led = {partition: leader if leader >= 0 else None for partition, leader in leaders.items()}
        try:
            found = list_offsets(self._cluster, dict.fromkeys(leaders, LATEST), led)
        except ClientError as error:
            return dict.fromkeys(leaders, f"unknown ({error})")
        return {
            partition: str(offset) if code is ErrorCode.NONE else f"unknown ({code.name})"
            for partition, (code, offset, _timestamp) in found.items()
        }


def _ids(node_ids: Sequence[int]) -> str:
    return ",".join(str(it) for it in node_ids) or "none"


def _more(partitions: int) -> list[str]:
    return [f"  … and {partitions - PARTITIONS_SHOWN} more"] if partitions > PARTITIONS_SHOWN else []
