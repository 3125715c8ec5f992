"""The clusters that clients are put through their tests on: kraftlite, or with `--apache-kafka` an Apache Kafka in its place."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from tests.clients.java.apache import ApacheKafka, apache_kafka
from tests.harness.embedded import EmbeddedNode, EmbeddedState, embedded
from tests.harness.local import FAST, Cluster

Start = Callable[[Mapping[str, str]], AbstractContextManager[Cluster]]


class Apache(Cluster):
    """An Apache Kafka whose nodes are a test's to kill. Each is a controller, too."""

    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__()
        self._kafka = kafka

    @property
    def state(self) -> EmbeddedState:  # type: ignore[override]
        addresses = self._kafka.bootstrap_servers.split(",")
        nodes = tuple(
            EmbeddedNode(n, ("broker", "controller"), address, "running" if self._kafka.nodes[n].poll() is None else "stopped")
            for n, address in enumerate(addresses, start=1)
        )
        return EmbeddedState(self._kafka.bootstrap_servers, "", nodes)

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._kafka.kill(node_id)

    def pause(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._kafka.nodes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._kafka.nodes[node_id].send_signal(signal.SIGCONT)

    def restart(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._kafka.start(node_id)
        self._kafka.wait()
        self._admins.clear()


@contextmanager
def started(config: Mapping[str, str], *, apache: bool = False) -> Iterator[Cluster]:
    """One controller and three brokers; of Apache Kafka three nodes that are both. `__transaction_state` has three partitions."""
    if apache:
        with apache_kafka(nodes=3, config={**FAST, "transaction.state.log.num.partitions": "3", **config}) as kafka:
            yield Apache(kafka)
    else:
        with embedded(controllers=1, brokers=3, config=config) as cluster:
            yield cluster
