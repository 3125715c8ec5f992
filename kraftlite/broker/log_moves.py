"""Moving replicas between the directories of one broker: the copies, how they follow, and how they take their replica's place.

Source: KIP-113, KIP-858; KAFKA-16082, KAFKA-16297; JB-09 to JB-11; QU-10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from kraftlite.broker.log_dirs_state import DELETE_SUFFIX, FUTURE_SUFFIX, LogDirState, renamed
from kraftlite.log.config import LogConfig
from kraftlite.log.context import SeededLater
from kraftlite.log.log import Log, OpenLog
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.model.ids import random_uuid
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.quotas.rates import KAFKAS_WINDOWS
from kraftlite.replication.consume import find_divergence
from kraftlite.replication.follower_state import last_fetched_epoch, truncate_to_divergence
from kraftlite.replication.throttle import Throttle
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace import NullTracer
from kraftlite.runtime.trace.broker import ReplicaMoved, ReplicaMoveEnded, ReplicaMoveStarted

STEP_BYTES: Final = 1 << 20
"""Copied between two turns of the loop; one batch, if it is larger."""


@dataclass(slots=True, eq=False, kw_only=True)
class Move:
    """A replica on its way. `said`: the controller is told that it is in `target`, and metadata shall say so."""

    tp: TopicPartition
    topic_id: UUID
    source: LogDirState
    target: LogDirState
    copy: Log
    said: bool = False


class LogMoves:
    """The moves of one broker, one for a partition. Synchronous; `log_moves_driver` gives it its turns.

    A copy follows its replica as a follower follows its leader, whether the replica leads or follows. An OSError is told to
    `failed(state, error)`. `report(topic_id, partition, directory_id)` tells the controller where a replica is.
    """

    def __init__(
        self,
        ports: Ports,
        config_for: Callable[[str], LogConfig],
        failed: Callable[[LogDirState, OSError], None],
    ) -> None:
        self._ports = ports
        self._config_for = config_for
        self._failed = failed
        self._moves: dict[TopicPartition, Move] = {}
        self._taken_back: dict[tuple[UUID, int], tuple[UUID, ...]] = {}
        """The targets of those moves of a replica that were reported and did not come about, the last one first."""
        self.report: Callable[[UUID, int, UUID], None] = lambda topic_id, partition, directory_id: None
        self.throttle = Throttle(KAFKAS_WINDOWS, ports.clock.now_ms)
        self.on_started: Callable[[], None] = lambda: None
        self.retire: Callable[[LogDirState, Log], None] = lambda state, log: None
        """Takes a log that was renamed `-delete`."""

    def get(self, tp: TopicPartition) -> Move | None:
        return self._moves.get(tp)

    def taken_back(self, topic_id: UUID, partition: int) -> tuple[UUID, ...]:
        return self._taken_back.get((topic_id, partition), ())

    def all(self) -> tuple[Move, ...]:
        return tuple(self._moves.values())

    # --- beginning and ending -----------------------------------------------------------------------------------------

    def start(self, tp: TopicPartition, topic_id: UUID, source: LogDirState, target: LogDirState) -> None:
        """Raises OSError of the target."""
        name = renamed(tp, random_uuid(self._ports.entropy).hex, FUTURE_SUFFIX)
        self.resume(tp, topic_id, source, target, self.opener(tp, topic_id, target, target.file(name))(), said=False)

    def opener(self, tp: TopicPartition, topic_id: UUID, target: LogDirState, directory: str) -> Callable[[], Log]:
        """Opens the copy in `directory`, which is made if it is not there; raises what opening a log raises. After a crash all of
        a copy is checked, so that it is for a thread."""
        opening = OpenLog(
            disk=self._ports.disk,
            directory=directory,
            tp=tp,
            topic_id=topic_id,
            config=self._config_for(tp.topic),
            clean=target.clean,
            wall_ms=self._ports.clock.wall_ms(),
            entropy=SeededLater(self._ports.entropy.getrandbits(64)),
            tracer=NullTracer(),  # its events would be taken for those of the replica
            producer_batches=self._ports.tuning.producer_batches,
        )
        return lambda: Log(opening)

    def resume(
        self, tp: TopicPartition, topic_id: UUID, source: LogDirState, target: LogDirState, copy: Log, *, said: bool
    ) -> None:
        """Go on with a copy."""
        target.futures[tp] = copy
        self._moves[tp] = Move(tp=tp, topic_id=topic_id, source=source, target=target, copy=copy, said=said)
        self._ports.tracer.emit(ReplicaMoveStarted(tp=tp, source=source.path, target=target.path, leo=copy.leo))
        self.on_started()

    def cancel(self, tp: TopicPartition, reason: str) -> None:
        """The replica stays where it is; the copy is deleted."""
        move = self._forget(tp, reason)
        if move is None:
            return
        try:
            self._delete(move.target, move.copy)
        except OSError as error:
            self._failed(move.target, error)
        if move.said:
            self.report(move.topic_id, tp.partition, move.source.directory_id)

    def deleted(self, tp: TopicPartition, topic_id: UUID | None) -> None:
        """The replica is gone, and its copy with it."""
        self.cancel(tp, "the replica is deleted")
        if topic_id is not None:
            self._taken_back.pop((topic_id, tp.partition), None)

    def directory_failed(self, state: LogDirState) -> list[TopicPartition]:
        """Nothing is copied out of it or into it any more; what is in other directories stays there. Returns what moved."""
        found = [move.tp for move in self._moves.values() if state in (move.source, move.target)]
        for tp in found:
            move = self._forget(tp, f"{state.path} is offline")
            if move is not None:
                move.copy.close_files()
        return found

    def _forget(self, tp: TopicPartition, reason: str) -> Move | None:
        move = self._moves.pop(tp, None)
        if move is not None:
            move.target.futures.pop(tp, None)
            if move.said and move.source.online:
                before = self.taken_back(move.topic_id, tp.partition)
                self._taken_back[move.topic_id, tp.partition] = (move.target.directory_id, *before)
            self._ports.tracer.emit(ReplicaMoveEnded(tp=tp, target=move.target.path, reason=reason))
        return move

    def _delete(self, state: LogDirState, log: Log) -> None:
        log.on_roll = log.on_recovery_point_lowered = log.on_restated = None
        log.rename_directory(state.file(renamed(log.tp, random_uuid(self._ports.entropy).hex, DELETE_SUFFIX)))
        self.retire(state, log)

    # --- following ----------------------------------------------------------------------------------------------------

    def step(self, move: Move) -> bool:
        """Copy the next records, and return whether there were any: there are none over the throttle's bound. A copy that cannot
        follow is begun anew by the next step."""
        if self._moves.get(move.tp) is not move:
            return False
        current = move.source.logs[move.tp]
        try:
            data = self._read(move, current)
        except OSError as error:
            self._failed(move.source, error)
            return False
        try:
            return self._append(move, current, data)
        except OSError as error:
            self._failed(move.target, error)
        except ApiError as error:
            self.cancel(move.tp, f"the copy cannot follow: {error}")
        return False

    def _read(self, move: Move, current: Log) -> bytes:
        copy = move.copy
        if not current.log_start_offset <= copy.leo < current.leo or self._diverging(copy, current) is not None:
            return b""
        if self.throttle.exceeded():
            return b""
        return current.read(copy.leo, STEP_BYTES, up_to=current.leo)

    @staticmethod
    def _diverging(copy: Log, current: Log) -> int | None:
        """Return the end of what both have; None where all of the copy is also in the replica."""
        try:
            end = find_divergence(current, copy.leo, last_fetched_epoch(copy))
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return -1
        return None if end is None else end.end_offset

    def _append(self, move: Move, current: Log, data: bytes) -> bool:
        copy = move.copy
        if copy.config is not current.config:
            copy.update_config(current.config)
        if data:
            self.throttle.count(len(data))
            copy.append_as_follower(data, allow_gaps=True, wall_ms=self._ports.clock.wall_ms())
        elif self._diverging(copy, current) is not None:
            self._cut(copy, current)
            return True
        self._follow_start(copy, current)
        return bool(data)

    @staticmethod
    def _follow_start(copy: Log, current: Log) -> None:
        copy.update_hw(min(current.hw, copy.leo))
        if copy.log_start_offset < current.log_start_offset <= copy.hw:
            copy.increment_log_start(current.log_start_offset, "the replica's log start")

    @staticmethod
    def _cut(copy: Log, current: Log) -> None:
        """Cut off what the replica does not have; a copy of another range begins anew."""
        end = None
        known = current.log_start_offset <= copy.leo and copy.log_start_offset <= current.leo
        if known:
            try:
                end = find_divergence(current, min(copy.leo, current.leo), last_fetched_epoch(copy))
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                known = False
        if end is not None:
            truncate_to_divergence(copy, end, current.log_start_offset)
        elif known and copy.leo > current.leo:
            copy.truncate_to(current.leo, allow_below_hw=True)
        else:
            copy.truncate_fully_and_start_at(current.log_start_offset)

    # --- taking its place ---------------------------------------------------------------------------------------------

    def is_complete(self, move: Move) -> bool:
        if self._moves.get(move.tp) is not move:
            return False
        current, copy = move.source.logs[move.tp], move.copy
        return (
            copy.leo == current.leo
            and copy.log_start_offset >= current.log_start_offset
            and last_fetched_epoch(copy) == last_fetched_epoch(current)
        )

    def say(self, move: Move) -> None:
        """The copy has everything: have the controller place the replica in the target."""
        move.said = True
        target_id = move.target.directory_id
        if others := [it for it in self.taken_back(move.topic_id, move.tp.partition) if it != target_id]:
            self._taken_back[move.topic_id, move.tp.partition] = tuple(others)
        else:
            self._taken_back.pop((move.topic_id, move.tp.partition), None)
        self.report(move.topic_id, move.tp.partition, target_id)

    def promote(self, move: Move, home: Callable[[TopicPartition, LogDirState], None]) -> None:
        """The copy takes the replica's place, under the same `Log`: whoever holds that goes on with it.

        The copy has its plain name, durably, before the old directory loses it: a crash in between leaves two, of which metadata
        names one. What holds of the copy is stated before that: its files do not tell where in the first segment the log starts,
        nor that offsets may be missing. `home(tp, state)`: the log is in another directory now.
        """
        tp, source, target = move.tp, move.source, move.target
        current, copy, disk = source.logs[tp], move.copy, self._ports.disk
        stated = source.stated((move.topic_id, tp.partition))
        gaps_below = max(0 if stated is None else stated.gaps_below, current.clean_offset or 0)
        copy.update_config(current.config)
        try:
            for epoch, offset in current.epoch_entries:
                if copy.latest_epoch is None or epoch > copy.latest_epoch:
                    copy.assign_epoch_start(epoch, offset)
            self._follow_start(copy, current)  # a copy that a start has opened begins with its first segment
            target.state_log(copy, durably=True, gaps_below=gaps_below)
            copy.rename_directory(target.file(str(tp)))
            disk.sync_dir(target.path)
        except OSError as error:
            self._failed(target, error)
            return
        current.exchange(copy)
        del self._moves[tp], source.logs[tp], target.futures[tp]
        target.logs[tp] = current
        target.hws[tp] = source.hws.pop(tp, current.hw)
        home(tp, target)
        self._ports.tracer.emit(ReplicaMoved(tp=tp, source=source.path, target=target.path, leo=current.leo))
        try:
            target.write_all(disk)
        except OSError as error:
            self._failed(target, error)
        try:
            self._delete(source, copy)
            if source.statements is not None:
                source.statements.note({(move.topic_id, tp.partition): None})
            source.write_all(disk)
        except OSError as error:
            self._failed(source, error)
