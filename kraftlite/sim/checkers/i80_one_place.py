"""Invariants 80 to 82: a replica is in one directory, metadata knows in which, and only directories that fail cost replicas."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.broker.log_dirs_state import parse_directory_name
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.broker import DirectoriesReportFailed, LogDirFailed, ReplicaMoved
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.simhost.host import SimHost

_DIRECTORIES = 17
"""The level of `metadata.version` from which on there are directories in the metadata."""


class OnePlace(MetadataChecker):
    """Looked at in the names on the broker's disk, at each end of a move and at the end of the run (80); a copy is on the disk
    when it takes its replica's place, for the old directory is given up for it (JB-10); at the end metadata names the
    directories of every broker and replica, and until then a broker keeps what it could not report (81, JB-05, ML-25). A
    replica whose directory is online is not offline (82, BL-16)."""

    numbers: ClassVar[tuple[int, ...]] = (80, 81, 82)
    only_events: ClassVar[tuple[type[TraceEvent], ...] | None] = (ReplicaMoved, LogDirFailed, DirectoriesReportFailed)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is ReplicaMoved:
            self._check_moved(node, event)
        elif type(event) is LogDirFailed:
            self._check_spared(node, event)
        elif type(event) is DirectoriesReportFailed:
            self._check_kept(node, event)

    def _check_moved(self, node: SimHost, event: ReplicaMoved) -> None:
        directories = self._places(node).get(event.tp, [])
        if event.target not in directories:
            self.fail(f"{event.tp} on node {node.node_id} has moved to {event.target}; it is in {directories}")
        broker = None if node.node is None else node.node.broker
        partition = None if broker is None else broker.replicas.partition(event.tp)
        log = None if partition is None else partition.log
        if log is not None and log.recovery_point < log.leo:
            where = f"{event.tp} on node {node.node_id} has moved to {event.target}"
            self.fail(f"{where}, where it is flushed up to {log.recovery_point}, and ends at {log.leo}")

    def _check_spared(self, node: SimHost, event: LogDirFailed) -> None:
        broker = None if node.node is None else node.node.broker
        if broker is None:
            return
        for log in broker.log_dirs.logs():
            if log.directory.rpartition("/")[0] == event.log_dir:
                self.fail(f"{log.tp} on node {node.node_id} is served from {event.log_dir}, which has failed")

    def _check_kept(self, node: SimHost, event: DirectoriesReportFailed) -> None:
        """Nothing else brings it up again while the partition changes in nothing, and a move waits for metadata to say it."""
        broker = None if node.node is None else node.node.broker
        queued = event.replicas if broker is None else broker.assignments.queued()
        if queued < event.replicas:
            self.fail(f"node {node.node_id} could not report the directories of {event.replicas} replicas, and keeps {queued}")

    def unsettled(self) -> str | None:
        for node in self.world.cluster.brokers:
            broker = None if node.node is None or not node.started else node.node.broker
            if broker is None:
                continue
            if list(broker.log_dirs.moves.copies()):
                return f"node {node.node_id} still moves replicas"
            for partition in broker.replicas.partitions():
                home = broker.log_dirs.directory_of(partition.tp)
                if partition.log is None and home in broker.log_dirs.online_directories():
                    return f"{partition.tp} on node {node.node_id} is offline, and {home} is not"
            unknown = self._unknown(node)
            if unknown is not None:
                return unknown
        return None

    def _unknown(self, node: SimHost) -> str | None:
        assert node.node is not None and node.node.broker is not None
        broker, image = node.node.broker, node.node.broker.cache.image
        own, level = image.cluster.brokers.get(node.node_id), image.features.metadata_version
        if own is not None and level is not None and level >= _DIRECTORIES and not own.log_dirs:
            return f"broker {node.node_id} is registered without directories at level {level} of metadata.version"
        ids = {spec.path: spec.directory_id for spec in broker._config.log_dirs}
        for log in broker.log_dirs.logs():
            registration = image.topics.registration(log.tp)
            if registration is None or node.node_id not in registration.replicas:
                continue
            known, there = registration.directory_of(node.node_id), ids[log.directory.rpartition("/")[0]]
            if registration.directories and known != there:
                return f"{log.tp} on node {node.node_id} is in {log.directory}, which is {there}; metadata says {known}"
        return None

    def at_end(self) -> None:
        for node in self.world.cluster.brokers:
            for tp, directories in sorted(self._places(node).items()):
                if len(directories) > 1:
                    self.fail(f"{tp} on node {node.node_id} is in several directories: {directories}")

    @staticmethod
    def _places(node: SimHost) -> dict[TopicPartition, list[str]]:
        """The directories that have one of the partition's plain name."""
        found: dict[TopicPartition, list[str]] = {}
        for path in node.config.log_dirs:
            with node.disk.undisturbed():
                names = node.disk.listdir(path) if node.disk.stat(path) is not None else []
            for name in names:
                tp = parse_directory_name(name)
                if tp is not None:
                    found.setdefault(tp, []).append(path)
        return found
