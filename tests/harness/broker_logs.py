"""Log directories on a disk in memory."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kraftlite.broker.config import BrokerConfig, LogDirSpec
from kraftlite.broker.log_dirs import LogDirs
from kraftlite.log.config import LogConfig
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import ListenerInfo
from kraftlite.model.topic_partition import TopicPartition
from tests.harness.broker_ports import TestBed
from tests.harness.disk import MemDisk
from tests.harness.log_support import append

ORDERS = UUID(int=5000)
PAYMENTS = UUID(int=6000)
REPLICATION = ListenerInfo(name="REPLICATION", host="localhost", port=9192, security_protocol="GRPC")


def broker_config(*dirs: str, values: dict[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig.from_values(
        values or {},
        node_id=NodeId(1),
        cluster_id="cluster",
        listeners=(REPLICATION,),
        inter_broker_listener_name="REPLICATION",
        log_dirs=tuple(LogDirSpec(path=path, directory_id=UUID(int=1000 + index)) for index, path in enumerate(dirs)),
    )


class Logs:
    """`LogDirs` and the ports under them; `restart` is a new process on the same disk."""

    def __init__(self, *dirs: str, disk: MemDisk | None = None, values: dict[str, str] | None = None, seed: int = 1) -> None:
        self.paths = dirs or ("/d1",)
        self.values = values
        self.bed = TestBed(disk=disk, seed=seed)
        for path in self.paths:
            self.bed.disk.makedirs(path)
        self.failed: list[tuple[UUID, Sequence[TopicPartition]]] = []
        self.log_configs: dict[str, LogConfig] = {}
        self.dirs = LogDirs(
            self.bed.ports,
            broker_config(*self.paths, values=values),
            config_for=lambda topic: self.log_configs.get(topic, LogConfig()),
            on_dir_failed=lambda directory_id, partitions: self.failed.append((directory_id, partitions)),
        )

    def restart(self, *, crash: bool = False) -> Logs:
        if crash:
            self.bed.disk.crash()
        return Logs(*self.paths, disk=self.bed.disk, values=self.values, seed=self.bed.ports.entropy.getrandbits(16))

    async def load(self, *strays: TopicPartition) -> int:
        self.dirs.read_markers()
        return await self.dirs.load(lambda tp, topic_id: tp not in strays)

    async def load_assigned(
        self, *tps: TopicPartition, sole: bool, topic_id: UUID = ORDERS, leader_epoch: int | None = None
    ) -> int:
        """With the metadata that gives the broker these partitions. `sole`: nobody else is in their ISR."""
        self.dirs.read_markers()
        hosted = dict.fromkeys(tps, topic_id)
        return await self.dirs.load(lambda tp, found: hosted.get(tp) == found, lambda tp: leader_epoch, lambda tp: sole, hosted)

    def create(self, tp: TopicPartition, *values: str, topic_id: UUID = ORDERS) -> None:
        log = self.dirs.get_or_create(tp, topic_id)
        if values:
            append(log, *values)
