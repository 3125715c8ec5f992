"""A cluster of production nodes on virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kraftlite.config.server import ServerConfig, load
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.ids import NodeId
from kraftlite.node.meta_properties import read_meta_properties
from kraftlite.node.storage import format_directories
from kraftlite.runtime.trace import TraceEvent
from kraftlite.sim.fault_plan import FaultPlan
from kraftlite.sim.loop import VirtualLoop
from kraftlite.sim.quorum import SimQuorum, controllers_of
from kraftlite.sim.service import client_handlers
from kraftlite.sim.shape import Shape
from kraftlite.sim.themes import PLAIN
from kraftlite.sim.workloads.rack_settings import of_broker
from kraftlite.sim.workloads.security_settings import added_users
from kraftlite.sim.workloads.settings import settings_of
from kraftlite.simhost.disk import MemDisk
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import Link, SimNetwork
from kraftlite.simhost.process import OUTSIDE, context_of

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
EPOCH_WALL_MS: Final = 1_700_000_000_000
CLIENT: Final = NodeId(0)
"""The node id of everything that runs outside: workloads are clients on a machine of their own."""

SIM_DEFAULTS: Final[Mapping[str, str]] = {
    "log.message.timestamp.after.max.ms": str((1 << 63) - 1),  # clocks jump by hours, and clients have one of their own
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class SimCluster:
    """Nodes 1 … n of a shape, formatted and not yet booted. `events` sees (virtual microseconds, node, event) in order."""

    def __init__(self, loop: VirtualLoop, shape: Shape, seed: int, theme: str = PLAIN) -> None:
        self.loop = loop
        self.shape = shape
        self.seed = seed
        self.theme = theme
        self.outside = context_of(OUTSIDE)
        self.network = SimNetwork(loop, random.Random(f"network/{seed}"), self.outside, wire=shape.wire)
        self.network.default = Link(shape.min_delay_us, shape.max_delay_us)
        self._clock_rng = random.Random(f"clocks/{seed}")
        self.disk_rng = random.Random(f"disk/{seed}")
        self.flush_us: dict[NodeId, tuple[int, int]] = {}
        self.on_event: list[Callable[[int, SimHost, TraceEvent], None]] = []
        self.on_failure: list[Callable[[SimHost, BaseException, str], None]] = []
        self.wall_offset_ms: dict[NodeId, int] = {}
        self.replicas_stay = False
        """Nobody takes a replica away any more: the ISR of a partition that is always moved again is never whole."""
        self.inflict: Callable[[FaultPlan], None] = lambda plan: None
        """Carries a fault out at once, for an administrator who has his hands on the machines."""
        self.retire_broker: Callable[[NodeId], None] = lambda node_id: None
        """The ear of the administrator who takes brokers out."""
        self.raise_level: Callable[[int], None] = lambda levels: None
        """The ear of the administrator who moves feature levels."""
        self.nodes: dict[NodeId, SimHost] = {}
        roles = shape.roles
        self._drawn = settings_of(theme, seed, sum("broker" in it for it in roles))
        self.quorum = SimQuorum(shape.forming, controllers_of(roles), seed)
        for number, role in enumerate(roles, 1):
            self._add(number, role)

    def _config(self, number: int, roles: str) -> ServerConfig:
        listeners = []
        if "broker" in roles:
            listeners += [f"PLAINTEXT://n{number}:9092", f"REPLICATION://n{number}:9192"]
        if "controller" in roles:
            listeners.append(f"CONTROLLER://n{number}:{self.quorum.port(number)}")
        values = {
            "process.roles": roles,
            "node.id": str(number),
            **self.quorum.settings(number),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": "/data",
            **({"inter.broker.listener.name": "REPLICATION"} if "broker" in roles else {}),
            **SIM_DEFAULTS,
            **self._drawn,
            **(of_broker(self.theme, self.seed, number) if "broker" in roles else {}),
            **self.shape.config,
        }
        return load(None, {}, values, hostname=lambda: f"n{number}")

    def _add(self, number: int, roles: str) -> None:
        node_id = NodeId(number)
        node = SimHost(
            loop=self.loop,
            network=self.network,
            config=self._config(number, roles),
            wall_ms=lambda: self.wall_ms(node_id),
            clients=client_handlers,
            on_event=self._event,
            on_failure=self._failed,
            tuning=self.shape.tuning,
            trace_hot=True,
            seed=self.seed,
            rate_ppm=self._clock_rng.randint(-self.shape.drift_ppm, self.shape.drift_ppm),
        )
        node.disk = MemDisk(wall_ms=lambda: self.wall_ms(node_id))
        node.disk.flush_wait = lambda: self._flush(node_id)
        node.blocking_wait = lambda: self._work(node_id)
        self.nodes[node_id] = node
        self.format(node_id)

    def format(self, node_id: NodeId, *, ignore_formatted: bool = False) -> None:
        node, now_ms = self.nodes[node_id], self.wall_ms(node_id)
        format_directories(
            node.disk,
            node.config,
            CLUSTER_ID,
            release_version=self.shape.release,
            features=self.shape.features,
            wall_ms=now_ms,
            entropy=self.disk_rng,
            ignore_formatted=ignore_formatted,
            forming=self.quorum.formation(node.config),
            add_scram=added_users(self.theme),
        )

    def configure(self, node_id: NodeId) -> None:
        """The node reads its configuration anew at its next start."""
        self.nodes[node_id].config = self._config(node_id, self.shape.roles[node_id - 1])

    def directory_id(self, node_id: NodeId) -> UUID:
        """The id of the directory with the metadata log that a node has now."""
        node = self.nodes[node_id]
        with node.disk.undisturbed():
            found = read_meta_properties(node.disk, node.config.metadata_log_dir)
        assert found is not None, f"node {node_id} is not formatted"
        return found.directory_id

    # --- time

    def wall_ms(self, node_id: NodeId = CLIENT) -> int:
        return EPOCH_WALL_MS + self.loop.now_us() // 1000 + self.wall_offset_ms.get(node_id, 0)

    async def _work(self, node_id: NodeId) -> None:
        """Opening, closing or deleting a log, on a thread."""
        work_us = self.disk_rng.choice((100, 1_000, 30_000))
        if node_id in self.flush_us:
            work_us += self.disk_rng.randint(*self.flush_us[node_id])
        await asyncio.sleep(work_us / 1_000_000)

    async def _flush(self, node_id: NodeId) -> None:
        low, high = self.flush_us.get(node_id, (100, 2000))
        await asyncio.sleep(self.disk_rng.randint(low, high) / 1_000_000)

    # --- events

    def _event(self, node: SimHost, event: TraceEvent) -> None:
        now = self.loop.now_us()
        for see in self.on_event:
            see(now, node, event)

    def _failed(self, node: SimHost, error: BaseException, where: str) -> None:
        for tell in self.on_failure:
            tell(node, error, where)

    # --- views

    @property
    def brokers(self) -> list[SimHost]:
        return [node for node in self.nodes.values() if node.config.is_broker]

    @property
    def controllers(self) -> list[SimHost]:
        return [node for node in self.nodes.values() if node.config.is_controller]

    def newest_image(self) -> MetadataImage | None:
        """The newest metadata of a broker that has started; None: there is none."""
        here = [it.node.broker for it in self.brokers if it.started and it.node is not None and it.node.broker is not None]
        return max((it.cache.image for it in here), key=lambda it: it.offset, default=None)

    def boot(self) -> None:
        for node in self.nodes.values():
            node.boot()

    async def until(self, condition: Callable[[], Any], what: str, limit_ms: int, every_ms: int = 20) -> Any:
        """Run until `condition` is true, and return what it returned. Raises TimeoutError naming `what`."""
        end = self.loop.now_us() + limit_ms * 1000
        while not (found := condition()):
            if self.loop.now_us() >= end:
                raise TimeoutError(f"not within {limit_ms} ms: {what}")
            await asyncio.sleep(every_ms / 1000)
        return found
