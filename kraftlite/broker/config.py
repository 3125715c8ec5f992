"""Configuration of the broker role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraftlite.broker.lifecycle_core import LifecycleConfig
from kraftlite.model.broker_configs import BROKER_CONFIGS
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MIB
from kraftlite.model.messages.controller import ListenerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirSpec:
    """One log directory: its absolute path and the id that `meta.properties` gives it; None when it cannot be read."""

    path: str
    directory_id: UUID | None
    problem: str | None = None
    """The reason why it cannot be read."""
    holds_metadata: bool = False
    """The metadata log is in it: without it no node can go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Compaction of a broker's logs. `map_bytes`: memory of the key map; `max_bytes_per_s` bounds what is read."""

    enable: bool = True
    map_bytes: int = 128 * MIB
    backoff_ms: int = 15_000
    max_bytes_per_s: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The configuration that a broker needs. `values` has the effective text of every static key that has one; times in
    milliseconds.

    `listeners` are those it registers: advertised hosts and ports, the inter-broker gRPC listener among them.
    """

    node_id: NodeId
    cluster_id: str
    rack: str | None
    listeners: tuple[ListenerInfo, ...]
    inter_broker_listener_name: str
    log_dirs: tuple[LogDirSpec, ...]
    lifecycle: LifecycleConfig
    recovery_threads: int
    checkpoint_interval_ms: int
    start_offset_checkpoint_interval_ms: int
    flush_check_interval_ms: int
    retention_check_interval_ms: int
    producer_check_interval_ms: int
    cleaner: CleanerConfig
    request_timeout_ms: int
    controller_attempt_timeout_ms: int
    values: Mapping[str, str]

    @classmethod
    def from_values(
        cls,
        values: Mapping[str, str],
        *,
        node_id: NodeId,
        cluster_id: str,
        listeners: tuple[ListenerInfo, ...],
        inter_broker_listener_name: str,
        log_dirs: tuple[LogDirSpec, ...],
    ) -> BrokerConfig:
        """Raises ValueError for a bad value. What values must not contradict each other in is checked by `config/server`."""
        typed = TypedValues(values)
        session_ms = typed("broker.session.timeout.ms")
        return cls(
            node_id=node_id,
            cluster_id=cluster_id,
            rack=typed("broker.rack"),
            listeners=listeners,
            inter_broker_listener_name=inter_broker_listener_name,
            log_dirs=log_dirs,
            lifecycle=LifecycleConfig(
                heartbeat_interval_ms=typed("broker.heartbeat.interval.ms"),
                session_timeout_ms=session_ms,
                initial_registration_timeout_ms=typed("initial.broker.registration.timeout.ms"),
                log_dir_failure_timeout_ms=typed("log.dir.failure.timeout.ms"),
                controlled_shutdown_enable=typed("controlled.shutdown.enable"),
            ),
            recovery_threads=typed("num.recovery.threads.per.data.dir"),
            checkpoint_interval_ms=typed("log.flush.offset.checkpoint.interval.ms"),
            start_offset_checkpoint_interval_ms=typed("log.flush.start.offset.checkpoint.interval.ms"),
            flush_check_interval_ms=typed("log.flush.scheduler.interval.ms"),
            retention_check_interval_ms=typed("log.retention.check.interval.ms"),
            producer_check_interval_ms=typed("producer.id.expiration.check.interval.ms"),
            cleaner=CleanerConfig(
                enable=typed("log.cleaner.enable"),
                map_bytes=int(typed("log.cleaner.dedupe.buffer.size") * typed("log.cleaner.io.buffer.load.factor")),
                backoff_ms=typed("log.cleaner.backoff.ms"),
                max_bytes_per_s=typed("log.cleaner.io.max.bytes.per.second"),
            ),
            request_timeout_ms=typed("request.timeout.ms"),
            controller_attempt_timeout_ms=max(500, session_ms // 3),
            values=MappingProxyType(dict(values)),
        )


class TypedValues:
    """The typed value of a broker key, from `values` or its default; None when it has neither. Raises ValueError."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __call__(self, name: str) -> Any:
        key = BROKER_CONFIGS[name]
        text = self._values.get(name, key.default)
        return None if text is None else key.parse(text)
