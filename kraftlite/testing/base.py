"""The common part of `Cluster` and `SyncCluster`: their shape, the faults that act at once, and the views."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kraftlite.testing.conditions import PartitionView, Wanted
from kraftlite.testing.errors import ClusterError
from kraftlite.testing.faults import CLIENTS, Ends, FaultCalls, Injected, Request, milliseconds
from kraftlite.testing.layout import NodePlan, check_config, plan
from kraftlite.testing.thread import LoopThread

if TYPE_CHECKING:
    from kraftlite.testing.nodes import Nodes
    from kraftlite.testing.secure import Secrets
    from kraftlite.testing.transactions import TransactionView, WantedTransaction
    from kraftlite.testing.views import Views

__all__ = ["CLIENTS", "Base", "Ends", "NodeInfo"]
T = TypeVar("T")
READY_LIMIT_S: Final = 30.0
WAIT_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A node as it was when it was asked for. `state`: starting, running, paused, stopped or failed (it ended itself)."""

    id: int
    roles: tuple[str, ...]
    state: str
    kafka: str | None
    """The address at which clients reach it; None for a node that is only a controller."""
    failure: str | None


def _secrets() -> Secrets:
    from kraftlite.testing.secure import Secrets

    return Secrets()


class Base(FaultCalls):
    """The common part of both clusters: the shape, what acts at once, and what only looks."""

    def __init__(
        self,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: bool = False,
        config: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        directories: int = 1,
        secure: bool = False,
        record: bool = False,
    ) -> None:
        """Controllers are nodes 1 … C, brokers C+1 …; `combined`: nodes 1 … are both. `config` are Kafka's `server.properties`
        for all nodes, over the short timeouts that are the default here (`kraftlite.testing.layout.FAST`); the lag limit is
        raised with the session timeout. `racks`: where the brokers stand, in turn. `directories`: how many `log.dirs` each broker
        has; see `log_dirs`. `secure`: clients log in over TLS and may do what ACLs allow (`client_config`). `record`: from the
        start on (`recording`). Raises ValueError.
        """
        self._begins_as = plan(controllers, brokers, combined, racks, directories)
        self._config = check_config(config or {})
        self._secrets = _secrets() if secure else None
        self._record = record
        self._thread: LoopThread | None = None
        self._nodes: Nodes | None = None
        self._views: Views | None = None

    # --- what there is

    @property
    def _plans(self) -> tuple[NodePlan, ...]:
        """The nodes; those of the beginning, where nothing runs."""
        return self._begins_as if self._nodes is None else self._nodes.plans

    @property
    def bootstrap_servers(self) -> str:
        """Every broker's address, whether it runs or not; the same for the life of the cluster."""
        return ",".join(it.kafka for it in self.nodes.values() if it.kafka is not None)

    def client_config(self, user: str = "admin") -> dict[str, str]:
        """The options with which a librdkafka client reaches the cluster: the addresses, and in a secure one what proves that
        it is `user`. `admin` may do everything, `alice` and `bob` what ACLs allow. Raises ClusterError for another user."""
        servers = self.bootstrap_servers
        return {"bootstrap.servers": servers} if self._secrets is None else self._secrets.client_config(user, servers)

    def _admin_properties(self) -> dict[str, str]:
        return {} if self._secrets is None else self._secrets.admin_properties()

    @property
    def nodes(self) -> Mapping[int, NodeInfo]:
        """All nodes by id, as they are now."""
        nodes = self._running()

        def look() -> dict[int, NodeInfo]:
            return {it.node_id: self._info(nodes, it) for it in self._plans}

        return self._do(look)

    @staticmethod
    def _info(nodes: Nodes, node: NodePlan) -> NodeInfo:
        node_id = node.node_id
        return NodeInfo(
            id=node_id,
            roles=node.roles,
            state=nodes.state(node_id),
            kafka=nodes.address(node_id),
            failure=nodes.failures.get(node_id),
        )

    @property
    def cluster_id(self) -> str:
        return self._running().cluster_id

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the nodes with this role, running or not."""
        return tuple(it.node_id for it in self._plans if it.is_broker)

    @property
    def controllers(self) -> tuple[int, ...]:
        return tuple(it.node_id for it in self._plans if it.is_controller)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The paths of each broker's log directories: `/data`, or `/d1`, `/d2` and so on."""
        return next(it.log_dirs for it in self._plans if it.is_broker)

    # --- what is seen

    def partition(self, topic: str, partition: int = 0) -> PartitionView:
        """Raises ClusterError when the newest committed metadata has no such partition."""
        views = self._looking()
        return self._do(lambda: views.partition(topic, partition))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads and knows it; None while there is none."""
        return self.partition(topic, partition).leader

    def isr(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The committed in-sync replicas."""
        return self.partition(topic, partition).isr

    def hw(self, topic: str, partition: int = 0) -> int | None:
        """The leader's high watermark: consumers read below it. None without a leader."""
        return self.partition(topic, partition).hw

    def controller(self) -> int | None:
        """The active controller; None while there is none."""
        return self._do(self._looking().controller)

    def live_brokers(self) -> tuple[int, ...]:
        """The brokers that are not fenced."""
        return self._do(self._looking().live_brokers)

    def topics(self) -> Mapping[str, tuple[int, ...]]:
        """The partitions of every topic; `__consumer_offsets` is there from the start."""
        return self._do(self._looking().topics)

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates a transactional id and has read its state; None while there is none."""
        views = self._looking()
        return self._do(lambda: views.transaction_coordinator(transactional_id))

    def transaction(self, transactional_id: str) -> TransactionView:
        """Raises ClusterError when no coordinator knows the id (yet)."""
        views = self._looking()
        return self._do(lambda: views.transaction(transactional_id))

    def metadata_records(self, count: int = 20) -> tuple[str, ...]:
        """The latest records of the metadata log, a line each, as the active controllers appended them."""
        nodes = self._running()
        return self._do(lambda: tuple(nodes.records)[-count:])

    def troubles(self) -> tuple[str, ...]:
        """Every node that does not run, and every cut or delay, and markers that are held; empty when all is well."""
        nodes = self._running()
        return self._do(lambda: tuple(nodes.trouble_list()))

    def record(self) -> None:
        """Record what every node says and does, from now on, in memory and up to 16 MiB; what was recorded before is forgotten.

        `recording` has it. Looking at all nodes 20 times a second costs about a hundredth of a core.
        """
        nodes = self._running()
        self._do(nodes.record)

    def recording(self) -> bytes:
        """The recording so far: the content of a file for `kraftlite ui FILE`. Raises ClusterError before `record`."""
        nodes = self._running()

        def made() -> bytes:
            if nodes.recorder is None:
                raise ClusterError("nothing is recorded: call record() before")
            return nodes.recorder.made()

        return self._do(made)

    # --- faults that act at once

    def kill(self, *node_ids: int) -> None:
        """Kill nodes as SIGKILL does: they run no further instruction, their connections end, and what they wrote stays in the
        page cache.

        This and the others take effect at one moment for all the nodes. They raise ValueError for a node that there is not and
        ClusterError for one that is not running; then nothing was done.
        """
        self._act(node_ids, lambda nodes: nodes.kill(node_ids))
        self._turn()

    def power_cut(self, *node_ids: int) -> None:
        """Kill nodes, and lose everything that was not synced to their disks."""
        self._act(node_ids, lambda nodes: nodes.power_cut(node_ids))
        self._turn()

    def pause(self, *node_ids: int) -> None:
        """Pause nodes as SIGSTOP does: nothing of them runs, their time goes on, and the kernel still takes connections for
        them."""
        self._act(node_ids, lambda nodes: nodes.pause(node_ids))

    def resume(self, *node_ids: int) -> None:
        """They go on where they stood, and find out what they have missed."""
        self._act(node_ids, lambda nodes: nodes.resume(node_ids))

    def _inject(self, requests: Sequence[Request], for_s: float | None) -> Injected:
        nodes, for_ms = self._running(), milliseconds(for_s)
        ids = self._do(lambda: nodes.faults.begin(requests, for_ms))
        self._turn()
        return Injected(lambda: self._end_faults(ids))

    def _end_delays(self, pairs: Sequence[tuple[int, int]]) -> None:
        nodes = self._running()
        self._do(lambda: nodes.faults.end_delays(pairs))

    def _fallible(self) -> tuple[int, ...]:
        nodes = self._running()
        return self._do(lambda: tuple(it for it in self.brokers if nodes.hosts[it].running))

    def _end_faults(self, ids: Sequence[int]) -> None:
        nodes = self._nodes
        if nodes is not None:
            self._do(lambda: nodes.faults.end(ids))
            self._turn()

    def hold_markers(self) -> None:
        """Let no coordinator send markers of transactions, also one that takes over or starts, until `release_markers` or `heal`:
        what is decided stays PrepareCommit or PrepareAbort. Markers that are on their way arrive."""
        nodes = self._running()
        self._do(lambda: nodes.hold_markers(True))

    def release_markers(self) -> None:
        """Send those that are held, and go on as before."""
        nodes = self._running()
        self._do(lambda: nodes.hold_markers(False))
        self._turn()

    def fail_directory(self, broker: int, path: str) -> None:
        """Let every operation on one of the `log_dirs` of a broker fail with an I/O error, from now on.

        The broker notices when it next uses the directory, and serves nothing from it until it is started with it mended.

        Raises ValueError for a directory that there is not, ClusterError for one that fails already.
        """
        nodes = self._with_directory(broker, path)
        self._do(lambda: nodes.fail_directory(broker, path))

    def mend_directory(self, broker: int, path: str) -> None:
        """Let the directory work again; what was in it is still there. The broker takes it when it is started the next time."""
        nodes = self._with_directory(broker, path)
        self._do(lambda: nodes.mend_directory(broker, path))

    def directory(self, broker: int, topic: str, partition: int = 0) -> str | None:
        """Return the log directory of a running broker in which a replica is; None: it has none that it can use."""
        views = self._looking()
        self._check(broker)
        return self._do(lambda: views.directory(broker, topic, partition))

    def without_a_directory(self) -> tuple[int, ...]:
        """The brokers of which a directory has failed since they were started."""
        nodes = self._running()
        return self._do(lambda: tuple(node_id for node_id, paths in sorted(nodes.lost.items()) if paths))

    def heal(self) -> None:
        """No cut, no delay and no other fault any more, no markers that are held, no directory that fails. Nodes that are down or
        paused stay so."""
        self._do(self._running().heal)
        self._turn()

    # --- inside

    def _with_directory(self, broker: int, path: str) -> Nodes:
        if self._check(broker) not in self.brokers or path not in self.log_dirs:
            raise ValueError(f"node {broker} has no log directory {path!r}; brokers have {', '.join(self.log_dirs)}")
        return self._running()

    def _check(self, node_id: object) -> int:
        known = {it.node_id for it in self._plans}
        if isinstance(node_id, bool) or not isinstance(node_id, int) or node_id not in known:
            names = ", ".join(f"{it.node_id} ({' and '.join(it.roles)})" for it in self._plans)
            raise ValueError(f"there is no node {node_id!r}; the nodes are {names}")
        return node_id

    def _act(self, node_ids: Sequence[int], action: Callable[[Nodes], None]) -> None:
        self._check_all(node_ids)
        nodes = self._running()
        self._do(lambda: action(nodes))

    def _check_all(self, node_ids: Sequence[int]) -> None:
        if not node_ids:
            raise ValueError("no node was named")
        for node_id in node_ids:
            if node_ids.count(self._check(node_id)) > 1:
                raise ValueError(f"node {node_id} is named twice")

    def _turn(self) -> None:
        """Sockets that are aborted are closed in the loop's next turn."""
        self._do(lambda: None)

    def _running(self) -> Nodes:
        if self._nodes is None:
            raise ClusterError("the cluster is not running; use it inside of its with block")
        return self._nodes

    def _looking(self) -> Views:
        self._running()
        assert self._views is not None
        return self._views

    def _do(self, function: Callable[[], T]) -> T:
        assert self._thread is not None
        return self._thread.call(function)

    # --- what waits, as coroutines of the cluster's loop

    def _begin(self) -> concurrent.futures.Future[None]:
        if self._thread is not None:
            raise ClusterError("the cluster runs already")
        self._thread = LoopThread()
        return self._thread.submit(self._open(self._thread))

    async def _open(self, thread: LoopThread) -> None:
        from kraftlite.testing.nodes import Nodes
        from kraftlite.testing.views import Views

        nodes = Nodes(thread.loop, self._begins_as, self._config, self._secrets)
        self._nodes, self._views = nodes, Views(nodes)
        if self._record:
            nodes.record()
        for it in self._plans:
            nodes.boot(it.node_id)
        await nodes.ready([it.node_id for it in self._plans], READY_LIMIT_S)
        await self._views.settled(READY_LIMIT_S)
        await self._views.create_offsets_topic(READY_LIMIT_S)

    def _end(self) -> concurrent.futures.Future[None] | None:
        """None when nothing runs."""
        nodes, thread = self._nodes, self._thread
        return None if nodes is None or thread is None else thread.submit(nodes.close())

    def _ended(self) -> list[str]:
        """The thread is gone afterwards. Returns what went wrong in it while it ran."""
        nodes, thread = self._nodes, self._thread
        self._nodes = self._views = self._thread = None
        if thread is not None:
            thread.close()
        if nodes is None:
            return []
        return [f"node {node_id} ended itself: {why}" for node_id, why in nodes.failures.items()] + nodes.bugs

    def _submit(self, work: Callable[[], Coroutine[object, None, T]]) -> concurrent.futures.Future[T]:
        self._running()
        assert self._thread is not None
        return self._thread.submit(work())

    def _restart(self, node_ids: Sequence[int]) -> concurrent.futures.Future[None]:
        self._check_all(node_ids)
        return self._submit(lambda: self._running().restart(node_ids, READY_LIMIT_S))

    def _stop(self, node_ids: Sequence[int]) -> concurrent.futures.Future[None]:
        self._check_all(node_ids)
        return self._submit(lambda: self._running().stop(node_ids))

    def _grow(self, role: str, rack: str | None = None) -> concurrent.futures.Future[int]:
        from kraftlite.testing.growth import add_node

        return self._submit(lambda: add_node(self._running(), self._looking(), role, rack, READY_LIMIT_S))

    def _shrink(self, node_id: int, role: str, fewer_replicas: bool = False) -> concurrent.futures.Future[None]:
        from kraftlite.testing.growth import remove_node

        self._check(node_id)
        return self._submit(lambda: remove_node(self._running(), self._looking(), node_id, role, fewer_replicas, READY_LIMIT_S))

    def _create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, object] | None,
        assignment: Sequence[Sequence[int]] | None,
        timeout: float,
    ) -> concurrent.futures.Future[None]:
        if assignment is not None and replication_factor is not None:
            raise ValueError("assignment says how many replicas there are; leave replication_factor out")
        factor = min(3, len(self.brokers)) if replication_factor is None else replication_factor
        texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()}
        return self._submit(
            lambda: self._looking().create_topic(name, partitions, factor, texts, assignment, timeout),
        )

    def _wait_for_transaction(self, wanted: WantedTransaction, timeout: float) -> concurrent.futures.Future[TransactionView]:
        for node_id in wanted.node_ids:
            self._check(node_id)
        return self._submit(lambda: self._looking().wait_for_transaction(wanted, timeout))

    def _wait_for(self, wanted: Wanted, timeout: float) -> concurrent.futures.Future[PartitionView | None]:
        for node_id in wanted.node_ids:
            self._check(node_id)
        return self._submit(lambda: self._looking().wait_for(wanted, timeout))
