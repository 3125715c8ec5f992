"""What the panels of stock boards ask Prometheus for: the names of series and the labels by which panels choose among them.

Facts of the boards, not the boards: `strimzi-kraft.json` and `strimzi-kafka.json` of strimzi-kafka-operator, and `kraft.json`,
`kafka-cluster-kraft.json` and `kafka-topics-kraft.json` of jmx-monitoring-stacks. A line is a panel: one of its series, or
several with ` | ` between, of which one suffices. `c:` and `b:` say that the panel looks at controllers (job kafka-controller) or
brokers (kafka-broker) alone, `rate:` that it asks for the rate of a counter. Labels without which no panel shows anything
(namespace, env, pod …) are those of docker/observe/prometheus.yml.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_RAFT, _RAFT_C = "kafka_server_raftmetrics_", "c:kafka_server_raft_metrics_"
_CHANNEL = "rate:kafka_server_raftchannelmetrics_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_REPLICAS = "kafka_server_replicamanager_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_"
_SOCKETS = "b:kafka_server_socketservermetrics_"
_GROUPS = "b:kafka_coordinator_group_groupmetadatamanager_numgroups"
_JVM = (
    "jvm_memory_bytes_used",
    "rate:jvm_gc_collection_seconds_sum",
    "rate:jvm_gc_collection_seconds_count",
    "jvm_threads_current",
)
_PARTS = ("requestqueuetimems", "localtimems", "remotetimems", "responsequeuetimems", "responsesendtimems")

BOARDS: Final[dict[str, tuple[str, ...]]] = {
    "strimzi-kraft": (
        "container_memory_usage_bytes",
        "rate:container_cpu_usage_seconds_total",
        "kubelet_volume_stats_available_bytes",
        "process_open_fds",
        *_JVM,
        *(f"{_RAFT}{it}" for it in ("append_records_rate", "fetch_records_rate", "commit_latency_avg", "current_state")),
        *(f"{_RAFT}{it}" for it in ("current_leader", "current_vote", "current_epoch", "high_watermark", "log_end_offset")),
        *(f"{_CHANNEL}{it}_total" for it in ("incoming_byte", "outgoing_byte", "request", "response")),
    ),
    "strimzi-kafka": (
        f"{_REPLICAS}leadercount",
        f"{_CONTROLLER}activecontrollercount",
        "rate:kafka_controller_controllerstats_uncleanleaderelections_total",
        f"{_REPLICAS}partitioncount",
        f"{_REPLICAS}underreplicatedpartitions",
        "kafka_cluster_partition_atminisr",
        "kafka_cluster_partition_underminisr",
        f"{_CONTROLLER}offlinepartitionscount",
        "container_memory_working_set_bytes",
        "rate:process_cpu_seconds_total",
        "kubelet_volume_stats_available_bytes",
        "process_open_fds",
        *_JVM,
        *(f"rate:{_TOPICS}{it}_total{{topic}}" for it in ("bytesin", "bytesout", "messagesin", "totalproducerequests")),
        f"rate:{_TOPICS}bytesin_total{{topic}} | rate:{_TOPICS}bytesout_total{{topic}}",
        f"rate:{_TOPICS}messagesin_total{{topic}}",
        f"rate:{_TOPICS}totalproducerequests_total{{topic}} | rate:{_TOPICS}failedproducerequests_total{{topic}}",
        f"rate:{_TOPICS}totalfetchrequests_total{{topic}} | rate:{_TOPICS}failedfetchrequests_total{{topic}}",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "rate:kafka_server_kafkaserver_linux_disk_write_bytes",
        "rate:kafka_server_kafkaserver_linux_disk_read_bytes",
        "kafka_server_socket_server_metrics_connection_count{listener}",
        "kafka_log_log_size{topic}",
    ),
    "confluent-kraft": (
        f"{_RAFT_C}high_watermark",
        f"c:{_CONTROLLER}activebrokercount",
        f"c:{_CONTROLLER}fencedbrokercount",
        f"c:{_CONTROLLER}activebrokercount",
        f"{_RAFT_C}current_leader",
        f"{_RAFT_C}current_epoch",
        f"c:{_CONTROLLER}metadataerrorcount",
        f"c:{_CONTROLLER}lastappliedrecordlagms",
        *(f"{_RAFT_C}{it}" for it in ("election_latency_max", "append_records_rate", "commit_latency_avg")),
        *(f"{_RAFT_C}fetch_records_rate",) * 2,
        *(f"c:kafka_controller_controllereventmanager_{it}" for it in ("eventqueuetimems", "eventqueueprocessingtimems")),
        "c:rate:process_cpu_seconds_total",
        "c:jvm_memory_used_bytes",
        "c:rate:jvm_gc_collection_seconds_sum",
    ),
    "confluent-cluster": (
        f"c:{_CONTROLLER}activecontrollercount",
        f"b:{_REPLICAS}leadercount",
        f"b:{_REPLICAS}partitioncount",
        f"c:{_CONTROLLER}preferredreplicaimbalancecount",
        "c:kafka_controller_controllerstats_uncleanleaderelectionspersec",
        f"b:{_REPLICAS}underreplicatedpartitions",
        "b:kafka_cluster_partition_underminisr",
        f"b:{_CONTROLLER}offlinepartitionscount",
        *(f"b:{_REPLICAS}straypartitions{it}" for it in ("count", "misclassifiedcount", "totalsize")),
        f"b:rate:{_TOPICS}bytesinpersec{{topic}} | b:rate:{_TOPICS}bytesoutpersec{{topic}}",
        f"b:{_REPLICAS}leadercount",
        f"b:rate:{_REQUESTS}requestspersec",
        *(f"b:rate:{_REQUESTS}requestspersec{{request={it}}}" for it in ("Produce", "FetchConsumer", "Fetch", "OffsetCommit")),
        f"b:rate:{_REQUESTS}requestspersec{{request=Metadata}}",
        f"b:rate:{_REQUESTS}errorspersec{{error}}",
        "b:rate:process_cpu_seconds_total",
        "b:jvm_memory_bytes_used",
        "b:rate:jvm_gc_collection_seconds_sum",
        "b:kafka_server_kafkaserver_linux_disk_read_bytes",
        "b:rate:kafka_server_kafkaserver_linux_disk_write_bytes",
        *(
            f"b:rate:{_TOPICS}{it}persec{{topic}}"
            for it in ("messagesin", "bytesin", "bytesout", "messagesin", "messagesin", "bytesout")
        ),
        "b:kafka_network_requestchannel_requestqueuesize",
        "b:kafka_network_requestchannel_responsequeuesize",
        "b:kafka_network_socketserver_networkprocessoravgidlepercent",
        "b:kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
        f"b:rate:{_REPLICAS}isrshrinkspersec",
        f"b:rate:{_REPLICAS}isrexpandspersec",
        *("b:kafka_log_log_size{topic}",) * 2,
        *(f"b:{_REQUESTS}{part}{{request={it},quantile}}" for it in ("Produce", "Fetch", "FetchFollower") for part in _PARTS),
        "b:kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "b:kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
        f"b:{_REQUESTS}requestqueuetimems{{request=Metadata,quantile}}",
        f"b:{_REQUESTS}totaltimems{{request=Metadata,quantile}}",
        f"b:rate:{_REQUESTS}requestspersec{{request=Metadata}}",
        "b:kafka_server_replicafetchermanager_minfetchrate{clientid=Replica}",
        "b:kafka_server_replicafetchermanager_maxlag{clientid=Replica}",
        *(f"{_SOCKETS}connection_{it}" for it in ("count", "creation_rate", "close_rate") for _ in range(2)),
        "b:kafka_network_acceptor_acceptorblockedpercent",
        *(f"{_SOCKETS}connections{{client_software_name,client_software_version}}",) * 2,
        _GROUPS,
        " | ".join(f"{_GROUPS}{it}" for it in ("stable", "preparingrebalance", "dead", "completingrebalance", "empty")),
        f"b:{_TOPICS}producemessageconversionspersec",
        f"b:{_TOPICS}fetchmessageconversionspersec",
        "kafka_log_log_tiersize",
        *(f"b:kafka_tier_tasks_archive_tierarchiver_{it}" for it in ("bytespersec", "retriespersec", "totallag")),
        "b:kafka_tier_tasks_tiertasks_numpartitionsinerror",
        "b:kafka_log_log_tiersize | b:kafka_log_log_size",
    ),
    "confluent-topics": (
        f"c:{_CONTROLLER}globaltopiccount",
        f"b:rate:{_TOPICS}messagesinpersec{{topic}}",
        "b:kafka_log_log_size{topic}",
        f"c:{_CONTROLLER}globalpartitioncount",
        *(f"b:rate:{_TOPICS}{it}persec{{topic}}" for it in ("bytesin", "bytesout", "totalproducerequests", "totalfetchrequests")),
        "b:kafka_log_log_logstartoffset{topic}",
        "b:kafka_log_log_logendoffset{topic}",
        "b:kafka_log_log_tiersize{topic}",
        "b:kafka_log_log_tiersize{topic} | b:kafka_log_log_size{topic}",
    ),
}

ENOUGH: Final = 126
"""The panels that have data under load, of nodes in one process."""
OVER_SOCKETS: Final = frozenset(f"{_CHANNEL}{it}_byte_total" for it in ("incoming", "outgoing"))
"""The two more that nodes with a network between them have (`tests/cluster/test_telemetry.py`)."""
NOT_OURS: Final = ("jvm_", "container_", "kubelet_", "kafka_tier_", "kafka_log_log_tiersize")
"""A virtual machine for Java, Kubernetes and tiered storage, which a node does not have."""
DARK: Final = frozenset(
    {
        f"b:{_CONTROLLER}offlinepartitionscount",
        *(f"b:{_REPLICAS}straypartitions{it}" for it in ("count", "misclassifiedcount", "totalsize")),
        *(f"b:{_REQUESTS}{it}{{request=FetchFollower,quantile}}" for it in _PARTS if it not in ("localtimems", "remotetimems")),
        "b:kafka_network_acceptor_acceptorblockedpercent",
        f"b:{_TOPICS}producemessageconversionspersec",
        f"b:{_TOPICS}fetchmessageconversionspersec",
    }
)
"""The other panels that stay dark. The set may only shrink."""


@dataclass(frozen=True, slots=True)
class Series:
    """A choice of series. `labels`: a text that a label must have, or None where it must be there."""

    name: str
    labels: tuple[tuple[str, str | None], ...]
    job: str | None
    is_rate: bool

    @property
    def query(self) -> str:
        """As PromQL."""
        chosen = [f'{label}!=""' if text is None else f'{label}="{text}"' for label, text in self.labels]
        chosen += [] if self.job is None else [f'job="{self.job}"']
        found = f"{self.name}{{{','.join(chosen)}}}"
        return f"rate({found}[1m])" if self.is_rate else found


def panels() -> Iterator[tuple[str, str]]:
    """Each panel: its board, and its line."""
    return ((board, line) for board, lines in BOARDS.items() for line in lines)


def series_of(line: str) -> list[Series]:
    return [_parse(text) for text in line.split(" | ")]


def _parse(text: str) -> Series:
    job = {"c:": "kafka-controller", "b:": "kafka-broker"}.get(text[:2])
    rest = text if job is None else text[2:]
    name, _, labels = rest.removeprefix("rate:").rstrip("}").partition("{")
    chosen = [(it.partition("=")[0], it.partition("=")[2] or None) for it in labels.split(",") if it]
    return Series(name, tuple(chosen), job, rest.startswith("rate:"))
