"""The driver of `assignments`: compares metadata with the directories of the logs, and reports where they differ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol
from uuid import UUID

from kraftlite.broker.assignments import Assignments
from kraftlite.metadata.features import supports_directories
from kraftlite.metadata.image import MetadataImage
from kraftlite.model.errors import ApiError
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.methods import ASSIGN_REPLICAS_TO_DIRS
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.replication.ports import ControllerChannel
from kraftlite.runtime.ports import Ports, TaskHandle
from kraftlite.runtime.trace.broker import DirectoriesReported, DirectoriesReportFailed

FIRST_BACKOFF_MS: Final = 100
MAX_BACKOFF_MS: Final = 10_000
JITTER_PERCENT: Final = 2


class Whereabouts(Protocol):
    """The part of `LogDirs` that knows where replicas are."""

    def standing(self, tp: TopicPartition, topic_id: UUID) -> UUID | None:
        """Return the directory that the controller is to know for a replica; None: nothing is known against metadata."""
        ...

    def taken_back(self, topic_id: UUID, partition: int) -> tuple[UUID, ...]:
        """Return the directories that were named for a replica although it has never been there, the last one first."""
        ...


class AssignmentReporter:
    """Reports within a second of the change where the controller can be reached; where not, it asks again, ever less often."""

    def __init__(
        self,
        ports: Ports,
        node_id: NodeId,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int | None],
        image: Callable[[], MetadataImage],
        logs: Whereabouts,
    ) -> None:
        self._ports = ports
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._image = image
        self._core = Assignments(node_id, logs.taken_back)
        self._wakeup: asyncio.Future[None] | None = None
        self._task: TaskHandle | None = None
        self._logs = logs

    def queued(self) -> int:
        return len(self._core)

    def start(self) -> None:
        self._task = self._ports.tasks.spawn(self._run(), name="replica-directories")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def hosted(self, tp: TopicPartition, topic_id: UUID, assigned: UUID | None) -> None:
        """Metadata places a replica of ours in `assigned`; say so where it is elsewhere. None: no directory is assigned."""
        actual = self._logs.standing(tp, topic_id)
        if actual is None or actual is assigned or actual == assigned:
            return  # nearly always, and asked of every replica that changes
        level = self._image().features.metadata_version
        if level is not None and supports_directories(level):
            self.report(topic_id, tp.partition, actual)

    def report(self, topic_id: UUID, partition: int, directory_id: UUID) -> None:
        self._core.wish(topic_id, partition, directory_id)
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _run(self) -> None:
        failures = 0
        while True:
            if self._core.idle:
                self._wakeup = asyncio.get_running_loop().create_future()
                try:
                    await self._wakeup
                finally:
                    self._wakeup = None
            if await self._exchange():
                failures = 0
                continue
            delay_ms = min(FIRST_BACKOFF_MS << min(failures, 20), MAX_BACKOFF_MS)
            spread = delay_ms * JITTER_PERCENT // 100
            failures += 1
            await self._ports.clock.sleep(delay_ms + self._ports.entropy.randint(-spread, spread))

    async def _exchange(self) -> bool:
        """Tell the controller what waits, and return whether to go on at once."""
        broker_epoch = self._broker_epoch()
        if broker_epoch is None:
            return False
        request = self._core.request(broker_epoch, self._image())
        if request is None:
            return True
        try:
            response = await self._channel.call(ASSIGN_REPLICAS_TO_DIRS, request, self._ports.tuning.directory_report_ms)
        except ApiError as error:
            self._core.failed()
            self._ports.tracer.emit(DirectoriesReportFailed(replicas=len(request.replicas), reason=str(error)))
            return False
        again = self._core.answered(response)
        self._ports.tracer.emit(DirectoriesReported(replicas=len(request.replicas), again=again))
        return not again
