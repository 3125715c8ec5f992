"""Events of the broker: lifecycle, log directories, metadata application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kraftlite.model.topic_partition import TopicPartition
from kraftlite.runtime.trace import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStateChanged(TraceEvent):
    event: ClassVar[str] = "broker.state_changed"
    previous: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered(TraceEvent):
    event: ClassVar[str] = "broker.registered"
    broker_epoch: int
    incarnation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationRefused(TraceEvent):
    event: ClassVar[str] = "broker.registration_refused"
    level: ClassVar[str] = "warning"
    reason: str
    retry_in_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatFailed(TraceEvent):
    event: ClassVar[str] = "broker.heartbeat_failed"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFenced(TraceEvent):
    """The controller's answer says that this running broker is fenced, or no longer is."""

    event: ClassVar[str] = "broker.fenced_changed"
    level: ClassVar[str] = "warning"
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstPublishDone(TraceEvent):
    event: ClassVar[str] = "broker.first_publish_done"
    metadata_offset: int
    logs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoriesReported(TraceEvent):
    """The controller was told in which log directories so many replicas are; `again`: of them, those to be named once more."""

    event: ClassVar[str] = "broker.directories_reported"
    replicas: int
    again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoriesReportFailed(TraceEvent):
    event: ClassVar[str] = "broker.directories_report_failed"
    level: ClassVar[str] = "warning"
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMoveStarted(TraceEvent):
    """A replica is copied into another directory of this broker; its copy ends at `leo`."""

    event: ClassVar[str] = "broker.replica_move_started"
    tp: TopicPartition
    source: str
    target: str
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMoveEnded(TraceEvent):
    """The replica stays where it is."""

    event: ClassVar[str] = "broker.replica_move_ended"
    tp: TopicPartition
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMoved(TraceEvent):
    event: ClassVar[str] = "broker.replica_moved"
    tp: TopicPartition
    source: str
    target: str
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirUnusable(TraceEvent):
    """A log directory could not be read when the broker started: it starts without it."""

    event: ClassVar[str] = "broker.log_dir_unusable"
    level: ClassVar[str] = "error"
    log_dir: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsLoaded(TraceEvent):
    event: ClassVar[str] = "broker.logs_loaded"
    log_dir: str
    logs: int
    clean: bool
    elapsed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLogSetAside(TraceEvent):
    event: ClassVar[str] = "broker.stray_log_set_aside"
    level: ClassVar[str] = "warning"
    partition: str
    topic_id: str | None
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRefused(TraceEvent):
    """Records of the partition are missing and no other replica is known to have them: it is not served, the others are."""

    event: ClassVar[str] = "broker.log_refused"
    level: ClassVar[str] = "error"
    partition: str
    directory: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedLogSetAside(TraceEvent):
    """Records of the partition are missing here, and others have them: it is fetched anew. `kept`: copies that were set aside
    and are still there, of all partitions; the oldest go first."""

    event: ClassVar[str] = "broker.damaged_log_set_aside"
    level: ClassVar[str] = "warning"
    partition: str
    reason: str
    directory: str | None
    size_bytes: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LossAccepted(TraceEvent):
    """A person told the broker to go on with what is left of a log."""

    event: ClassVar[str] = "broker.loss_accepted"
    level: ClassVar[str] = "warning"
    partition: str
    log_start_offset: int
    leo: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointUnreadable(TraceEvent):
    """A file beside the logs is damaged: the broker goes on without what it said."""

    event: ClassVar[str] = "broker.checkpoint_unreadable"
    level: ClassVar[str] = "warning"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectoryIgnored(TraceEvent):
    """A directory in a log directory that is no partition of ours: reported and left alone (LG-33)."""

    event: ClassVar[str] = "broker.log_directory_ignored"
    level: ClassVar[str] = "warning"
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDeleted(TraceEvent):
    event: ClassVar[str] = "broker.log_deleted"
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirFailed(TraceEvent):
    event: ClassVar[str] = "broker.log_dir_failed"
    level: ClassVar[str] = "error"
    log_dir: str
    directory_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanShutdownMarked(TraceEvent):
    event: ClassVar[str] = "broker.clean_shutdown_marked"
    log_dir: str
    broker_epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockReceived(TraceEvent):
    event: ClassVar[str] = "broker.producer_id_block_received"
    first_producer_id: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicConfigIgnored(TraceEvent):
    """Values of the metadata log for this broker, or for all brokers, that cannot be read; the others apply."""

    event: ClassVar[str] = "broker.dynamic_config_ignored"
    level: ClassVar[str] = "error"
    resource: str
    reasons: tuple[str, ...]
