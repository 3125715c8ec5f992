"""Invariant 98: what is deleted stays on the disk under another name for `file.delete.delay.ms`, and then it goes (LG-38)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

from kraftlite.broker.log_dirs_state import DELETE_SUFFIX, parse_directory_name
from kraftlite.log.cleaned import SWAP_SUFFIX
from kraftlite.log.log import Log
from kraftlite.log.segment import DELETED_SUFFIX, LOG_SUFFIX
from kraftlite.model.ids import METADATA_TOPIC, NodeId
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import SegmentDeleted
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.i51_configs_in_force import LAYERS
from kraftlite.sim.checkers.log_files import running_log, wall_ms
from kraftlite.sim.checkers.replica_facts import ReplicaChecker
from kraftlite.simhost.host import SimHost

_KEY: Final = "file.delete.delay.ms"
_GRACE_US: Final = 1_000_000
"""The time behind the delay after which something is overdue, when there are no faults."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file or a directory that has a name of what is deleted. `least_ms` and `most_ms` bound the time for which it keeps it."""

    since_us: int
    since_wall_ms: int
    least_ms: int
    most_ms: int | None
    by_wall: bool = False
    """The wall clock of the node counts the time."""


class DeletedFilesWait(ReplicaChecker):
    """The disk itself is watched. A segment that retention, DeleteRecords or compaction takes out of a log is renamed `.deleted`,
    the directory of a log that is deleted, or has moved away, `-delete`. Neither is removed before the delay is over that was
    configured at that moment, by the clock of its node; a file may go with an earlier one of the same name. Where a compacted
    segment takes the place of others, none of them is removed without being renamed. A node that starts anew may remove what it
    finds at once: nobody reads it any more. When the faults are over nothing stays that is overdue.

    The metadata log has a delay of its own; the wall clock counts it for segments.
    """

    numbers: ClassVar[tuple[int, ...]] = (98,)
    only_events = (SegmentDeleted,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._waiting: dict[NodeId, dict[str, _Waiting]] = {}
        """By path, of the incarnation that runs."""
        self._replacing: dict[NodeId, str] = {}
        """The log directory in which a compacted segment is complete and has not taken its place."""
        self._wrong: list[str] = []
        self.judged = 0

    def on_boot(self, node: SimHost) -> None:
        waiting = self._waiting[node.node_id] = {}
        self._replacing.pop(node.node_id, None)
        node.disk.on_renamed = partial(self._renamed, node)
        node.disk.on_removed = partial(self._removed, node)
        now = (self._now_us(), wall_ms(node))
        for path in _marked(node):
            most_ms = 0 if path.endswith(DELETE_SUFFIX) else self._greatest_ms(node, path.rpartition("/")[0])
            waiting[path] = _Waiting(*now, 0, most_ms)

    def on_death(self, node: SimHost, how: str) -> None:
        """Stop watching: the next incarnation may remove what it finds before it is watched."""
        node.disk.on_renamed, node.disk.on_removed = (lambda source, target: None), (lambda path: None)

    def on_step(self, node: SimHost) -> None:
        if self._wrong:
            self.fail(self._wrong[0])

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if not isinstance(event, SegmentDeleted):
            return
        log = running_log(node, event.tp)
        if log is not None:
            path = f"{log.directory}/{event.base_offset:020}{LOG_SUFFIX}{DELETED_SUFFIX}"
            if path not in self._waiting[node.node_id]:
                self.fail(f"node {node.node_id} has deleted segment {event.base_offset} of {event.tp}: there is no {path}")

    # --- what a node does to its disk

    def _renamed(self, node: SimHost, source: str, target: str) -> None:
        waiting, below = self._waiting[node.node_id], f"{source}/"
        for path in [it for it in waiting if it.startswith(below)]:
            known = waiting.pop(path)
            if parse_directory_name(target.rpartition("/")[2]) is not None:  # else it goes or stays with the directory
                waiting[f"{target}/{path[len(below) :]}"] = known
        if target.endswith(DELETE_SUFFIX):
            waiting[target] = self._begin(node, source, is_snapshot=False)
        elif target.endswith(DELETED_SUFFIX):
            directory, _, name = source.rpartition("/")
            begun, before = self._begin(node, directory, is_snapshot=".checkpoint" in name), waiting.get(target)
            if before is not None:  # a removal of the other one may be under way, and knows it by its name
                left_ms = before.least_ms - (begun.since_us - before.since_us) // 1000
                begun = replace(begun, least_ms=max(0, min(begun.least_ms, left_ms)))
            waiting[target] = begun
        elif target.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            self._replacing[node.node_id] = target.rpartition("/")[0]
        elif source.endswith(LOG_SUFFIX + SWAP_SUFFIX):
            self._replacing.pop(node.node_id, None)

    def _removed(self, node: SimHost, path: str) -> None:
        known = self._waiting[node.node_id].pop(path, None)
        if known is not None:
            self.judged += known.least_ms > 0
            passed_ms = (self._now_us() - known.since_us) * (1_000_000 + node.fastest_ppm) // 1_000_000_000 + 1
            if known.by_wall:
                passed_ms = max(passed_ms, wall_ms(node) - known.since_wall_ms)
            if passed_ms < known.least_ms:
                self._wrong.append(f"node {node.node_id} removes {path} after {passed_ms} ms; {known.least_ms} are configured")
            return
        directory = path.rpartition("/")[0]
        if (
            path.endswith(LOG_SUFFIX)
            and self._replacing.get(node.node_id) == directory
            and self._log_in(node, directory) is not None
        ):
            self._wrong.append(f"node {node.node_id} removes {path} at once, in whose place a compacted segment comes")

    def _begin(self, node: SimHost, directory: str, *, is_snapshot: bool) -> _Waiting:
        """The delay that is configured for files of this log, or for the log itself, which is deleted now."""
        now = (self._now_us(), wall_ms(node))
        if directory.endswith(f"/{METADATA_TOPIC}-0"):
            delay_ms = node.tuning.metadata_file_delete_ms
            most_ms = delay_ms + node.tuning.metadata_cleaning_interval_ms if is_snapshot else None
            least_ms = delay_ms if node.started else 0  # a start removes what a crash has left at once
            return _Waiting(*now, least_ms, most_ms, by_wall=not is_snapshot)
        log = self._log_in(node, directory)
        if log is None:  # it is not open yet, a copy, or what a copy has replaced
            return _Waiting(*now, 0, self._greatest_ms(node, directory))
        return _Waiting(*now, log.config.file_delete_delay_ms, log.config.file_delete_delay_ms)

    def _log_in(self, node: SimHost, directory: str) -> Log | None:
        """The log that a replica of this node has there: also of one that is being deleted."""
        tp = parse_directory_name(directory.rpartition("/")[2])
        view = None if tp is None else self.facts.view(node.node_id, tp)
        for log in (None if view is None else view.log, None if tp is None else running_log(node, tp)):
            if log is not None and log.directory == directory:
                return log
        return None

    def _greatest_ms(self, node: SimHost, directory: str) -> int:
        """The longest delay that was ever configured there."""
        topic = directory.rpartition("/")[2].partition(".")[0].rpartition("-")[0]
        of_node = int(node.config.values.get(LAYERS[_KEY].of_brokers, 0))
        return max(int(LAYERS[_KEY].default), of_node, *self.facts.numbers_of.get((topic, _KEY), ()))

    # --- when the faults are over

    def at_end(self) -> None:
        if self._wrong:
            self.fail(self._wrong[0])

    def unsettled(self) -> str | None:
        now_us = self._now_us()
        for node in self.world.nodes.values():
            for path, known in self._waiting.get(node.node_id, {}).items():
                waited_us = (now_us - known.since_us) * (1_000_000 + node.slowest_ppm) // 1_000_000
                if known.most_ms is not None and waited_us > known.most_ms * 1000 + _GRACE_US and self._is_kept(node, path):
                    return f"node {node.node_id} still has {path} after {waited_us // 1000} ms; {known.most_ms} are configured"
        return None

    def _is_kept(self, node: SimHost, path: str) -> bool:
        """Return whether the node has the log of this file open, or the directory of what was a log."""
        directory = path.rpartition("/")[0]
        if directory.endswith(f"/{METADATA_TOPIC}-0"):
            return node.started
        broker = None if node.node is None else node.node.broker
        online = () if broker is None else broker.log_dirs.online_directories()
        if path.endswith(DELETE_SUFFIX):
            return directory in online
        return directory.rpartition("/")[0] in online and self._log_in(node, directory) is not None

    def _now_us(self) -> int:
        return self.world.cluster.loop.now_us()


def _marked(node: SimHost) -> Iterator[str]:
    """Everything in the log directories of a node that has a name of what is deleted."""
    with node.disk.undisturbed():
        for path in node.config.all_log_dirs:
            for name in node.disk.listdir(path) if node.disk.stat(path) is not None else ():
                stat = node.disk.stat(f"{path}/{name}")
                if name.endswith(DELETE_SUFFIX):
                    yield f"{path}/{name}"
                elif stat is not None and stat.is_dir and parse_directory_name(name) is not None:
                    yield from (
                        f"{path}/{name}/{it}" for it in node.disk.listdir(f"{path}/{name}") if it.endswith(DELETED_SUFFIX)
                    )
