"""A cluster that has its files is given more values: what it was given before stays, and what no node accepts changes nothing."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest

from kraftlite.config.server import load as load_config
from kraftlite.local import process
from kraftlite.local.cluster import check_config
from kraftlite.local.layout import added_to_files, plan, with_metrics_ports, write_files
from kraftlite.local.state import LocalCluster, LocalError


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    monkeypatch.setitem(tempfile.__dict__, "tempdir", str(tmp_path))
    given = {"num.partitions": "7", "kraftlite.metrics.port": "0"}
    made = with_metrics_ports(plan(tmp_path / "cluster", controllers=1, brokers=1, combined=False), given)
    write_files(made, given)
    return made


def files(cluster: LocalCluster) -> list[str]:
    return [node.config_path.read_text() for node in cluster.nodes]


def test_values_that_no_node_accepts_change_nothing(cluster: LocalCluster) -> None:
    before = files(cluster)
    wrong = {"log.retention.hours": "abc", "num.partitions": "8"}
    with pytest.raises(LocalError, match=r"log\.retention\.hours=abc: allowed is"), added_to_files(cluster, wrong):
        assert files(cluster) != before
        check_config(cluster)
    assert files(cluster) == before
    check_config(cluster)


def test_values_that_were_given_before_stay(cluster: LocalCluster) -> None:
    broker = cluster.nodes[1]
    with broker.config_path.open("a") as file:
        file.write("log.segment.bytes=2097152\n")
    with added_to_files(cluster, {"log.retention.hours": "5", "num.partitions": "8"}):
        check_config(cluster)
    for node in cluster.nodes:
        config = load_config(node.config_path)
        assert config.get_int("log.retention.hours") == 5
        assert config.get_int("num.partitions") == 8, "the newer one counts"
        assert config.get_int("kraftlite.metrics.port") == int(str(node.metrics).rpartition(":")[2])
    assert load_config(broker.config_path).get_int("log.segment.bytes") == 2_097_152, "what somebody wrote into the file, too"


def test_a_file_that_is_gone_is_made_anew(cluster: LocalCluster) -> None:
    cluster.nodes[0].config_path.unlink()
    with added_to_files(cluster, {"log.retention.hours": "5"}):
        check_config(cluster)
    assert load_config(cluster.nodes[0].config_path).node_id == cluster.nodes[0].id


def test_an_interruption_comes_when_the_block_is_over() -> None:
    """`up` writes down there which processes it has started: without that nobody could stop them."""
    done, before = [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), process.uninterrupted():
        signal.raise_signal(signal.SIGINT)
        done.append("first")
        signal.raise_signal(signal.SIGINT)
        done.append("all")
    assert done == ["first", "all"]
    assert signal.getsignal(signal.SIGINT) is before
