"""`kraftlite metrics list`: its table is what nodes register, and its names are those of the page."""

from __future__ import annotations

import json

from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from kraftlite.cli.main import cli
from kraftlite.cli.metrics_list import series
from kraftlite.obs.metrics import Metrics
from tests.tidy.series import TABLE, table


def listed(*args: str) -> Result:
    return CliRunner().invoke(cli, ["metrics", "list", *args])


def test_c2_the_table_is_what_nodes_have() -> None:
    assert TABLE.read_text() == table(), "python -m tests.tidy.series --write"


def test_c2_each_series_is_told_once_with_its_type_and_words() -> None:
    found = series()
    assert len(found) > 150
    names = [name for row in found for name in (row["name"], row["other"]) if name is not None]
    assert len(set(names)) == len(names)
    for row in found:
        assert row["type"] in ("counter", "gauge", "summary", "histogram", "unknown")
        assert set(row["nodes"]) <= {"broker", "controller"} and row["nodes"] and row["help"].endswith(".")


def test_c2_the_names_are_those_of_a_page() -> None:
    metrics = Metrics({})
    metrics.counter("kafka_server_replicamanager_things", "Things that there were.", lambda: 1)
    metrics.gauge("kafka_server_raftmetrics_things", "Things that there are.", lambda: 1)
    page = {it.name for family in text_string_to_metric_families(metrics.render().decode()) for it in family.samples}
    assert {"kafka_server_replicamanager_things_total", "kafka_server_replicamanager_thingspersec"} <= page
    assert {"kafka_server_raftmetrics_things", "kafka_server_raft_metrics_things"} <= page
    found = {row["name"]: row["other"] for row in series()}
    assert found["kafka_server_replicamanager_isrshrinks_total"] == "kafka_server_replicamanager_isrshrinkspersec"
    assert found["kafka_server_raftmetrics_current_epoch"] == "kafka_server_raft_metrics_current_epoch"
    assert found["kafka_server_raftchannelmetrics_request_total"] == "kafka_server_raft_channel_metrics_request_total"


def test_c2_parts_of_names_choose() -> None:
    found = json.loads(listed("loop_lag", "consumergroup", "-o", "json").output)
    assert {row["name"] for row in found} == {
        "kraftlite_loop_lag_seconds",
        "kafka_consumergroup_lag",
        "kafka_consumergroup_current_offset",
    }
    assert "kraftlite_partition_unwritable_seconds_total" in listed().output
    refused = listed("nothing-of-the-kind")
    assert refused.exit_code == 1 and "no series contains nothing-of-the-kind" in refused.output
