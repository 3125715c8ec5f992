"""The metrics pages of a cluster under load have what the panels of stock boards ask for, and what our own board asks for."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kraftlite.host.loop_lag import LoopLag
from kraftlite.node.metrics import register_gauges
from kraftlite.node.traffic_metrics import register_loop_lag, register_traffic
from kraftlite.obs.metrics import Metrics
from tests.harness.boards import DARK, ENOUGH, NOT_OURS, OVER_SOCKETS, Series, panels, series_of
from tests.harness.embedded import Embedded, embedded
from tests.harness.local import wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("boards")]

OURS = Path(__file__).parents[2] / "docker" / "observe" / "grafana" / "failover.json"
Samples = dict[str, list[tuple[str, dict[str, str]]]]
"""By name: the job of the node, and the labels."""


class Pages:
    """The page of each node, by its job."""

    def __init__(self, cluster: Embedded) -> None:
        self._cluster = cluster.cluster
        self._made = self._cluster._do(self._register)

    def _register(self) -> list[tuple[str, Metrics]]:
        nodes = self._cluster._nodes
        assert nodes is not None
        found = []
        for host in nodes.hosts.values():
            assert host.node is not None
            metrics = Metrics({})
            register_gauges(metrics, host.node, most_partitions=1_000)
            register_traffic(metrics, host.node)
            register_loop_lag(metrics, LoopLag())
            found.append(("kafka-broker" if host.node.broker is not None else "kafka-controller", metrics))
        return found

    def _read(self) -> Iterator[tuple[str, Metric]]:
        for job, metrics in self._made:
            page: bytes = self._cluster._do(metrics.render)
            yield from ((job, family) for family in text_string_to_metric_families(page.decode()))

    def samples(self) -> Samples:
        found: Samples = {}
        for job, family in self._read():
            for sample in family.samples:
                found.setdefault(sample.name, []).append((job, sample.labels))
        return found


def is_there(series: Series, samples: Samples) -> bool:
    return any(
        (series.job is None or job == series.job)
        and all(labels.get(label) if text is None else labels.get(label) == text for label, text in series.labels)
        for job, labels in samples.get(series.name, ())
    )


def dark(samples: Samples) -> set[str]:
    """The panels without data."""
    return {line for _, line in panels() if not any(is_there(series, samples) for series in series_of(line))}


def expected() -> set[str]:
    """The panels that may be dark."""
    return DARK | OVER_SOCKETS | {line for _, line in panels() if all(it.name.startswith(NOT_OURS) for it in series_of(line))}


@pytest.fixture(scope="module")
def loaded() -> Iterator[Pages]:
    """Under load of a producer, and of a consumer that commits and stays."""
    from confluent_kafka import Consumer

    with embedded(controllers=3, brokers=2) as cluster:
        pages = Pages(cluster)
        cluster.create_topic("events", partitions=1, replication=2)
        group = {"group.id": "boards", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **group})
        try:
            assert cluster.produce("events", [str(number) for number in range(200)]) == []
            consumer.subscribe(["events"])
            message = wait_for("a record for the group", lambda: consumer.poll(1.0))
            assert message.error() is None
            consumer.commit(message, asynchronous=False)
            yield pages
        finally:
            consumer.close()


def test_ce_30_tm_10_the_panels_of_stock_boards_have_data(loaded: Pages) -> None:
    def darker() -> set[str]:
        return dark(loaded.samples()) - expected()

    wait_for("all of them that should", lambda: not darker(), every_s=0.5)
    samples = loaded.samples()
    assert expected() == dark(samples), "what has data now is not to be listed as dark"
    assert sum(line not in expected() for _, line in panels()) >= ENOUGH


def test_c2_a_group_that_has_read_one_record_lags_by_the_others(loaded: Pages) -> None:
    def told(name: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels[label] for label in ("consumergroup", "topic", "partition")): sample.value
            for _, family in loaded._read()
            for sample in family.samples
            if sample.name == name
        }

    who = ("boards", "events", "0")
    wait_for("the commit is on a page", lambda: told("kafka_consumergroup_current_offset").get(who) == 1)
    wait_for("the lag", lambda: told("kafka_consumergroup_lag").get(who) == 199)


def test_c2_a_partition_that_can_be_written_to_has_been_so_all_the_time(loaded: Pages) -> None:
    """And is on the page before its first outage, so that a rate knows where it began."""
    found = {
        (sample.labels["topic"], sample.labels["partition"]): sample.value
        for _, family in loaded._read()
        for sample in family.samples
        if sample.name == "kraftlite_partition_unwritable_seconds_total"
    }
    assert found[("events", "0")] == 0
    assert "kafka_server_fetcherlagmetrics_consumerlag" in loaded.samples()


def queries(board: Any) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def test_ce_30_every_expression_of_our_board_asks_for_series_that_there_are(loaded: Pages) -> None:
    board = json.loads(OURS.read_text())
    samples = loaded.samples()
    wanted = {name for query in queries(board) for name in re.findall(r"\b(?:kafka|kraftlite|process)_[a-z0-9_]+", query)}
    assert len(queries(board)) >= 12
    assert wanted - samples.keys() == set()


def _differences(given: Any, read: Any, path: str = "") -> list[str]:
    if isinstance(given, dict) and isinstance(read, dict):
        lost = [f"{path}/{name} is not known" for name in given if name not in read]
        return [*lost, *(it for name in given if name in read for it in _differences(given[name], read[name], f"{path}/{name}"))]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        pairs = enumerate(zip(given, read, strict=True))
        return [it for at, (one, other) in pairs for it in _differences(one, other, f"{path}/{at}")]
    return [] if given == read else [f"{path} is {given!r}, read as {read!r}"]


def test_our_board_is_one_of_grafana() -> None:
    """By Grafana's own schema of boards: pip install grafana-foundation-sdk. What it does not know it would leave out."""
    schema = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed")
    importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder()

    def read(board: Any) -> Any:
        return json.loads(encoder.encode(schema.Dashboard.from_json(board)))

    board = json.loads(OURS.read_text())
    assert _differences(board, read(board)) == []
    wrong = {**board, "refresch": "5s", "panels": [{**board["panels"][0], "titel": "x"}, *board["panels"][1:]]}
    assert _differences(wrong, read(wrong)) == ["/refresch is not known", "/panels/0/titel is not known"], "the check can fail"
