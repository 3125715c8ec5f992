"""Names under which other boards know our series.

Ours are those of Strimzi's rules for jmx_exporter. Confluent's rules write other names for the same MBeans, and its boards ask
for these; each such series is on the page a second time. What one of the two alone has is under its only name.

Source: the rules and boards of strimzi-kafka-operator and of jmx-monitoring-stacks; names are interface facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

_PREFIXES: Final = (
    ("kafka_server_raftmetrics_", "kafka_server_raft_metrics_"),
    ("kafka_server_raftchannelmetrics_", "kafka_server_raft_channel_metrics_"),
    ("kafka_server_socketservermetrics_", "kafka_server_socket_server_metrics_"),
    ("kafka_server_broker_metadata_metrics_", "kafka_server_brokermetadatametrics_"),
)
_METERS: Final = (
    "kafka_server_brokertopicmetrics_",
    "kafka_server_replicamanager_",
    "kafka_server_fetchsessioncache_",
    "kafka_controller_controllerstats_",
    "kafka_network_requestmetrics_",
)
"""MBeans whose meters are called `XPerSec`: here counters `x_total`, there series `xpersec` of no type."""
_NAMES: Final = {
    "kafka_network_socketserver_networkprocessoravgidle_percent": "kafka_network_socketserver_networkprocessoravgidlepercent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"
    ),
}
_UNTYPED: Final = "unknown"


def other_name(name: str, kind: str) -> tuple[str, str] | None:
    """The other name of a family and its type there; None where it has only one."""
    found = _NAMES.get(name)
    if found is not None:
        return found, _UNTYPED
    if kind == "counter" and name.startswith(_METERS):
        return f"{name}persec", _UNTYPED
    for ours, theirs in _PREFIXES:
        if name.startswith(ours):
            return theirs + name.removeprefix(ours), kind
    return None


def also_called(metric: Metric) -> Iterator[Metric]:
    """The same series under their other name, where they have one."""
    other = other_name(metric.name, metric.type)
    if other is not None:
        name, kind = other
        yield _renamed(metric, name, kind, ending="_total" if kind == _UNTYPED else "")


def _renamed(metric: Metric, name: str, kind: str, ending: str = "") -> Metric:
    """`ending`: what the names of the samples lose."""
    found = Metric(name, metric.documentation, kind)
    for sample in metric.samples:
        part = sample.name.removeprefix(metric.name).removesuffix(ending)
        found.samples.append(sample._replace(name=name + part))
    return found
