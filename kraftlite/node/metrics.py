"""Gauges of a node, under the names that Kafka's stock boards expect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import kraftlite
from kraftlite.node.build import Node
from kraftlite.node.metadata_metrics import register_metadata
from kraftlite.node.partition_metrics import register_group_offsets, register_partitions
from kraftlite.obs.metrics import Metrics
from kraftlite.obs.quotas import register_mutations, register_quotas
from kraftlite.obs.stock import register_controller

if TYPE_CHECKING:
    from kraftlite.broker.server import BrokerServer
    from kraftlite.raft.driver import RaftDriver
    from kraftlite.security.gate import Gate
    from kraftlite.wire.share import NodeShare


def register_gauges(metrics: Metrics, node: Node, most_partitions: int) -> None:
    """Read at scrape time, on the node's loop; once the node's parts are made. Source: CE-30."""
    gauge = metrics.gauge
    raft, controller = node.raft, node.controller
    gauge("kraftlite_build_info", "1 with the version of this node.", lambda: 1, labels={"version": kraftlite.__version__})
    gauge("kafka_server_raftmetrics_current_epoch", "Epoch of the metadata quorum that this node knows.", lambda: raft.raft_epoch)
    gauge(
        "kafka_server_raftmetrics_current_leader",
        "Node id of the quorum's leader; -1 while it is unknown.",
        lambda: _leader(node),
    )
    gauge(
        "kafka_server_raftmetrics_high_watermark",
        "High watermark of the metadata log; -1 while it is unknown.",
        raft.high_watermark,
    )
    gauge(
        "kafka_server_raftmetrics_log_end_offset", "Offset behind the last record of the metadata log here.", raft.log_end_offset
    )
    _state_gauges(metrics, raft)
    _membership_gauges(metrics, raft)
    register_metadata(metrics, node)
    if controller is not None:
        register_controller(metrics, controller.metrics)
    if node.broker is not None:
        _broker_gauges(metrics, node.broker)
        _group_gauges(metrics, node.broker)
        register_partitions(metrics, node.broker.replicas, most_partitions, node.ports.clock.now_ms)
        register_group_offsets(metrics, node.broker.groups, node.broker.replicas, most_partitions)
    if node.gate is not None:
        _authorizer_gauges(metrics, node.gate)
    gauge("kraftlite_client_connections", "Connections of clients.", lambda: node.listeners.connection_count)
    _share_gauges(metrics, node)
    _authentication_gauges(metrics, node)
    register_tls(metrics, node)
    if node.broker is not None:
        register_quotas(metrics, node.broker.quotas.clients, node.ports.clock.now_ms)
    if controller is not None:
        register_mutations(metrics, controller.mutations)


def register_tls(metrics: Metrics, node: Node) -> None:
    handshakes, gauge = node.listeners.handshakes, metrics.gauge
    gauge("kraftlite_tls_handshakes", "Handshakes of TLS that are under way.", lambda: handshakes()[0])
    gauge("kraftlite_tls_handshakes_done", "Handshakes of TLS that were done.", lambda: handshakes()[1])
    gauge("kraftlite_tls_handshakes_refused", "Handshakes of TLS that failed.", lambda: handshakes()[2])


def _state_gauges(metrics: Metrics, raft: RaftDriver) -> None:
    """Source: Kafka's KafkaRaftMetrics, as Strimzi's rules write it; TM-12."""
    metrics.family(
        "kafka_server_raftmetrics_current_state",
        "1 with the state of this node in the metadata quorum.",
        "current_state",
        lambda: [(raft.state_name, 1)],
    )
    metrics.gauge(
        "kafka_server_raftmetrics_current_vote", "Node id that this node has voted for in its epoch; -1 for none.", raft.voted_for
    )
    metrics.family(
        "kafka_server_raftmetrics_current_vote_directory_id",
        "1 with the directory id of the node that this node has voted for; the zero id for none.",
        "current_vote_directory_id",
        lambda: [(raft.voted_directory(), 1)],
    )


def _authorizer_gauges(metrics: Metrics, gate: Gate) -> None:
    """Source: SE-38; Kafka's `kafka.server:type=authorizer-metrics`."""
    metrics.gauge("kafka_server_authorizer_metrics_acls_total_count", "Access control entries.", lambda: len(gate.authorizer))
    metrics.counter("kraftlite_authorizations_allowed", "Resources that requests were allowed to use.", lambda: gate.allowed)
    metrics.counter("kraftlite_authorizations_denied", "Resources that requests were refused.", lambda: gate.denied)


def _membership_gauges(metrics: Metrics, raft: RaftDriver) -> None:
    """Source: KIP-853; DQ-47."""
    gauge = metrics.gauge
    gauge(
        "kafka_server_raftmetrics_number_of_voters",
        "Voters of the metadata quorum, as the log here says last.",
        lambda: len(raft.voter_ids()),
    )
    gauge(
        "kafka_server_raftmetrics_number_of_observers",
        "Replicas of the metadata log that do not vote; 0 unless leading.",
        raft.observer_count,
    )
    gauge(
        "kafka_server_raftmetrics_number_unknown_voter_connections",
        "Voters of the metadata quorum whose address this node does not know.",
        raft.unknown_voter_count,
    )
    gauge(
        "kafka_server_raftmetrics_uncommitted_voter_change",
        "1 while this leader has a change of the voters to commit.",
        lambda: int(raft.voters_are_changing()),
    )
    gauge(
        "kafka_controller_kafkacontroller_ignoredstaticvoters",
        "1 where controller.quorum.voters is set and has no effect, as the log says who votes.",
        lambda: int(raft.ignores_configured_voters()),
    )


def _share_gauges(metrics: Metrics, node: Node) -> None:
    """Set the gauges of what clients hold of the node, all listeners together; 0 while none is open."""

    def shared(read: Callable[[NodeShare], int]) -> Callable[[], int]:
        return lambda: 0 if node.listeners.share is None else read(node.listeners.share)

    gauge = metrics.gauge
    gauge(
        "kraftlite_client_receive_bytes",
        "Bytes of large buffers, for requests that have come in part.",
        shared(lambda it: it.receive.held_bytes),
    )
    gauge(
        "kraftlite_client_receive_waiting",
        "Connections of clients that wait for a large buffer.",
        shared(lambda it: it.receive.waiting),
    )
    gauge(
        "kraftlite_client_response_bytes",
        "Bytes of answers to clients that sockets have not taken yet.",
        shared(lambda it: it.responses.held_bytes),
    )
    gauge("kraftlite_client_deferred", "Connections waiting for their turn.", shared(lambda it: it.turns.deferred))


def _authentication_gauges(metrics: Metrics, node: Node) -> None:
    """Source: KIP-188, KIP-368; SE-15."""
    for outcome, name, words in (
        ("successful", "successful_authentication", "Clients that have authenticated."),
        ("failed", "failed_authentication", "Clients that could not authenticate."),
        (
            "successful_again",
            "successful_reauthentication",
            "Clients that have authenticated again before their session was over.",
        ),
        ("failed_again", "failed_reauthentication", "Clients that could not authenticate again."),
        (
            "successful_old_clients",
            "successful_authentication_no_reauth",
            "Clients that have authenticated in a way that knows no authenticating again.",
        ),
        ("expired_killed", "expired_connections_killed", "Connections closed because their session was over."),
    ):
        metrics.counter(f"kafka_server_socketservermetrics_{name}", words, partial(node.listeners.authentications, outcome))


def _leader(node: Node) -> int:
    leader_id = node.raft.leader_and_epoch().leader_id
    return -1 if leader_id is None else leader_id


def _broker_gauges(metrics: Metrics, broker: BrokerServer) -> None:
    gauge, replicas = metrics.gauge, broker.replicas
    gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 starting, 2 catching up, 3 running, 6 in controlled shutdown, 7 shutting down.",
        lambda: broker.lifecycle.state.value,
    )
    _transaction_gauges(metrics, broker)
    gauge("kafka_server_replicamanager_partitioncount", "Partitions with a replica on this broker.", replicas.counts.partitions)
    gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", replicas.counts.leaders)
    gauge(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here whose ISR is smaller than their replicas.",
        replicas.counts.under_replicated,
    )
    gauge(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here whose ISR is below min.insync.replicas.",
        replicas.counts.under_min_isr,
    )
    gauge(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led here whose ISR is at min.insync.replicas.",
        replicas.counts.at_min_isr,
    )
    gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions led here with a transaction that is open for longer than transaction.max.timeout.ms and 5 minutes.",
        replicas.counts.late_transactions,
    )
    gauge(
        "kafka_server_replicamanager_reassigningpartitions",
        "Partitions led here whose replicas are being changed.",
        replicas.counts.reassigning,
    )
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas of this broker in directories that have failed.",
        replicas.counts.offline,
    )
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories of this broker that have failed.",
        lambda: len(broker.log_dirs.offline_directories()),
    )
    gauge(
        "kafka_log_logmanager_cordonedlogdirectorycount",
        "Log directories of this broker that get no new replicas.",
        lambda: len(broker.log_dirs.cordoned),
    )


def _group_gauges(metrics: Metrics, broker: BrokerServer) -> None:
    """Source: Kafka's GroupMetadataManager and GroupCoordinatorMetrics."""
    metrics.gauge(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "Groups that this broker coordinates.",
        broker.groups.group_count,
    )


def _transaction_gauges(metrics: Metrics, broker: BrokerServer) -> None:
    """Source: TX-67; KIP-890."""
    gauge, transactions, verifications = metrics.gauge, broker.transactions, broker.replicas.enroller.verifications
    gauge("kraftlite_transactional_ids", "Transactional ids that this broker coordinates.", transactions.id_count)
    gauge(
        "kraftlite_transactions_open",
        "Transactions that are open, of the transactional ids that this broker coordinates.",
        transactions.open_count,
    )
    gauge(
        "kraftlite_transactions_decided",
        "Transactions that are decided and not carried out yet, of the transactional ids that this broker coordinates.",
        transactions.decided_count,
    )
    for kind, times in (("transaction", transactions.load_times), ("group", broker.groups.load_times)):
        load_time = f"kafka_server_{kind}_coordinator_metrics_partition_load_time"
        gauge(f"{load_time}_max", "Milliseconds of the longest load of a partition in the last minute.", times.max_ms)
        gauge(f"{load_time}_avg", "Milliseconds of a load of a partition on average, in the last minute.", times.avg_ms)
    gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "Markers that wait for a leader, or to be sent again.",
        lambda: transactions.markers.waiting,
    )
    gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize",
        "States of transactional ids that wait to be written again.",
        transactions.write_again_count,
    )
    metrics.counter(
        "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
        "Partitions that a coordinator did not let into a transaction when this broker asked.",
        lambda: verifications.failures,
    )
    metrics.summary(
        "kafka_server_addpartitionstotxnmanager_verificationtimems",
        "Milliseconds until a coordinator answered whether partitions are in a transaction.",
        lambda: (verifications.count, verifications.total_ms),
    )
