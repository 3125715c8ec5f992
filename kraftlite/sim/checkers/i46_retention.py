"""Invariant 46: segments go by retention as it is configured, or below the log start; and those that must go do."""

from __future__ import annotations

from typing import ClassVar

from kraftlite.log.retention import BELOW_START, TOO_LARGE, TOO_OLD
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import RetentionFailed, SegmentDeleted
from kraftlite.sim.checkers.base import Checker
from kraftlite.sim.checkers.log_files import batches_in, files_of, running_log, wall_ms
from kraftlite.simhost.host import SimHost


class RetentionAllowed(Checker):
    """A segment that goes lies below the log start; or it lies below the HW, the topic's policy deletes, and what is left has at
    least retention.bytes, or nothing in it is younger than retention.ms (LG-36, LG-37, LG-39). Sizes and times are taken from the
    files. The active segment stays. When the faults are over, no segment stays that retention lets go of, nor what is in the
    active one when all of it is too old (LG-37, LG-48)."""

    numbers: ClassVar[tuple[int, ...]] = (46,)

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        kind = type(event)
        if kind is SegmentDeleted:
            assert isinstance(event, SegmentDeleted)
            self._judge(node, event)
        elif kind is RetentionFailed:
            assert isinstance(event, RetentionFailed)
            if (node.node_id, event.tp) not in self.world.losses.damaged:
                self.fail(f"{event.tp} on node {node.node_id}: retention failed: {event.reason}")

    def _judge(self, node: SimHost, event: SegmentDeleted) -> None:
        log = running_log(node, event.tp)
        if log is None:
            return  # the metadata log has its own rules
        config, base = log.config, event.base_offset
        left = files_of(node, log.directory)
        what = f"{event.tp} on node {node.node_id} deletes segment {base} ({event.reason})"
        end = min((it for it, _ in left if it > base), default=None)
        if end is None:
            self.fail(f"{what}, which is the last one: left are {[it for it, _ in left]}")
            return
        if event.reason == BELOW_START:
            if end > log.log_start_offset:
                self.fail(f"{what}, which reaches up to {end}; the log starts at {log.log_start_offset}")
            return
        if "delete" not in config.cleanup_policy:
            self.fail(f"{what}, cleanup.policy is {','.join(config.cleanup_policy)}")
        if end > log.hw:
            self.fail(f"{what}, which reaches up to {end}; the HW is {log.hw}")
        if event.reason == TOO_LARGE:
            size = sum(len(data) for _, data in left)
            if config.retention_bytes < 0 or size < config.retention_bytes:
                self.fail(f"{what}: {size} bytes are left, retention.bytes is {config.retention_bytes}")
        elif event.reason == TOO_OLD:
            gone = dict(files_of(node, log.directory, ".log.deleted")).get(base, b"")
            newest = max((it.header.max_timestamp for it in batches_in(gone)), default=-1)
            age_ms = wall_ms(node) - newest
            if config.retention_ms < 0 or age_ms <= config.retention_ms:
                self.fail(f"{what}, whose newest record is {age_ms} ms old; retention.ms is {config.retention_ms}")
        else:
            self.fail(f"{what}: nobody knows such a reason")

    def unsettled(self) -> str | None:
        for topic in self.world.history.logs.topics:
            for node in self.world.cluster.brokers:
                broker = None if node.node is None else node.node.broker
                for log in () if broker is None else broker.log_dirs.logs():
                    if log.tp.topic == topic and (left := self._overdue(node, log.tp)) is not None:
                        return left
        return None

    def _overdue(self, node: SimHost, tp: TopicPartition) -> str | None:
        log = running_log(node, tp)
        if log is None:
            return None
        files, config = files_of(node, log.directory), log.config
        alone = len(files) == 1
        if not files or (alone and not files[0][1]) or (log.leo if alone else files[1][0]) > log.hw:
            return None
        where = f"{tp} on node {node.node_id} still has segment {files[0][0]}"
        if not alone and files[1][0] <= log.log_start_offset:
            return f"{where}; the log starts at {log.log_start_offset}"
        if "delete" not in config.cleanup_policy:
            return None
        if 0 <= config.retention_bytes <= sum(len(data) for _, data in files[1:]):
            return f"{where}; without it there would be at least retention.bytes={config.retention_bytes}"
        newest = max((it.header.max_timestamp for it in batches_in(files[0][1])), default=-1)
        if newest >= 0 and 0 <= config.retention_ms < wall_ms(node) - newest:
            return f"{where}; its newest record is older than retention.ms={config.retention_ms}"
        return None
