"""Loading every log of a broker at its start."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from kraftlite.broker.log_dirs_damage import ACCEPT_LOSS, OPENING_ERRORS, DamagedLogs, fails_directory, holds_records, remove
from kraftlite.broker.log_dirs_state import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    LogDirState,
    is_deleted_name,
    is_foreign,
    parse_directory_name,
    parse_future_name,
    renamed,
)
from kraftlite.log import checkpoints
from kraftlite.log.config import LogConfig
from kraftlite.log.context import SeededLater
from kraftlite.log.log import Log, OpenLog
from kraftlite.log.promises import LogAhead, LogDamaged, Promise
from kraftlite.model.errors import Fault
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace.broker import (
    CheckpointUnreadable,
    LogDirectoryIgnored,
    LogsLoaded,
    LossAccepted,
    StrayLogSetAside,
)

IsOurs = Callable[[TopicPartition, UUID], bool]
"""Says whether the metadata gives this broker a replica of that partition of that topic (ML-23)."""
EpochOf = Callable[[TopicPartition], int | None]
"""A partition's leader epoch as of that metadata: its log cannot have a later one. None: not known."""
IsSole = Callable[[TopicPartition], bool]
"""Says whether this broker is the only one in the partition's ISR as of that metadata: then nobody else is known to have its
records. Where it is not, its registration has taken it out of the ISR, and it comes back when it has what the leader has."""
AssignedOf = Callable[[TopicPartition], UUID | None]
"""The directory of this broker's replica of a partition as of that metadata."""

_KEPT_NAMES: Final = 8
"""A directory with more files, as those of many segments, is listed again when its turn comes: the names of all would fill the
memory."""


def _broken(error: Exception) -> bool:
    """Return whether an error of opening a log is about that log alone."""
    return not isinstance(error, OSError) or not fails_directory(error)


def _open_all(openers: Sequence[tuple[_Job, Callable[[], Log]]]) -> list[tuple[_Job, Log | Exception]]:
    """Open logs, on a thread; each with what came of it. No further than to an error that is the directory's."""
    found: list[tuple[_Job, Log | Exception]] = []
    for job, opener in openers:
        try:
            found.append((job, opener()))
        except OPENING_ERRORS as error:
            found.append((job, error))
            if not _broken(error):
                break
    return found


@dataclass(frozen=True, slots=True)
class _Job:
    tp: TopicPartition
    topic_id: UUID
    directory: str
    accept_loss: bool = False
    names: Sequence[str] | None = None
    """The names in it, if they are few, and its `partition.metadata` says this topic id."""


class LogLoader:
    """Opens the logs of all directories, several at a time in each. One directory failing does not fail the others (LG-32).

    What does not belong here by the metadata is renamed `…-stray` and left alone, `…-delete` is removed, unknown directories are
    reported. A partition that has lost records, or that cannot be read, is set aside or refused (`DamagedLogs`); the others are
    loaded. Raises Fault when a partition is in two directories (LG-33). Source: LG-26 to LG-33, ML-23.
    """

    def __init__(
        self,
        ports: Ports,
        dirs: Sequence[LogDirState],
        *,
        threads: int,
        config_for: Callable[[str], LogConfig],
        fail_dir: Callable[[LogDirState, OSError], None],
        epoch_of: EpochOf = lambda tp: None,
        is_sole: IsSole = lambda tp: False,
        assigned: AssignedOf = lambda tp: None,
    ) -> None:
        self._ports = ports
        self._dirs = dirs
        self._threads = threads
        self._config_for = config_for
        self._fail_dir = fail_dir
        self._epoch_of = epoch_of
        self._damaged = DamagedLogs(ports, is_sole)
        self._assigned = assigned

    async def load(self, is_ours: IsOurs, hosted: Mapping[TopicPartition, UUID]) -> int:
        """Returns how many logs were loaded; they are in the directories' `logs`. `hosted`: all replicas that the metadata gives
        this broker."""
        found: list[tuple[LogDirState, deque[_Job]]] = []
        scanned: list[tuple[LogDirState, deque[_Job]]] = []
        for state in self._dirs:
            if not state.online:
                continue
            try:
                jobs = deque(self._scan(state, is_ours, hosted))
            except OSError as error:
                self._fail_dir(state, error)
                continue
            scanned.append((state, jobs))
        seen = self._settle(scanned)
        for state, jobs in scanned:
            if not state.online:
                continue
            try:
                self._find_missing(state, seen, hosted)
            except OSError as error:
                self._fail_dir(state, error)
                continue
            found.append((state, jobs))
        for state, jobs in found:
            await self._load_dir(state, jobs)
        return sum(len(state.logs) for state in self._dirs if state.online)

    def _settle(self, scanned: list[tuple[LogDirState, deque[_Job]]]) -> set[TopicPartition]:
        """Keep one of a partition's directories, and return all partitions that have one. A crash leaves two when a move was
        about to end: the one counts that metadata names (JB-11). Raises Fault when it names neither (LG-33)."""
        seen: dict[TopicPartition, tuple[LogDirState, deque[_Job], _Job]] = {}
        for state, jobs in scanned:
            for job in list(jobs):
                other = seen.get(job.tp)
                if other is None:
                    seen[job.tp] = (state, jobs, job)
                    continue
                assigned = self._assigned(job.tp)
                if assigned not in (state.directory_id, other[0].directory_id):
                    raise Fault(
                        f"{job.tp} is in two log directories: {other[2].directory} and {job.directory}; remove one of them"
                    )
                keep, drop = (state, jobs, job), other
                if assigned != state.directory_id:
                    keep, drop = drop, keep
                seen[job.tp] = keep
                drop[1].remove(drop[2])
                gone = drop[0].file(renamed(job.tp, random_uuid(self._ports.entropy).hex, DELETE_SUFFIX))
                try:
                    self._ports.disk.rename(drop[2].directory, gone)
                    remove(self._ports.disk, gone)
                except OSError as error:
                    self._fail_dir(drop[0], error)
        return {*seen, *self._adopt_copies(scanned, seen)}

    def _adopt_copies(
        self,
        scanned: list[tuple[LogDirState, deque[_Job]]],
        seen: Mapping[TopicPartition, tuple[LogDirState, deque[_Job], _Job]],
    ) -> set[TopicPartition]:
        """A copy whose replica is nowhere, in the directory that metadata names, is the replica: it was complete when the
        controller was told. Not while a directory is offline and nobody else has it all: the replica may be there."""
        adopted = set()
        missing = not all(state.online for state in self._dirs)
        for state, jobs in scanned:
            for tp, (topic_id, path) in sorted(state.copies_found.items()):
                if tp in seen or self._assigned(tp) != state.directory_id or (missing and self._damaged.is_sole(tp)):
                    continue
                del state.copies_found[tp]
                plain = state.file(str(tp))
                try:
                    self._ports.disk.rename(path, plain)
                    self._ports.disk.sync_dir(state.path)
                except OSError as error:
                    self._fail_dir(state, error)
                    break
                jobs.append(_Job(tp, topic_id, plain))
                adopted.add(tp)
        return adopted

    def _find_copy(self, state: LogDirState, name: str, path: str, is_ours: IsOurs) -> None:
        """Note a copy that a former run has left; one of a replica that is not ours any more is removed."""
        tp = parse_future_name(name)
        if tp is None:
            self._ports.tracer.emit(LogDirectoryIgnored(path=path))
            return
        try:
            topic_id = checkpoints.read_partition_metadata(self._ports.disk, path)
        except checkpoints.MalformedCheckpoint:
            topic_id = None
        if topic_id is not None and is_ours(tp, topic_id):
            state.copies_found[tp] = (topic_id, path)
        else:
            remove(self._ports.disk, path)

    def _scan(self, state: LogDirState, is_ours: IsOurs, hosted: Mapping[TopicPartition, UUID]) -> list[_Job]:
        disk = self._ports.disk
        state.read_checkpoints(disk, self._ports.tracer)
        checkpoints.remove_clean_shutdown(disk, state.path)
        jobs: list[_Job] = []
        for name in disk.listdir(state.path):
            if is_foreign(name):
                continue
            path, tp = state.file(name), parse_directory_name(name)
            try:
                if name.endswith(FUTURE_SUFFIX):
                    self._find_copy(state, name, path, is_ours)
                    continue
                job = self._look_at(state, name, path, tp, is_ours, hosted)
            except (OSError, LogDamaged) as error:
                if not _broken(error):
                    raise
                expected = None if tp is None else hosted.get(tp)
                if tp is not None and expected is not None:
                    self._damaged.handle(state, tp, expected, path, str(error))
                else:
                    self._ports.tracer.emit(LogDirectoryIgnored(path=path))
                continue
            if job is not None:
                jobs.append(job)
        return jobs

    def _look_at(
        self,
        state: LogDirState,
        name: str,
        path: str,
        tp: TopicPartition | None,
        is_ours: IsOurs,
        hosted: Mapping[TopicPartition, UUID],
    ) -> _Job | None:
        """One entry of a log directory. Raises OSError, LogDamaged."""
        disk = self._ports.disk
        stat = disk.stat(path)
        expected = None if tp is None else hosted.get(tp)
        if stat is None or not stat.is_dir:
            if expected is not None:
                raise LogDamaged(f"{path} is not a directory")
            return None
        if is_deleted_name(name):
            remove(disk, path)
            return None
        if tp is None:
            self._ports.tracer.emit(LogDirectoryIgnored(path=path))
            return None
        names = disk.listdir(path)
        accepts = ACCEPT_LOSS in names
        try:
            topic_id = checkpoints.read_partition_metadata(disk, path)
            reason = f"{path}/{checkpoints.PARTITION_METADATA} is missing"
        except checkpoints.MalformedCheckpoint as error:
            topic_id, reason = None, str(error)
        if topic_id is None and expected is not None:
            if accepts:
                return _Job(tp, expected, path, accept_loss=True)
            if state.stated((expected, tp.partition)) is not None:
                # The file is one for all partitions of a topic, where the file system can: with it, all of them would be lost.
                checkpoints.restore_partition_metadata(disk, path, expected)
                self._ports.tracer.emit(CheckpointUnreadable(reason=f"{reason}; it was written anew"))
                return _Job(tp, expected, path)
            if holds_records(disk, path, names):
                # Departs: Kafka takes a directory without the file for a stray one, also where it has the only copy.
                raise LogDamaged(
                    f"{reason}, and {path} has records: nothing says of which topic; "
                    f"that of this name has the id {uuid_to_str(expected)}"
                )
        if topic_id is not None and is_ours(tp, topic_id):
            return _Job(tp, topic_id, path, accepts, names if len(names) <= _KEPT_NAMES else None)
        self._set_aside(state, tp, topic_id, path)
        return None

    def _set_aside(self, state: LogDirState, tp: TopicPartition, topic_id: UUID | None, path: str) -> None:
        target = state.file(renamed(tp, random_uuid(self._ports.entropy).hex, STRAY_SUFFIX))
        self._ports.disk.rename(path, target)
        self._ports.disk.sync_dir(state.path)
        text = None if topic_id is None else uuid_to_str(topic_id)
        self._ports.tracer.emit(StrayLogSetAside(partition=str(tp), topic_id=text, directory=target))

    def _find_missing(self, state: LogDirState, found: set[TopicPartition], hosted: Mapping[TopicPartition, UUID]) -> None:
        """Logs that had records, and are not there at all. A replica that never had any may well have no directory."""
        for tp, topic_id in hosted.items():
            stated = state.stated((topic_id, tp.partition))
            if stated is None or tp in found or tp in state.refused or tp in state.copies_found:
                continue  # of a copy it was stated just before that would have got its plain name
            path = state.file(str(tp))
            until = f" to {stated.end - 1}" if stated.end > stated.start else ""
            reason = f"{path} is gone, or is another topic's: the records of offsets {stated.start}{until} and beyond are missing"
            self._damaged.handle(state, tp, topic_id, path, reason)

    async def _load_dir(self, state: LogDirState, jobs: deque[_Job]) -> None:
        began_ms = self._ports.clock.now_ms()
        failures: list[OSError] = []
        workers = [
            self._ports.tasks.spawn(self._work(state, jobs, failures), name=f"log-loader-{index}")
            for index in range(min(self._threads, len(jobs)))
        ]
        try:
            for worker in workers:
                await worker
        finally:
            for worker in workers:
                worker.cancel()
        if not failures:
            try:
                state.begin_statements()
                state.correct_checkpoints(self._ports.disk)
            except OSError as error:
                failures.append(error)
        if failures:
            self._fail_dir(state, failures[0])
            return
        state.loaded = True
        elapsed_ms = self._ports.clock.now_ms() - began_ms
        self._ports.tracer.emit(LogsLoaded(log_dir=state.path, logs=len(state.logs), clean=state.clean, elapsed_ms=elapsed_ms))

    async def _work(self, state: LogDirState, jobs: deque[_Job], failures: list[OSError]) -> None:
        """Open logs. The way to a thread and back takes longer than to open one that has nothing to recover, and where they are
        many most are such: several of them go together."""
        while jobs and not failures:
            most = min(self._ports.tuning.logs_per_turn, len(jobs) // self._threads)
            taken = [jobs.popleft()]
            while len(taken) < most and self._is_light(state, taken[-1]) and self._is_light(state, jobs[0]):
                taken.append(jobs.popleft())
            openers = [(job, self._opener(state, job, self._ports.entropy.getrandbits(64))) for job in taken]
            try:
                for job, found in await self._ports.tasks.run_blocking(partial(_open_all, openers)):
                    if isinstance(found, Log):
                        if job.accept_loss:
                            self._accepted(state, job, found)
                        state.logs[job.tp] = found
                    elif _broken(found):
                        ahead = isinstance(found, LogAhead)
                        self._damaged.handle(state, job.tp, job.topic_id, job.directory, str(found), ahead=ahead)
                    else:
                        raise found
            except OSError as error:
                failures.append(error)
                return

    @staticmethod
    def _is_light(state: LogDirState, job: _Job) -> bool:
        """Return whether a log was closed, or never had a record."""
        return state.clean or state.stated((job.topic_id, job.tp.partition)) is None

    def _accepted(self, state: LogDirState, job: _Job, log: Log) -> None:
        """Note that from now on this is all that the log is known to have held."""
        state.accepted.add(job.tp)
        self._ports.disk.unlink(f"{job.directory}/{ACCEPT_LOSS}")
        self._ports.tracer.emit(LossAccepted(partition=str(job.tp), log_start_offset=log.log_start_offset, leo=log.leo))

    def _opener(self, state: LogDirState, job: _Job, seed: int) -> Callable[[], Log]:
        ports, config, max_epoch = self._ports, self._config_for(job.tp.topic), self._epoch_of(job.tp)
        stated = state.stated((job.topic_id, job.tp.partition))
        if stated is not None:
            stated = stated._replace(gaps_below=max(stated.gaps_below, state.clean_offsets.get(job.tp, 0)))
        # With statements at hand, a log without one never had a record, a power cut took the line of its first one, or its
        # directory came from elsewhere. The checkpoints, which have no checksum, say nothing that can be relied on then: a log
        # start is stated before it is checkpointed.
        # Nor do they beside damaged statements, where others have what is here: these tell a follower the log start, too.
        sole = self._damaged.is_sole(job.tp)
        unvouched = state.statements_damaged and not sole
        unknown = stated is None and state.statements is not None and (state.statements.known or unvouched)
        # Of a compacted log nobody can tell whether what is left is all that was there: it may be another log's.
        promise = Promise(stated=stated, cut_short=not sole and not config.compacted, accept_loss=job.accept_loss)

        def open_log() -> Log:
            return Log(
                OpenLog(
                    disk=ports.disk,
                    directory=job.directory,
                    tp=job.tp,
                    topic_id=job.topic_id,
                    config=config,
                    log_start_offset=0 if unknown else state.log_starts.get(job.tp, 0),
                    recovery_point=0 if unknown else state.recovery_points.get(job.tp, 0),
                    clean=state.clean,
                    names=job.names,
                    wall_ms=ports.clock.wall_ms(),
                    entropy=SeededLater(seed),
                    tracer=ports.tracer,
                    max_epoch=max_epoch,
                    promise=promise,
                    producer_batches=ports.tuning.producer_batches,
                )
            )

        return open_log
