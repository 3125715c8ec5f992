"""Invariant 49: indexes point where they say, and every log goes by the configuration of its own topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from kraftlite.log.batch import BatchHeader, iter_headers
from kraftlite.log.log import Log
from kraftlite.log.segment import Segment
from kraftlite.metadata.records import ConfigRecord, MetadataRecord
from kraftlite.model.limits import MAX_INT64
from kraftlite.runtime.trace import TraceEvent
from kraftlite.runtime.trace.log import LogCleaned, LogRolled
from kraftlite.sim.checkers.base import World
from kraftlite.sim.checkers.facts import MetadataChecker
from kraftlite.sim.checkers.i51_configs_in_force import LAYERS, as_text, equal_numbers, in_force
from kraftlite.sim.checkers.log_files import OFFSET_ENTRY, TIME_ENTRY, files_of, running_log
from kraftlite.sim.checkers.model import TOPIC, MetadataState
from kraftlite.sim.checkers.views import Entry
from kraftlite.simhost.host import SimHost


class LogsKeptUp(MetadataChecker):
    """In the files of closed segments each entry of an offset index names the position of a batch that ends at its offset, and
    each entry of a time index the largest time so far and the end of the batch that has it, both in growing order (LG-05). A
    segment that closes has one batch, or no more bytes than its topic has ever allowed (LG-04). At the end each log of the
    workload has the configuration that the committed metadata gives its topic (CM-52)."""

    numbers: ClassVar[tuple[int, ...]] = (49,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._most_bytes: dict[str, int] = {}
        """The largest segment.bytes that each topic has had of its own; what no log reaches, when it has had none for a while."""

    def on_record(self, entry: Entry, offset: int, record: MetadataRecord, before: MetadataState, after: MetadataState) -> None:
        if isinstance(record, ConfigRecord) and record.resource_type == TOPIC and record.name == "segment.bytes":
            most = MAX_INT64 if record.value is None else int(record.value)
            self._most_bytes[record.resource_name] = max(most, self._most_bytes.get(record.resource_name, 0))

    def on_event(self, now_us: int, node: SimHost, event: TraceEvent) -> None:
        if type(event) is LogRolled:
            most = self._most_bytes.get(event.tp.topic)
            rolled = running_log(node, event.tp) if event.tp.topic in self.world.history.logs.topics else None
            if rolled is not None and most is not None and len(rolled.segments) > 1:
                with node.disk.undisturbed():
                    self._check_rolled(node, rolled.segments[-2], most)
        elif type(event) is LogCleaned:
            log = running_log(node, event.tp)
            if log is not None:
                self._check_indexes(node, log)

    def _check_rolled(self, node: SimHost, closed: Segment, most: int) -> None:
        if closed.size > most and sum(1 for _ in closed.headers()) > 1:
            self.fail(f"node {node.node_id} closes {closed.path} with {closed.size} bytes; segment.bytes was {most} at most")

    def unsettled(self) -> str | None:
        for node, log in self._logs():
            wrong = self._wrong_config(node, log)
            if wrong is not None:
                return wrong
        return None

    def at_end(self) -> None:
        for node, log in self._logs():
            self._check_indexes(node, log)

    def _logs(self) -> Iterator[tuple[SimHost, Log]]:
        for node in self.world.cluster.brokers:
            broker = None if node.node is None else node.node.broker
            for log in () if broker is None else broker.log_dirs.logs():
                if log.tp.topic in self.world.history.logs.topics:
                    yield node, log

    def _wrong_config(self, node: SimHost, log: Log) -> str | None:
        state, static = self.facts.history.latest, node.config.values
        for key in LAYERS:
            wanted = in_force(state, static, node.node_id, log.tp.topic, key)
            text = as_text(getattr(log.config, key.replace(".", "_")))
            if text != wanted and not equal_numbers(text, wanted):
                return f"{log.tp} on node {node.node_id} goes by {key}={text}; the metadata log says {wanted}"
        return None

    def _check_indexes(self, node: SimHost, log: Log) -> None:
        directory, logs = log.directory, files_of(node, log.directory)[:-1]
        offsets, times = dict(files_of(node, directory, ".index")), dict(files_of(node, directory, ".timeindex"))
        for base, data in logs:
            batches = dict(iter_headers(data))
            where = f"{log.tp} on node {node.node_id}, segment {base}"
            self._check_offsets(where, base, offsets.get(base, b""), batches)
            self._check_times(where, base, times.get(base, b""), batches)

    def _check_offsets(self, where: str, base: int, index: bytes, batches: Mapping[int, BatchHeader]) -> None:
        last = -1
        for relative, position in OFFSET_ENTRY.iter_unpack(index[: len(index) // 8 * 8]):
            batch = batches.get(position)
            if batch is None or batch.last_offset != base + relative or position <= last:
                self.fail(f"{where}: the index has offset {base + relative} at byte {position}, where there is {batch}")
            last = position

    def _check_times(self, where: str, base: int, index: bytes, batches: Mapping[int, BatchHeader]) -> None:
        largest: dict[int, int] = {}
        latest, at = -1, -1
        for header in batches.values():
            if header.max_timestamp > latest:
                latest, at = header.max_timestamp, header.last_offset
                largest[latest] = at
        entry = None
        for timestamp, relative in TIME_ENTRY.iter_unpack(index[: len(index) // 12 * 12]):
            entry = (timestamp, base + relative)
            if largest.get(timestamp) != base + relative:
                self.fail(f"{where}: the time index has {entry}; offsets of the largest times are {largest}")
        if entry is not None and latest >= 0 and entry != (latest, at):
            self.fail(f"{where}: the time index ends with {entry}; the largest time is {latest}, at offset {at}")
