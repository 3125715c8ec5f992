"""Loading every log of a broker at its start."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from kraftlite.broker.log_dirs_state import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirState,
    is_foreign,
    parse_directory_name,
    renamed,
)
from kraftlite.log import checkpoints
from kraftlite.log.config import LogConfig
from kraftlite.log.log import Log
from kraftlite.model.errors import ApiError, Fault
from kraftlite.model.ids import random_uuid, uuid_to_str
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.ports import Ports
from kraftlite.runtime.trace.broker import LogDirectoryIgnored, LogsLoaded, StrayLogSetAside

IsOurs = Callable[[TopicPartition, UUID], bool]
"""Whether the metadata gives this broker a replica of that partition of that topic (ML-23)."""
EpochOf = Callable[[TopicPartition], int | None]
"""A partition's leader epoch as of that metadata: its log cannot have a later one. None: not known."""


@dataclass(frozen=True, slots=True)
class _Job:
    tp: TopicPartition
    topic_id: UUID
    directory: str


class LogLoader:
    """Opens the logs of all directories, several at a time in each. One directory failing does not fail the others (LG-32).

    What does not belong here by the metadata is renamed `…-stray` and left alone, `…-delete` is removed, unknown directories are
    reported. Raises Fault when a partition is in two directories (LG-33). Source: LG-26 to LG-33, ML-23.
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
    ) -> None:
        self._ports = ports
        self._dirs = dirs
        self._threads = threads
        self._config_for = config_for
        self._fail_dir = fail_dir
        self._epoch_of = epoch_of

    async def load(self, is_ours: IsOurs) -> int:
        """Returns how many logs were loaded; they are in the directories' `logs`."""
        found: list[tuple[LogDirState, deque[_Job]]] = []
        seen: dict[TopicPartition, str] = {}
        for state in self._dirs:
            if not state.online:
                continue
            try:
                jobs = deque(self._scan(state, is_ours))
            except OSError as error:
                self._fail_dir(state, error)
                continue
            for job in jobs:
                if job.tp in seen:
                    raise Fault(f"{job.tp} is in two log directories: {seen[job.tp]} and {job.directory}; remove one of them")
                seen[job.tp] = job.directory
            found.append((state, jobs))
        for state, jobs in found:
            await self._load_dir(state, jobs)
        return sum(len(state.logs) for state in self._dirs if state.online)

    def _scan(self, state: LogDirState, is_ours: IsOurs) -> list[_Job]:
        disk = self._ports.disk
        state.read_checkpoints(disk)
        checkpoints.remove_clean_shutdown(disk, state.path)
        jobs: list[_Job] = []
        for name in disk.listdir(state.path):
            path = state.file(name)
            stat = disk.stat(path)
            if stat is None or not stat.is_dir or is_foreign(name):
                continue
            if name.endswith(DELETE_SUFFIX):
                disk.rmtree(path)
                continue
            tp = parse_directory_name(name)
            if tp is None:
                self._ports.tracer.emit(LogDirectoryIgnored(path=path))
                continue
            topic_id = _topic_id(self._ports, path)
            if topic_id is not None and is_ours(tp, topic_id):
                jobs.append(_Job(tp, topic_id, path))
            else:
                self._set_aside(state, tp, topic_id, path)
        return jobs

    def _set_aside(self, state: LogDirState, tp: TopicPartition, topic_id: UUID | None, path: str) -> None:
        target = state.file(renamed(tp, random_uuid(self._ports.entropy).hex, STRAY_SUFFIX))
        self._ports.disk.rename(path, target)
        self._ports.disk.sync_dir(state.path)
        text = None if topic_id is None else uuid_to_str(topic_id)
        self._ports.tracer.emit(StrayLogSetAside(partition=str(tp), topic_id=text, directory=target))

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
        if failures:
            self._fail_dir(state, failures[0])
            return
        state.loaded = True
        elapsed_ms = self._ports.clock.now_ms() - began_ms
        self._ports.tracer.emit(LogsLoaded(log_dir=state.path, logs=len(state.logs), clean=state.clean, elapsed_ms=elapsed_ms))

    async def _work(self, state: LogDirState, jobs: deque[_Job], failures: list[OSError]) -> None:
        while jobs and not failures:
            job = jobs.popleft()
            seed = self._ports.entropy.getrandbits(64)
            try:
                log = await self._ports.tasks.run_blocking(self._opener(state, job, seed))
            except OSError as error:
                failures.append(error)
                return
            except ApiError as error:
                raise Fault(f"{job.directory}: {error}") from error
            state.logs[job.tp] = log

    def _opener(self, state: LogDirState, job: _Job, seed: int) -> Callable[[], Log]:
        ports, config, max_epoch = self._ports, self._config_for(job.tp.topic), self._epoch_of(job.tp)

        def open_log() -> Log:
            return Log.open(
                disk=ports.disk,
                directory=job.directory,
                tp=job.tp,
                topic_id=job.topic_id,
                config=config,
                log_start_offset=state.log_starts.get(job.tp, 0),
                recovery_point=state.recovery_points.get(job.tp, 0),
                clean=state.clean,
                wall_ms=ports.clock.wall_ms(),
                entropy=random.Random(seed),
                tracer=ports.tracer,
                max_epoch=max_epoch,
            )

        return open_log


def _topic_id(ports: Ports, path: str) -> UUID | None:
    """None when the directory does not say, and has no records: the file is durable before the first append.

    Raises Fault when there are records and nothing says whose: to set them aside could lose them, to adopt them could serve
    those of a deleted topic. Departs: Kafka takes a directory without the file for a stray one.
    """
    try:
        found = checkpoints.read_partition_metadata(ports.disk, path)
        reason = f"{path}/{checkpoints.PARTITION_METADATA} is missing"
    except checkpoints.MalformedCheckpoint as error:
        found, reason = None, str(error)
    if found is None and any(name.endswith(".log") and _has_data(ports, f"{path}/{name}") for name in ports.disk.listdir(path)):
        raise Fault(
            f"{reason}, and {path} has records: write the file anew (version: 0, topic_id: as kraftlite describe shows it), "
            "or remove the directory to fetch the partition from its other replicas"
        )
    return found


def _has_data(ports: Ports, path: str) -> bool:
    stat = ports.disk.stat(path)
    return stat is not None and stat.size > 0
