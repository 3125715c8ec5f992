"""The log directories of a broker and the logs in them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from kraftlite.broker.config import BrokerConfig
from kraftlite.broker.log_cleaner import LogCleaner
from kraftlite.broker.log_dirs_damage import fails_directory, remove
from kraftlite.broker.log_dirs_loading import AssignedOf, EpochOf, IsOurs, IsSole, LogLoader
from kraftlite.broker.log_dirs_moves import ReplicaMoves
from kraftlite.broker.log_dirs_placement import Placement, create_log
from kraftlite.broker.log_dirs_purges_driver import Purges
from kraftlite.broker.log_dirs_retention_driver import Retention
from kraftlite.broker.log_dirs_state import DELETE_SUFFIX, STRAY_SUFFIX, LogDirState, renamed
from kraftlite.broker.log_moves import LogMoves
from kraftlite.broker.log_moves_driver import MoveDriver, open_copies
from kraftlite.log import checkpoints
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.log.promises import LogDamaged
from kraftlite.model.errors import ApiError, ErrorCode, StorageFault
from kraftlite.model.ids import LOST_DIR, is_reserved_uuid, random_uuid, uuid_to_str
from kraftlite.model.limits import MAX_INT64
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import DiskSpace, Ports, TaskHandle
from kraftlite.runtime.trace.broker import CleanShutdownMarked, LogDeleted, LogDirFailed, LogDirUnusable

HOUSEKEEPING_MAX_MS: Final = 300_000


class LogDirs:
    """All logs of this broker: loads, creates, deletes, checkpoints and closes them. Implements `LogProvider`.

    Order: `read_markers`, `load` (once, with the first metadata image), `start_housekeeping`, …, `close`. A directory in which
    an I/O error happens goes offline with all its logs: `get` no longer finds them, `get_or_create` raises StorageFault for
    them, and `on_dir_failed` is called with the directory's id and the partitions that were in it. When none is left the node
    stops.
    Source: LG-07, LG-08, LG-31 to LG-34; BL-13, BL-16, BL-18; ML-23; RP-16.
    """

    def __init__(
        self,
        ports: Ports,
        config: BrokerConfig,
        *,
        config_for: Callable[[str], LogConfig],
        on_dir_failed: Callable[[UUID, Sequence[TopicPartition]], None],
    ) -> None:
        self._ports = ports
        self._config = config
        self._config_for = config_for
        self._on_dir_failed = on_dir_failed
        self._dirs = [LogDirState(spec=spec) for spec in config.log_dirs]
        self.placement = Placement(self._dirs)
        self._home: dict[TopicPartition, LogDirState] = {}
        self.log_moves = LogMoves(ports, config_for, self._fail)
        self.log_moves.retire = self._retire
        self.moves = ReplicaMoves(self._dirs, self._home, self.placement, self.log_moves, self._fail)
        self._tasks: list[TaskHandle] = []
        self._flushing: dict[TopicPartition, Log] = {}
        self._purges = Purges(ports, self.get, self._on_restated, self.handle_failure)
        self.retention = Retention(ports, self.logs, self.get, self.purge_soon, self.handle_failure)
        self._hooks = (self._on_roll, self._on_recovery_point_lowered, self._on_restated)
        """Made once: each mention of a method makes an object, and every log keeps three."""
        self.stopped_cleanly = False
        """The run before this one has said so in every directory: the controller takes this broker's replicas for complete."""

    # --- start --------------------------------------------------------------------------------------------------------

    def read_markers(self) -> int | None:
        """Tell how the previous run ended: its broker epoch if all directories agree on one, else None (BL-13)."""
        for state in self._dirs:
            if not state.online:
                self._ports.tracer.emit(LogDirUnusable(log_dir=state.path, reason=state.spec.problem or "it cannot be read"))
                continue
            try:
                state.read_marker(self._ports.disk)
            except OSError as error:
                self._fail(state, error)
        epochs = {state.marked_epoch for state in self._dirs}
        epoch = epochs.pop() if len(epochs) == 1 else None
        self.stopped_cleanly = epoch is not None
        return epoch

    async def load(
        self,
        is_ours: IsOurs,
        epoch_of: EpochOf = lambda tp: None,
        is_sole: IsSole = lambda tp: False,
        hosted: Mapping[TopicPartition, UUID] | None = None,
        assigned: AssignedOf = lambda tp: None,
    ) -> int:
        """Open every log, recovering what was not closed. Returns their number. Raises Fault (LG-33).

        `hosted`: every replica that the metadata gives this broker; `assigned`: the directory of one by that metadata.
        """
        loader = LogLoader(
            self._ports,
            self._dirs,
            threads=self._config.recovery_threads,
            config_for=self._config_for,
            fail_dir=self._fail,
            epoch_of=epoch_of,
            is_sole=is_sole,
            assigned=assigned,
        )
        count = await loader.load(is_ours, hosted or {})
        for state in self._dirs:
            for tp, log in state.logs.items():
                progress = state.clean_offsets.get(tp)
                log.clean_offset = progress if progress is None or progress <= log.leo else None  # else a power cut took the rest
                self._adopt(state, tp, log)
                if log.deleted:
                    self.purge_soon(log)
        self._withhold(hosted or {}, is_sole, assigned)
        await open_copies(self.moves.resume(self._ports.disk, assigned), self._ports.tasks)
        return count

    def _withhold(self, hosted: Mapping[TopicPartition, UUID], is_sole: IsSole, assigned: AssignedOf) -> None:
        """A replica that nobody else is known to have is not begun anew while it may be in a directory that is offline."""
        if all(state.online for state in self._dirs):
            return
        lacking = {tp: topic_id for tp, topic_id in hosted.items() if tp not in self._home and is_sole(tp)}
        self.placement.withhold({tp: lacking[tp] for tp in lacking if (found := assigned(tp)) is None or is_reserved_uuid(found)})

    def start_housekeeping(self, assigned: AssignedOf = lambda tp: None) -> None:
        """`assigned`: the directory of one of our replicas by the metadata of the time of the call."""
        config, spawn = self._config, self._ports.tasks.spawn
        self._tasks = [
            spawn(self._repeat(config.checkpoint_interval_ms, self.write_recovery_points), name="recovery-point-checkpoint"),
            spawn(self._repeat(config.start_offset_checkpoint_interval_ms, self.write_log_starts), name="log-start-checkpoint"),
            spawn(self._repeat(min(config.retention_check_interval_ms, HOUSEKEEPING_MAX_MS), self._roll_old), name="log-roll"),
            spawn(self.retention.run(config.retention_check_interval_ms), name="log-retention"),
        ]
        self._tasks.append(spawn(self._repeat(config.producer_check_interval_ms, self._expire_producers), name="producer-expiry"))
        if len(self._dirs) > 1:
            driver = MoveDriver(
                self._ports,
                self.log_moves,
                self._fail,
                lambda move: assigned(move.tp) == move.target.directory_id,
                self._home.__setitem__,
            )
            self._tasks.append(spawn(driver.run(), name="replica-moves"))
        if config.cleaner.enable:
            self._tasks.append(spawn(LogCleaner(self._ports, config.cleaner, self).run(), name="log-cleaner"))
        if config.flush_check_interval_ms < MAX_INT64:
            self._tasks.append(spawn(self._repeat(config.flush_check_interval_ms, self._flush_all), name="log-flush"))

    # --- LogProvider --------------------------------------------------------------------------------------------------

    @property
    def failed_directories(self) -> int:
        return sum(not state.online for state in self._dirs)

    def get(self, tp: TopicPartition) -> Log | None:
        state = self._home.get(tp)
        return state.logs.get(tp) if state is not None and state.online else None

    def get_or_create(self, tp: TopicPartition, topic_id: UUID, assigned: UUID | None = None) -> Log:
        """Raises StorageFault when the log's directory, the `assigned` one, or every directory, is offline;
        ApiError(INCONSISTENT_TOPIC_ID) when a log of another topic of this name is open."""
        state = self._home.get(tp)
        if state is not None and not state.online and state.logs[tp].topic_id not in (None, topic_id):
            del self._home[tp], state.logs[tp]  # what has failed was another topic's (KAFKA-16157)
            state = None
        if state is not None:
            if not state.online:
                raise StorageFault(f"{tp} is in {state.path}, which is offline", state.path)
            log = state.logs[tp]
            if log.topic_id is not None and log.topic_id != topic_id:
                expected, found = uuid_to_str(topic_id), uuid_to_str(log.topic_id)
                raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{tp} has topic id {found} on disk, not {expected}")
            return log
        for candidate in self._dirs:
            if candidate.online:
                self._check_refused(candidate, tp, topic_id)
        *others, last = self.placement.candidates(tp, topic_id, assigned)
        for candidate in others:
            try:
                return self._create_in(candidate, tp, topic_id)
            except StorageFault:
                if candidate.online:
                    raise
        return self._create_in(last, tp, topic_id)

    def _create_in(self, state: LogDirState, tp: TopicPartition, topic_id: UUID) -> Log:
        try:
            log = create_log(self._ports, self._config_for(tp.topic), state, tp, topic_id)
        except (OSError, LogDamaged) as error:
            if isinstance(error, OSError) and fails_directory(error):
                self._fail(state, error)
            raise StorageFault(f"{tp} could not be created in {state.path}: {error}", state.path) from error
        state.logs[tp] = log
        if state.forget_hw(tp):
            self._rewrite_checkpoints(state)
        self.placement.unpin(tp)
        self._adopt(state, tp, log)
        return log

    def _check_refused(self, state: LogDirState, tp: TopicPartition, topic_id: UUID) -> None:
        """Raises StorageFault when the partition's log is refused; that of an older topic of its name is set aside."""
        refused = state.refused.get(tp)
        if refused is None:
            return
        if refused.topic_id == topic_id:
            raise StorageFault(refused.reason, state.path)
        del state.refused[tp]
        with contextlib.suppress(FileNotFoundError):
            self._ports.disk.rename(
                refused.directory, state.file(renamed(tp, random_uuid(self._ports.entropy).hex, STRAY_SUFFIX))
            )

    def delete(self, tp: TopicPartition) -> None:
        state = self._home.pop(tp, None)
        if state is None:
            return
        log = state.logs.pop(tp, None)
        self.log_moves.deleted(tp, None if log is None else log.topic_id)
        state.forget_hw(tp)
        if log is None or not state.online:
            return
        log.on_roll = log.on_recovery_point_lowered = log.on_restated = None
        try:
            log.rename_directory(state.file(renamed(tp, random_uuid(self._ports.entropy).hex, DELETE_SUFFIX)))
            if state.statements is not None and log.topic_id is not None:
                state.statements.note({(log.topic_id, tp.partition): None})
        except OSError as error:
            self._fail(state, error)
            return
        self._rewrite_checkpoints(state)
        self._retire(state, log)

    def _retire(self, state: LogDirState, log: Log) -> None:
        """Remove a log that was renamed `-delete`, `file.delete.delay.ms` from now."""
        self._ports.tasks.spawn(self._remove_later(state, log, log.config.file_delete_delay_ms), name=f"delete-{log.tp}")

    def _rewrite_checkpoints(self, state: LogDirState) -> None:
        """A topic of thousands of partitions goes, or comes, as a whole: its checkpoints are written once, when it has."""
        if not state.rewriting:
            state.rewriting = True
            self._ports.tasks.spawn(self._write_checkpoints(state), name="checkpoints-rewritten")

    async def _write_checkpoints(self, state: LogDirState) -> None:
        await self._ports.clock.sleep(0)
        state.rewriting = False
        try:
            if state.online:
                state.write_all(self._ports.disk)
        except OSError as error:
            self._fail(state, error)

    async def _remove_later(self, state: LogDirState, log: Log, delay_ms: int) -> None:
        await self._ports.clock.sleep(delay_ms)
        try:
            log.close_files()
            await self._ports.tasks.run_blocking(lambda: remove(self._ports.disk, log.directory))
        except OSError as error:
            if fails_directory(error):
                self._fail(state, error)
            return
        self._ports.tracer.emit(LogDeleted(partition=str(log.tp)))

    def checkpointed_hw(self, tp: TopicPartition) -> int:
        state = self._home.get(tp)
        return 0 if state is None else state.hws.get(tp, 0)

    def write_hw_checkpoint(self, hws: Mapping[TopicPartition, int]) -> None:
        self._each_online(lambda state: state.write_hws(self._ports.disk, hws))

    @property
    def hws_filed(self) -> bool:
        return all(state.hws_filed for state in self._dirs if state.online)

    def handle_failure(self, error: OSError, tp: TopicPartition) -> None:
        state = self._home.get(tp)
        if state is not None:
            self._fail(state, error)

    # --- for the broker -----------------------------------------------------------------------------------------------

    def logs(self) -> tuple[Log, ...]:
        return tuple(log for state in self._dirs if state.online for log in state.logs.values())

    def standing(self, tp: TopicPartition, topic_id: UUID) -> UUID | None:
        """Return the directory that the controller is to know for a replica; None: nothing is known against metadata."""
        state = self._home.get(tp)
        if state is None:
            return LOST_DIR if self.placement.is_withheld(tp, topic_id) else None
        move = self.log_moves.get(tp)
        if move is not None and move.said and move.topic_id == topic_id:
            return move.target.directory_id
        return state.directory_id if state.logs[tp].topic_id == topic_id else None

    def taken_back(self, topic_id: UUID, partition: int) -> tuple[UUID, ...]:
        return self.log_moves.taken_back(topic_id, partition)

    @property
    def cordoned(self) -> frozenset[str]:
        return self.placement.cordoned

    def cordon(self, paths: frozenset[str]) -> tuple[UUID, ...]:
        """These directories get no new logs; returns their ids, as far as they are known."""
        self.placement.cordoned = paths
        return tuple(sorted(it.spec.directory_id for it in self._dirs if it.path in paths and it.spec.directory_id is not None))

    def online_ids(self) -> tuple[UUID, ...]:
        return tuple(state.directory_id for state in self._dirs if state.online)

    def is_moving(self, tp: TopicPartition) -> bool:
        """Return whether the replica is on its way into another directory: then it is not compacted."""
        return self.log_moves.get(tp) is not None

    def directory_of(self, tp: TopicPartition) -> str | None:
        state = self._home.get(tp)
        return None if state is None else state.path

    def online_directories(self) -> tuple[str, ...]:
        return tuple(state.path for state in self._dirs if state.online)

    def offline_directories(self) -> tuple[str, ...]:
        return tuple(state.path for state in self._dirs if not state.online)

    def space_of(self, path: str) -> DiskSpace | None:
        """Raises OSError when the directory cannot be asked."""
        return self._ports.disk.space(path)

    def write_recovery_points(self) -> None:
        def write(state: LogDirState) -> None:
            state.write_recovery_points(self._ports.disk)
            state.state_logs()

        self._each_online(write)

    def write_log_starts(self) -> None:
        self._each_online(lambda state: state.write_log_starts(self._ports.disk))

    def write_recovery_point_of(self, tp: TopicPartition) -> None:
        state = self._home.get(tp)
        if state is not None and state.online:
            state.write_recovery_points(self._ports.disk)
            state.state_log(state.logs[tp], durably=True)

    def write_clean_offset_of(self, tp: TopicPartition) -> None:
        state = self._home.get(tp)
        if state is not None and state.online:
            state.write_clean_offsets(self._ports.disk)

    async def close(self, broker_epoch: int | None) -> None:
        """Flush and close every log and, where all logs were loaded, write the checkpoints and the clean-shutdown marker (BL-10).

        Where they were not, the files beside the logs still say all that is known of the others.
        """
        await self.stop_housekeeping()
        for state in self._dirs:
            if not state.online:
                continue
            try:
                logs, at_once = [*state.logs.values(), *state.futures.values()], self._ports.tuning.logs_per_turn
                for log in logs:
                    log.on_roll = log.on_recovery_point_lowered = log.on_restated = None
                for start in range(0, len(logs), at_once):
                    await self._ports.tasks.run_blocking(partial(_close_all, logs[start : start + at_once]))
                if not state.loaded:
                    continue
                state.write_recovery_points(self._ports.disk)
                state.write_log_starts(self._ports.disk)
                checkpoints.write_clean_shutdown(self._ports.disk, state.path, -1 if broker_epoch is None else broker_epoch)
            except OSError as error:
                self._fail(state, error)
                continue
            self._ports.tracer.emit(CleanShutdownMarked(log_dir=state.path, broker_epoch=broker_epoch))

    async def stop_housekeeping(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    # --- internals ----------------------------------------------------------------------------------------------------

    def _adopt(self, state: LogDirState, tp: TopicPartition, log: Log) -> None:
        self._home[tp] = state
        log.on_roll, log.on_recovery_point_lowered, log.on_restated = self._hooks

    def _on_roll(self, log: Log) -> None:
        """Make the closed segments durable in the background; one flush per log at a time, a later one covers what it missed."""
        if log.tp in self._flushing:
            return
        self._flushing[log.tp] = log
        self._ports.tasks.spawn(self._flush_rolled(log), name=f"flush-{log.tp}")

    async def _flush_rolled(self, log: Log) -> None:
        try:
            while self.get(log.tp) is log and log.recovery_point < log.active_base_offset:
                await log.flush(log.active_base_offset)
            self._on_restated(log)
        except OSError as error:
            self.handle_failure(error, log.tp)
        finally:
            self._flushing.pop(log.tp, None)

    def _on_restated(self, log: Log) -> None:
        """OSError reaches whoever writes to the log: it takes the directory offline."""
        state = self._home.get(log.tp)
        if state is not None and state.online and state.logs.get(log.tp) is log:
            state.state_log(log)

    def _on_recovery_point_lowered(self, log: Log) -> None:
        state = self._home.get(log.tp)
        if state is not None and state.online:
            state.write_recovery_points(self._ports.disk)  # OSError reaches whoever truncates: it takes the directory offline
            if log.clean_offset is not None:
                state.write_clean_offsets(self._ports.disk)

    async def _repeat(self, interval_ms: int, work: Callable[[], None]) -> None:
        while True:
            await self._ports.clock.sleep(interval_ms)
            work()

    def _roll_old(self) -> None:
        wall_ms = self._ports.clock.wall_ms()
        for log in self.logs():
            try:
                log.maybe_roll(wall_ms)
            except OSError as error:
                self.handle_failure(error, log.tp)

    def purge_soon(self, log: Log) -> None:
        """Segments of `log` were deleted: unlink their files `file.delete.delay.ms` from now (LG-38)."""
        self._purges.soon(log)

    def _expire_producers(self) -> None:
        wall_ms = self._ports.clock.wall_ms()
        for log in self.logs():
            log.remove_expired_producers(wall_ms)

    def _flush_all(self) -> None:
        for log in self.logs():
            if log.recovery_point < log.leo and log.config.flush_ms < MAX_INT64:
                self._ports.tasks.spawn(self._flush(log), name=f"flush-{log.tp}")

    async def _flush(self, log: Log) -> None:
        try:
            await log.flush()
        except OSError as error:
            self.handle_failure(error, log.tp)

    def _each_online(self, work: Callable[[LogDirState], None]) -> None:
        for state in self._dirs:
            if state.online:
                try:
                    work(state)
                except OSError as error:
                    self._fail(state, error)

    def _fail(self, state: LogDirState, error: OSError) -> None:
        if not state.online:
            return
        state.online = False
        self._ports.tracer.emit(LogDirFailed(log_dir=state.path, directory_id=uuid_to_str(state.directory_id), reason=str(error)))
        told = None
        if state.spec.holds_metadata:
            told = f"{state.path} has failed, where the metadata log is: {error}"
        elif not any(other.online for other in self._dirs):
            told = f"every log directory has failed; the last was {state.path}: {error}"
        if told is not None:
            self._ports.fault(StorageFault(told, state.path), "log dirs")
        moving = self.log_moves.directory_failed(state)
        self._on_dir_failed(state.directory_id, tuple(sorted({*state.logs, *moving})))


def _close_all(logs: Sequence[Log]) -> None:
    """Close logs, on a thread: on its own the trip to the thread would be most of what an idle log costs."""
    for log in logs:
        log.close()
