"""Records written while something happens to the cluster, and what became of them."""

from __future__ import annotations

import threading
from typing import Any

from tests.harness.local import PATIENCE_S, Cluster, wait_for


class Writer:
    """Writes numbered records, idempotent and acks=all, until told to stop; knows what was acknowledged at which offset."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0, **more: object) -> None:
        config = {"message.timeout.ms": 120000, "socket.timeout.ms": 3000, "retry.backoff.ms": 20, "retry.backoff.max.ms": 200}
        self._producer = cluster.producer(**{"enable.idempotence": True, **config, **more})
        self._topic, self._partition = topic, partition
        self.acked: dict[int, str] = {}
        self.failed: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acked[message.offset()] = message.value().decode()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(self.sent).encode(), partition=self._partition, on_delivery=self._report)
            self.sent += 1
            self._producer.poll(0.002)
        self._producer.flush(120)

    def __enter__(self) -> Writer:
        self._thread.start()
        self.wait_more(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(130)

    def wait_more(self, n: int, timeout_s: float = PATIENCE_S) -> None:
        target = len(self.acked) + n
        wait_for(f"{n} more acknowledged records", lambda: len(self.acked) >= target, timeout_s=timeout_s)

    def verify(self, cluster: Cluster) -> None:
        """Every acknowledged record once, at its offset, in order, and nothing that was not sent."""
        assert not self.failed
        values = cluster.consume(self._topic, partition=self._partition, at_least=len(self.acked))
        for offset, value in self.acked.items():
            assert values[offset] == value
        numbers = [int(value) for value in values]
        assert numbers == sorted(set(numbers)), "order or uniqueness broken"
        assert numbers[-1] < self.sent
