"""The parts of the broker that replication needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from kraftlite.log.log import Log
from kraftlite.model.errors import ErrorCode
from kraftlite.model.method import Method, Req, Res
from kraftlite.model.topic_partition import TopicPartition

NO_TOPIC_IDS: Final[Mapping[TopicPartition, UUID]] = MappingProxyType({})


class LogProvider(Protocol):
    """The logs of this broker (`broker/log_dirs`)."""

    @property
    def failed_directories(self) -> int:
        """The number of log directories that have gone offline since the start; none comes back."""
        ...

    def get(self, tp: TopicPartition) -> Log | None: ...

    def get_or_create(self, tp: TopicPartition, topic_id: UUID, assigned: UUID | None = None) -> Log:
        """Opens or creates the log directory. `assigned`: where metadata has it. StorageFault when its directory is offline."""
        ...

    def delete(self, tp: TopicPartition) -> None:
        """Rename to `-delete` now, remove later (LG-38)."""
        ...

    def checkpointed_hw(self, tp: TopicPartition) -> int:
        """Return the entry of `replication-offset-checkpoint`; 0 when it has none."""
        ...

    def write_hw_checkpoint(self, hws: Mapping[TopicPartition, int]) -> None: ...

    @property
    def hws_filed(self) -> bool:
        """Return whether all that was given to `write_hw_checkpoint` last stands in the files, and nothing else."""
        ...

    def write_log_starts(self) -> None:
        """Make the log starts of now durable: what clients asked to be deleted must not come back (LG-40)."""
        ...

    def handle_failure(self, error: OSError, tp: TopicPartition) -> None:
        """An I/O error on this partition's log: takes its log directory offline."""
        ...


class ControllerChannel(Protocol):
    """The way to the active controller: finds it, follows it, and retries until the caller's time is up (BL-04, CE-09)."""

    async def call(self, method: Method[Req, Res], request: Req, timeout_ms: int) -> Res:
        """Raises ApiError; REQUEST_TIMED_OUT when no active controller answered in time (CP-57). Retries only NOT_CONTROLLER
        and connection failures, which means that an operation may be carried out twice: methods sent here tolerate that."""
        ...


class TransactionGate(Protocol):
    """The way to the coordinators of transactions, which are on this broker or on others."""

    async def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
        topic_ids: Mapping[TopicPartition, UUID] = NO_TOPIC_IDS,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Add the partitions to the producer's transaction, or find out whether they are in it. Answers with the coordinator's
        codes, within `request.timeout.ms`; a coordinator that cannot be reached is NETWORK_EXCEPTION. `topic_ids`:
        of the topics as they are led; COORDINATOR_NOT_AVAILABLE where the coordinator's broker has another one of that name. An
        ApiError counts for all partitions."""
        ...
