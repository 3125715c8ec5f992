"""A kraftlite cluster inside the caller's process: real nodes, real Kafka listeners, failures at the call of a method.

`Cluster` is for asyncio, `SyncCluster` for everything else; they differ in nothing but the `await`. What acts at once is a plain
method in both (`kill`, `pause`, `cut`, and everything that only looks); what waits for the cluster is a coroutine in `Cluster`
and blocks in `SyncCluster` (`start`, `close`, `restart`, `stop`, `create_topic`, `wait_for`). The nodes run in a thread of their
own: the caller may block as long as it likes, and clients may run in any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, overload

from kraftlite.testing.base import WAIT_LIMIT_S, Base
from kraftlite.testing.conditions import PartitionView, Wanted, Who
from kraftlite.testing.errors import ClusterError
from kraftlite.testing.transactions import TransactionView, WantedTransaction, fence

CLOSE_LIMIT_S: Final = 30.0


class Cluster(Base):
    """`async with Cluster(controllers=3, brokers=3) as c:` — see the module. Faults are plain calls, waiting is awaited."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._finish(blame=error is None)

    async def start(self) -> None:
        """All nodes run and know each other when it returns. Raises ClusterError when they do not within 30 s."""
        begun = self._begin()  # one that runs already goes on
        try:
            await asyncio.wrap_future(begun)
        except BaseException:
            await self._finish(blame=False)
            raise

    async def close(self) -> None:
        """Kill all nodes and leave nothing behind. Idempotent. Raises ClusterError when a node ended itself and was not restarted
        since: what a test did not expect must not pass unseen."""
        await self._finish(blame=True)

    async def _finish(self, *, blame: bool) -> None:
        ending = self._end()
        try:
            if ending is not None:
                await asyncio.shield(asyncio.wrap_future(ending))
        finally:
            if ending is not None:
                concurrent.futures.wait([ending], CLOSE_LIMIT_S)
            wrong = self._ended()
        if wrong and blame:
            raise ClusterError("; ".join(wrong))

    async def restart(self, *node_ids: int) -> None:
        """Start nodes that are down; those that run are stopped gracefully first. Ready when it returns; same disk, same port."""
        await asyncio.wrap_future(self._restart(node_ids))

    async def stop(self, *node_ids: int) -> None:
        """Stop nodes as SIGTERM does: leaderships are handed over, logs closed. A paused node is resumed for it."""
        await asyncio.wrap_future(self._stop(node_ids))

    async def add_broker(self, rack: str | None = None) -> int:
        """One more broker, which serves when it returns; its id. It gets replicas of new topics."""
        return await asyncio.wrap_future(self._grow("broker", rack))

    async def add_controller(self) -> int:
        """One more controller, which votes when it returns (KIP-853); its id."""
        return await asyncio.wrap_future(self._grow("controller"))

    async def remove_broker(self, node_id: int, *, fewer_replicas: bool = False) -> None:
        """Move all replicas off a broker, stop it, and let the cluster forget it; one that is a controller, too, leaves the
        voters before.

        `fewer_replicas`: partitions for which no other broker is left go on with one replica less. Raises ClusterError, among
        others where there is no other broker for a replica, and for a node that is no broker."""
        await asyncio.wrap_future(self._shrink(node_id, "broker", fewer_replicas))

    async def remove_controller(self, node_id: int) -> None:
        """Remove a controller from the voters, running or not, and stop it. Raises ClusterError, among others where those that
        are left could elect nobody, and for a node that is a broker, too."""
        await asyncio.wrap_future(self._shrink(node_id, "controller"))

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        timeout: float = WAIT_LIMIT_S,
    ) -> None:
        """Led and known to all live brokers when it returns. As many as three replicas unless told; `assignment` names the
        brokers of each partition, the preferred leader first. Raises ClusterError with Kafka's reason when it is refused."""
        await asyncio.wrap_future(self._create_topic(name, partitions, replication_factor, config, assignment, timeout))

    @overload
    async def wait_for(
        self,
        *,
        topic: str,
        partition: int = 0,
        leader: int | Who | None = None,
        isr: Collection[int] | None = None,
        hw: int | None = None,
        controller: int | Who | None = None,
        brokers: Collection[int] | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> PartitionView: ...

    @overload
    async def wait_for(
        self,
        *,
        controller: int | Who | None = None,
        brokers: Collection[int] | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> None: ...

    async def wait_for(
        self,
        *,
        topic: str | None = None,
        partition: int = 0,
        leader: int | Who | None = None,
        isr: Collection[int] | None = None,
        hw: int | None = None,
        controller: int | Who | None = None,
        brokers: Collection[int] | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> PartitionView | None:
        """Until all of it holds at once; returns the partition as it was then. Ids may be conditions: `other_than(4)`,
        `SOMEBODY`, `NOBODY`. `isr` and `brokers` (those that are not fenced) are exact, `hw` is at least. Raises WaitTimeout,
        which says what was seen instead.
        """
        wanted = Wanted(topic=topic, partition=partition, leader=leader, isr=isr, hw=hw, controller=controller, brokers=brokers)
        return await asyncio.wrap_future(self._wait_for(wanted, timeout))

    async def wait_for_transaction(
        self,
        transactional_id: str,
        *,
        state: str | Collection[str] | None = None,
        coordinator: int | Who | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> TransactionView:
        """Until the id is in this state (or one of several) and this broker coordinates it: both at once, where both are given.
        Returns the id as it was then. Raises WaitTimeout, which says what was seen instead.
        """
        wanted = WantedTransaction(transactional_id=transactional_id, state=state, coordinator=coordinator)
        return await asyncio.wrap_future(self._wait_for_transaction(wanted, timeout))

    async def fence(self, transactional_id: str, *, timeout: float = WAIT_LIMIT_S) -> tuple[int, int]:
        """Take a transactional id away from its producer, as Kafka's `fenceProducers` does: an open transaction is aborted, and
        the next request of the producer is refused. Returns the newest producer id and epoch. Raises ClusterError."""
        return await asyncio.to_thread(fence, self.bootstrap_servers, transactional_id, timeout, self._admin_properties())


class SyncCluster(Base):
    """`with SyncCluster(controllers=3, brokers=3) as c:` — for callers without asyncio: what `Cluster` awaits blocks here."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._finish(blame=error is None)

    def start(self) -> None:
        """The blocking form of `Cluster.start`."""
        begun = self._begin()
        try:
            begun.result()
        except BaseException:
            self._finish(blame=False)
            raise

    def close(self) -> None:
        """The blocking form of `Cluster.close`."""
        self._finish(blame=True)

    def _finish(self, *, blame: bool) -> None:
        ending = self._end()
        try:
            if ending is not None:
                ending.result(CLOSE_LIMIT_S)
        finally:
            wrong = self._ended()
        if wrong and blame:
            raise ClusterError("; ".join(wrong))

    def restart(self, *node_ids: int) -> None:
        """The blocking form of `Cluster.restart`."""
        self._restart(node_ids).result()

    def stop(self, *node_ids: int) -> None:
        """The blocking form of `Cluster.stop`."""
        self._stop(node_ids).result()

    def add_broker(self, rack: str | None = None) -> int:
        """The blocking form of `Cluster.add_broker`."""
        return self._grow("broker", rack).result()

    def add_controller(self) -> int:
        """The blocking form of `Cluster.add_controller`."""
        return self._grow("controller").result()

    def remove_broker(self, node_id: int, *, fewer_replicas: bool = False) -> None:
        """The blocking form of `Cluster.remove_broker`."""
        self._shrink(node_id, "broker", fewer_replicas).result()

    def remove_controller(self, node_id: int) -> None:
        """The blocking form of `Cluster.remove_controller`."""
        self._shrink(node_id, "controller").result()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        *,
        timeout: float = WAIT_LIMIT_S,
    ) -> None:
        """The blocking form of `Cluster.create_topic`."""
        self._create_topic(name, partitions, replication_factor, config, assignment, timeout).result()

    @overload
    def wait_for(
        self,
        *,
        topic: str,
        partition: int = 0,
        leader: int | Who | None = None,
        isr: Collection[int] | None = None,
        hw: int | None = None,
        controller: int | Who | None = None,
        brokers: Collection[int] | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> PartitionView: ...

    @overload
    def wait_for(
        self,
        *,
        controller: int | Who | None = None,
        brokers: Collection[int] | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> None: ...

    def wait_for(
        self,
        *,
        topic: str | None = None,
        partition: int = 0,
        leader: int | Who | None = None,
        isr: Collection[int] | None = None,
        hw: int | None = None,
        controller: int | Who | None = None,
        brokers: Collection[int] | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> PartitionView | None:
        """The blocking form of `Cluster.wait_for`."""
        wanted = Wanted(topic=topic, partition=partition, leader=leader, isr=isr, hw=hw, controller=controller, brokers=brokers)
        return self._wait_for(wanted, timeout).result()

    def wait_for_transaction(
        self,
        transactional_id: str,
        *,
        state: str | Collection[str] | None = None,
        coordinator: int | Who | None = None,
        timeout: float = WAIT_LIMIT_S,
    ) -> TransactionView:
        """The blocking form of `Cluster.wait_for_transaction`."""
        wanted = WantedTransaction(transactional_id=transactional_id, state=state, coordinator=coordinator)
        return self._wait_for_transaction(wanted, timeout).result()

    def fence(self, transactional_id: str, *, timeout: float = WAIT_LIMIT_S) -> tuple[int, int]:
        """The blocking form of `Cluster.fence`."""
        return fence(self.bootstrap_servers, transactional_id, timeout, self._admin_properties())
