"""In which log directory a new log goes, and where it must not go. Source: KIP-858; KAFKA-16157, KAFKA-16234; JB-04, JB-07."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from kraftlite.broker.log_dirs_state import LogDirState
from kraftlite.log.config import LogConfig
from kraftlite.log.context import SeededLater
from kraftlite.log.log import Log, OpenLog
from kraftlite.model.errors import StorageFault
from kraftlite.model.ids import is_reserved_uuid, uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports

MAX_PINNED: Final = 10_000
"""Wishes for replicas that are not here yet; the oldest are forgotten."""


class Placement:
    """The choice among the directories of one broker."""

    def __init__(self, dirs: Sequence[LogDirState]) -> None:
        self._dirs = dirs
        self.cordoned: frozenset[str] = frozenset()
        """Paths of the directories that get no new logs (KIP-1066)."""
        self._pinned: dict[TopicPartition, str] = {}
        self._withheld: dict[TopicPartition, UUID] = {}

    def pin(self, tp: TopicPartition, path: str) -> None:
        """Remember the directory that a replica shall have that is not here yet."""
        self._pinned.pop(tp, None)
        self._pinned[tp] = path
        if len(self._pinned) > MAX_PINNED:
            del self._pinned[next(iter(self._pinned))]

    def unpin(self, tp: TopicPartition) -> None:
        self._pinned.pop(tp, None)

    def withhold(self, replicas: Mapping[TopicPartition, UUID]) -> None:
        """Name replicas (with topic ids) that may be in a directory that is not online, although metadata assigns none."""
        self._withheld = dict(replicas)

    def is_withheld(self, tp: TopicPartition, topic_id: UUID) -> bool:
        return self._withheld.get(tp) == topic_id

    def candidates(self, tp: TopicPartition, topic_id: UUID, assigned: UUID | None) -> list[LogDirState]:
        """The directories that may get the log, the best first. Raises StorageFault when none may.

        Where metadata assigns a directory that is not online, and one of ours is not: the log may well be there.
        """
        online = [state for state in self._dirs if state.online]
        if not online:
            raise StorageFault(f"no log directory is online for {tp}")
        missing = len(online) < len(self._dirs)
        if assigned is not None and not is_reserved_uuid(assigned):
            for state in online:
                if state.directory_id == assigned:
                    return [state]
            if missing:
                raise StorageFault(f"{tp} is in the log directory with the id {uuid_to_str(assigned)}, which is not online")
        elif missing and self.is_withheld(tp, topic_id):
            raise StorageFault(f"{tp} may be in a log directory that is not online, and no other broker is known to have it all")
        pinned = self._pinned.get(tp)
        for state in online:
            if state.path == pinned:
                return [state]
        open_ = [state for state in online if state.path not in self.cordoned]
        return sorted(open_, key=lambda state: state.count) if open_ else online[:1]


def create_log(ports: Ports, config: LogConfig, state: LogDirState, tp: TopicPartition, topic_id: UUID) -> Log:
    """Make the directory of a new log. Raises OSError, LogDamaged."""
    directory, newest = state.file(str(tp)), state.newest
    log = Log(
        OpenLog(
            disk=ports.disk,
            directory=directory,
            tp=tp,
            topic_id=topic_id,
            config=config,
            wall_ms=ports.clock.wall_ms(),
            entropy=SeededLater(ports.entropy.getrandbits(64)),
            tracer=ports.tracer,
            new=True,
            producer_batches=ports.tuning.producer_batches,
            sibling=newest[1] if newest is not None and newest[0] == topic_id else None,
        )
    )
    state.newest = (topic_id, directory)
    return log
