"""The metadata that a node has, in numbers under the names of Kafka's MBeans.

Source: TM-12; Kafka's MetadataLoaderMetrics, SnapshotEmitterMetrics, NodeMetrics and BrokerServerMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftlite.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from kraftlite.node.build import Node
from kraftlite.obs.metrics import Metrics


def register_metadata(metrics: Metrics, node: Node) -> None:
    gauge, clock = metrics.gauge, node.ports.clock
    raft, loader, snapshotter = node.raft, node.loader, node.snapshotter
    applied = "kafka_server_broker_metadata_metrics_last_applied_record"
    gauge(f"{applied}_offset", "Offset of the last metadata record that this node has applied.", loader.last_applied_offset)
    gauge(
        f"{applied}_timestamp",
        "Time at which the last metadata record that this node has applied was appended, in milliseconds; 0 for none.",
        lambda: loader.last_applied_time_ms,
    )
    gauge(
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
        "Errors while metadata was applied, since the start; above 0 this node may be behind.",
        lambda: node.metadata_apply_errors,
    )
    gauge(
        "kafka_server_broker_metadata_metrics_ignored_static_voters",
        "1 where controller.quorum.voters is set and has no effect, as the log says who votes.",
        lambda: None if node.broker is None else int(raft.ignores_configured_voters()),
    )
    gauge(
        "kafka_server_metadataloader_currentmetadataversion",
        "Finalized level of metadata.version in the metadata here; -1 while it is unknown.",
        lambda: -1 if loader.image.features.metadata_version is None else loader.image.features.metadata_version,
    )
    gauge(
        "kafka_server_metadataloader_currentcontrollerid",
        "Node id of the active controller, as the loader of metadata knows; -1 while it is unknown.",
        lambda: -1 if loader.leader_id is None else loader.leader_id,
    )
    gauge(
        "kafka_server_metadataloader_handleloadsnapshotcount",
        "Metadata snapshots that this node has loaded since its start.",
        lambda: loader.snapshots_loaded,
    )
    metrics.family(
        "kafka_server_metadataloader_finalizedlevel",
        "Finalized level of each feature in the metadata here, and of kraft.version.",
        "featurename",
        lambda: _finalized(node),
    )
    for bound in ("minimum", "maximum"):
        metrics.family(
            f"kafka_server_node_metrics_{bound}_supported_level",
            f"The {bound} level of each feature that this node supports.",
            "feature_name",
            lambda bound=bound: [(it.name, it.min_level if bound == "minimum" else it.max_level) for it in SUPPORTED_FEATURES],  # type: ignore[misc]
        )
    gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedbytes",
        "Size of the newest metadata snapshot here, in bytes; 0 for none.",
        raft.latest_snapshot_bytes,
    )
    gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
        "Milliseconds since this node has written a metadata snapshot, or since its start.",
        lambda: clock.now_ms() - snapshotter.latest_ms,
    )
    gauge("kafka_server_raftmetrics_log_end_epoch", "Epoch of the last record of the metadata log here.", raft.log_end_epoch)


def _finalized(node: Node) -> Iterator[tuple[str, float]]:
    yield KRAFT_VERSION, node.raft.kraft_version()
    yield from sorted(node.loader.image.features.finalized.items())
