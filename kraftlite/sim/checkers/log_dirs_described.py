"""DescribeLogDirs tells each directory of a broker once, with the replicas in it and the bytes that they have there (CP-14)."""

from __future__ import annotations

from collections.abc import Mapping

from kraftlite.broker.handlers.log_dirs import LogDirDescription
from kraftlite.broker.log_dirs_state import parse_directory_name
from kraftlite.model.errors import ErrorCode
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.sim.checkers.base import Checker, World
from kraftlite.sim.services.admin import DESCRIBE, DescribeAnswer
from kraftlite.simhost.host import SimHost
from kraftlite.simhost.network import AnyExchange

Place = tuple[str, TopicPartition]
_SEGMENT = ".log"


class LogDirsDescribed(Checker):
    """The names and sizes of the files on the broker's disk are compared, where they were the same when it was asked and when it
    had answered. A replica that is served from the question to the answer is told. Of a directory that has failed nothing is
    told but that."""

    only_methods = (DESCRIBE,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._before: dict[AnyExchange, tuple[Mapping[Place, int], frozenset[Place]]] = {}
        self.judged = {"directories": 0, "replicas": 0}

    def on_arrival(self, exchange: AnyExchange) -> None:
        if exchange.method is DESCRIBE and exchange.request.kind == "log dirs":
            node = self.world.nodes[exchange.target]
            self._before.setdefault(exchange, (self._sizes(node), self._served(node)))

    def on_served(self, exchange: AnyExchange, response: object) -> None:
        before = self._before.pop(exchange, None)
        if before is not None:
            assert isinstance(response, DescribeAnswer)
            node = self.world.nodes[exchange.target]
            self._judge(node, response.found, before, (self._sizes(node), self._served(node)))

    @staticmethod
    def _sizes(node: SimHost) -> dict[Place, int]:
        """The bytes in the segments of each log on the disk."""
        found: dict[Place, int] = {}
        with node.disk.undisturbed():
            for path in node.config.log_dirs:
                for name in node.disk.listdir(path) if node.disk.stat(path) is not None else ():
                    tp = parse_directory_name(name)
                    if tp is not None:
                        files = (f"{path}/{name}/{it}" for it in node.disk.listdir(f"{path}/{name}") if it.endswith(_SEGMENT))
                        found[path, tp] = sum(stat.size for it in files if (stat := node.disk.stat(it)) is not None)
        return found

    @staticmethod
    def _served(node: SimHost) -> frozenset[Place]:
        """The replicas that are served, with the directory of each."""
        broker = None if node.node is None else node.node.broker
        logs = () if broker is None else (it.log for it in broker.replicas.partitions())
        return frozenset((log.directory.rpartition("/")[0], log.tp) for log in logs if log is not None)

    def _judge(
        self,
        node: SimHost,
        found: list[LogDirDescription],
        before: tuple[Mapping[Place, int], frozenset[Place]],
        after: tuple[Mapping[Place, int], frozenset[Place]],
    ) -> None:
        where = f"node {node.node_id} describes its log directories"
        paths = [it.path for it in found]
        if sorted(paths) != sorted(node.config.log_dirs):
            self.fail(f"{where} as {paths}; they are {sorted(node.config.log_dirs)}")
        told: dict[Place, int] = {}
        for directory in found:
            self.judged["directories"] += 1
            if directory.error is not ErrorCode.NONE and directory.replicas:
                self.fail(f"{where} with {directory.path}, which has failed, and replicas in it")
            for replica in directory.replicas:
                if replica.is_copy:
                    continue
                place = directory.path, replica.tp
                if place in told:
                    self.fail(f"{where} with {replica.tp} twice in {directory.path}")
                told[place] = replica.size_bytes
                if replica.offset_lag:
                    self.fail(f"{where} with {replica.tp} {replica.offset_lag} offsets behind its own high watermark")
        failed = {it.path for it in found if it.error is not ErrorCode.NONE}
        for place in sorted(before[1] & after[1] - told.keys()):
            if place[0] not in failed:
                self.fail(f"{where} without {place[1]}, which is served from {place[0]}")
        for place, size in told.items():
            known = before[0].get(place, 0), after[0].get(place, 0)
            self.judged["replicas"] += 1
            if known[0] == known[1] != size:
                self.fail(f"{where} with {size} bytes of {place[1]} in {place[0]}, which has {known[0]} there")
