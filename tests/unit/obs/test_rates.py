"""Rates of counts, and the names that other boards know."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kraftlite.obs.dialects import also_called
from kraftlite.obs.rates import Rate


def test_a_rate_looks_back_half_a_minute() -> None:
    now = [1_000]
    rate = Rate(lambda: now[0])
    assert rate.of(100) is None, "nobody knows yet"
    now[0] += 10_000
    assert rate.of(150) == 5.0
    now[0] += 25_000
    assert rate.of(400) == 10.0, "since the look before the last one: the first one is longer ago than half a minute"
    now[0] += 60_000
    assert rate.of(1_000) == 10.0, "since the last look, which is long ago"
    assert rate.of(1_001) is None, "no time has gone by since"
    now[0] += 1_000
    assert rate.of(5) is None, "a count that begins anew"
    now[0] += 1_000
    assert rate.of(6) == 1.0


def test_series_have_the_names_of_both_dialects() -> None:
    meter = CounterMetricFamily("kafka_server_replicamanager_isrshrinks", "Shrinks of the ISR.", labels=["a"])
    meter.add_metric(["b"], 3)
    (other,) = also_called(meter)
    assert other.type == "unknown"
    assert [(it.name, it.labels, it.value) for it in other.samples if "created" not in it.name] == [
        ("kafka_server_replicamanager_isrshrinkspersec", {"a": "b"}, 3)
    ]
    (raft,) = also_called(GaugeMetricFamily("kafka_server_raftmetrics_current_epoch", "An epoch.", value=2))
    assert (raft.name, raft.samples[0].name, raft.samples[0].value) == (*("kafka_server_raft_metrics_current_epoch",) * 2, 2)
    assert list(also_called(GaugeMetricFamily("kraftlite_build_info", "One.", value=1))) == []
