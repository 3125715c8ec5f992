"""Configuration of the controller role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlite.metadata.features import SUPPORTED_FEATURES
from kraftlite.model.ids import NodeId
from kraftlite.model.limits import MAX_ELECTIONS_PER_RUN
from kraftlite.model.messages.controller import FeatureRange, ListenerInfo
from kraftlite.model.tuning import TokenTimes, Tuning
from kraftlite.quotas.rates import QuotaWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The configuration that the controller needs. Times in milliseconds; defaults are Kafka's.

    `static_broker_configs`: the server's effective static values (Kafka keys), the last stop before built-in defaults (CM-49).
    """

    node_id: NodeId
    cluster_id: str
    session_timeout_ms: int = 9_000
    default_num_partitions: int = 1
    default_replication_factor: int = 1
    preferred_election_interval_ms: int | None = 300_000
    """`leader.imbalance.check.interval.seconds`; None when `auto.leader.rebalance.enable` is false."""
    unclean_election_interval_ms: int = 300_000
    max_idle_interval_ms: int = 500
    """`metadata.max.idle.interval.ms`; 0 disables the no-op records."""
    performance_period_ms: int = 60_000
    """`controller.performance.sample.period.ms`."""
    slow_event_ms: int = 2_000
    """`controller.performance.always.log.threshold.ms`."""
    tuning: Tuning = field(default_factory=Tuning)
    max_elections_per_run: int = MAX_ELECTIONS_PER_RUN
    delete_topic_enable: bool = True
    static_broker_configs: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_secret: str | None = field(default=None, repr=False)
    """`delegation.token.secret.key`; None: there are no delegation tokens."""
    token_times: TokenTimes = field(default_factory=TokenTimes)
    quorum_voters: tuple[NodeId, ...] = ()
    """The controllers of the quorum: a feature upgrade waits until each has registered (CM-13)."""
    listeners: tuple[ListenerInfo, ...] = ()
    """The listeners that this controller registers; empty: it does not register itself."""
    supported_features: tuple[FeatureRange, ...] = SUPPORTED_FEATURES
    request_timeout_ms: int = 30_000
    """The time that an operation may wait that names no timeout."""
    mutation_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """`controller.quota.window.*`."""
    heartbeat_timeout_ms: int = 4_500
    """The time that a heartbeat may wait in the queue: half a session."""
    has_authorizer: bool = False
    """Access control entries may be made, and are enforced (SE-30)."""
