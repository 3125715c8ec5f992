"""The fetchers of a broker: which partition is in which, and the tasks that run them.

Source: RP-33, RP-37; invariant 31 (a followed partition is in exactly one fetcher, to its current leader).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from kraftlite.model.ids import Endpoint, NodeId
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.config import ReplicationConfig
from kraftlite.replication.fetcher_core import FetcherCore
from kraftlite.replication.fetcher_driver import FetcherDriver
from kraftlite.replication.partition import Partition
from kraftlite.replication.throttle import ReplicationThrottle
from kraftlite.runtime.ports import Ports, TaskHandle


class FetcherManager:
    """All fetchers of a broker. `follow` and `forget` take effect at once."""

    def __init__(
        self,
        ports: Ports,
        config: ReplicationConfig,
        *,
        endpoint: Callable[[NodeId], Endpoint | None],
        broker_epoch: Callable[[], int | None],
        on_io_error: Callable[[OSError, TopicPartition], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._ports = ports
        self._config = config
        self._endpoint = endpoint
        self._broker_epoch = broker_epoch
        self._on_io_error = on_io_error
        self._throttle = throttle
        self._drivers: dict[tuple[NodeId, int], tuple[FetcherDriver, TaskHandle]] = {}
        self._assigned: dict[TopicPartition, tuple[NodeId, int]] = {}
        self._gathers: int | None = None

    def leader_of(self, tp: TopicPartition) -> NodeId | None:
        """Return the broker from which the partition is fetched; None: it is in no fetcher."""
        found = self._assigned.get(tp)
        return None if found is None else found[0]

    def follow(self, partition: Partition, leader_id: NodeId, leader_epoch: int) -> None:
        self.forget(partition)
        number = (zlib.crc32(partition.tp.topic.encode()) + partition.tp.partition) % self._config.num_fetchers
        key = (leader_id, number)
        found = self._drivers.get(key)
        if found is None:
            probed = self._ports.tuning.partitions_per_step
            core = FetcherCore(self._config, leader_id, self._ports.tracer, self._on_io_error, self._throttle, probed)
            core.add(partition, leader_epoch)
            if self._gathers:
                core.gather(self._gathers)
            driver = FetcherDriver(self._ports, self._config, core, self._endpoint, self._broker_epoch)
            task = self._ports.tasks.spawn(driver.run(), name=f"replica-fetcher-{number}-{leader_id}")
            self._drivers[key] = (driver, task)
        else:
            found[0].core.add(partition, leader_epoch)
            if not self._gathers or found[0].core.has_news:
                found[0].wake()
        self._assigned[partition.tp] = key

    def forget(self, partition: Partition) -> None:
        key = self._assigned.pop(partition.tp, None)
        if key is not None:
            self._drivers[key][0].core.remove(partition)

    def max_lag(self) -> int:
        """The most offsets by which a replica here is behind the high watermark that its leader has told."""
        return max((driver.core.max_lag() for driver, _ in self._drivers.values()), default=0)

    def lags(self) -> Iterator[tuple[NodeId, int, TopicPartition, int]]:
        """The leader, the number of the fetcher, and the lag of each replica that follows. Only for one turn of the loop."""
        for (leader_id, number), (driver, _) in self._drivers.items():
            for tp, lag in driver.core.lags():
                yield leader_id, number, tp, lag

    def requests(self) -> dict[tuple[NodeId, int], int]:
        """The fetches that each fetcher has sent, by leader and number."""
        return {key: driver.requests for key, (driver, _) in self._drivers.items()}

    def wake_all(self) -> None:
        """Wake all fetchers: brokers may be reachable, or elsewhere, now."""
        for driver, _ in self._drivers.values():
            driver.wake()

    def gather(self, many: int) -> None:
        """Many partitions are about to be followed, in steps: name them to their leaders so many at a time, until `settle`. A
        request for each step would cost both sides more than the partitions in it."""
        self._gathers = many
        for driver, _ in self._drivers.values():
            driver.core.gather(many)

    def settle(self) -> None:
        """All partitions have been added: name the last of them, and end the fetchers that have nothing left to follow."""
        if self._gathers:
            self._gathers = None
            for driver, _ in self._drivers.values():
                driver.core.gathered()
                if driver.core.has_news:
                    driver.wake()
        for key, (driver, task) in list(self._drivers.items()):
            if not len(driver.core):
                del self._drivers[key]
                task.cancel()

    def close(self) -> None:
        for _, task in self._drivers.values():
            task.cancel()
        self._drivers.clear()
        self._assigned.clear()
