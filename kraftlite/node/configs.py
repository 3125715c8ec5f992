"""Derives the configurations of a node's parts from that of the node."""

from __future__ import annotations

from kraftlite.broker.config import BrokerConfig, LogDirSpec
from kraftlite.config.server import ServerConfig
from kraftlite.controller.config import ControllerConfig
from kraftlite.model.tuning import TokenTimes, Tuning
from kraftlite.node.forming import controller_endpoints
from kraftlite.node.storage import Layout
from kraftlite.quotas.rates import QuotaWindows
from kraftlite.raft.config import QuorumConfig, Voter, metadata_log_config
from kraftlite.replication.config import ReplicationConfig


def quorum_config(config: ServerConfig, layout: Layout, tuning: Tuning) -> QuorumConfig:
    voters = tuple(Voter(id=voter.node_id, endpoint=voter.endpoint) for voter in config.quorum_voters)
    if not config.values.get("controller.quorum.voters", "").strip() and not layout.is_formed:
        voters = ()  # formatted with --no-initial-controllers: its being the only bootstrap server makes it no voter
    number = config.get_int
    return QuorumConfig(
        node_id=config.node_id,
        cluster_id=layout.cluster_id,
        directory_id=layout.directory_ids[layout.metadata_log_dir],
        voters=voters,
        bootstrap_servers=config.quorum_bootstrap_servers,
        listeners=controller_endpoints(config),
        listener_name=next(iter(config.controller_listener_names), None),
        may_become_voter=config.is_controller,
        auto_join=config.get_bool("controller.quorum.auto.join.enable"),
        metadata_dir=layout.metadata_dir,
        must_be_voter=config.is_controller,
        election_timeout_ms=number("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=number("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=number("controller.quorum.election.backoff.max.ms"),
        append_linger_ms=number("controller.quorum.append.linger.ms"),
        request_timeout_ms=number("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=number("controller.quorum.retry.backoff.ms"),
        max_retention_bytes=number("metadata.max.retention.bytes"),
        max_retention_ms=number("metadata.max.retention.ms"),
        cleaning_interval_ms=tuning.metadata_cleaning_interval_ms,
        file_delete_delay_ms=tuning.metadata_file_delete_ms,
        tuning=tuning,
        log_config=metadata_log_config(number("metadata.log.segment.bytes"), number("metadata.log.segment.ms")),
    )


def controller_config(config: ServerConfig, layout: Layout, tuning: Tuning) -> ControllerConfig:
    number = config.get_int
    rebalance = config.get_bool("auto.leader.rebalance.enable")
    session_ms = number("broker.session.timeout.ms")
    return ControllerConfig(
        node_id=config.node_id,
        cluster_id=layout.cluster_id,
        session_timeout_ms=session_ms,
        default_num_partitions=number("num.partitions"),
        default_replication_factor=number("default.replication.factor"),
        preferred_election_interval_ms=number("leader.imbalance.check.interval.seconds") * 1000 if rebalance else None,
        unclean_election_interval_ms=number("unclean.leader.election.interval.ms"),
        max_idle_interval_ms=number("metadata.max.idle.interval.ms"),
        performance_period_ms=number("controller.performance.sample.period.ms"),
        slow_event_ms=number("controller.performance.always.log.threshold.ms"),
        max_elections_per_run=tuning.elections_per_run,
        tuning=tuning,
        delete_topic_enable=config.get_bool("delete.topic.enable"),
        static_broker_configs=config.values,
        token_secret=config.get("delegation.token.secret.key"),
        token_times=TokenTimes(
            max_lifetime_ms=number("delegation.token.max.lifetime.ms"),
            expiry_ms=number("delegation.token.expiry.time.ms"),
            check_interval_ms=number("delegation.token.expiry.check.interval.ms"),
        ),
        quorum_voters=tuple(voter.node_id for voter in config.quorum_voters),
        listeners=config.advertised_controller_listeners,
        request_timeout_ms=number("request.timeout.ms"),
        mutation_windows=QuotaWindows(
            number("controller.quota.window.num"), number("controller.quota.window.size.seconds") * 1_000
        ),
        heartbeat_timeout_ms=session_ms // 2,
        has_authorizer=bool(config.get_text("authorizer.class.name")),
    )


def broker_config(config: ServerConfig, layout: Layout) -> BrokerConfig:
    assert config.inter_broker_listener_name is not None, "checked with the configuration"
    return BrokerConfig.from_values(
        config.values,
        node_id=config.node_id,
        cluster_id=layout.cluster_id,
        listeners=config.advertised_listeners,
        inter_broker_listener_name=config.inter_broker_listener_name,
        log_dirs=tuple(
            LogDirSpec(
                path=path,
                directory_id=layout.directory_ids.get(path),
                problem=layout.problems.get(path),
                holds_metadata=path == layout.metadata_log_dir,
            )
            for path in config.log_dirs
        ),
    )


def replication_config(config: ServerConfig, layout: Layout) -> ReplicationConfig:
    assert config.inter_broker_listener_name is not None, "checked with the configuration"
    return ReplicationConfig.from_values(
        config.values,
        broker_id=config.node_id,
        cluster_id=layout.cluster_id,
        inter_broker_listener_name=config.inter_broker_listener_name,
    )
