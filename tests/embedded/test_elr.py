"""Brokers end one after another, cleanly or not: who may lead next (EL-05 to EL-12), as a user sees it."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from kraftlite.cli.main import cli
from tests.harness.local import Cluster, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]

REPLICATED = {"min.insync.replicas": "2"}
_LINE = re.compile(r"Leader: (\S+)\tReplicas: \S*\tIsr: (\S*)\tElr: (\S*)\tLastKnownElr: (\S*)")


def sets(cluster: Cluster, topic: str) -> tuple[str, str, str, str]:
    """Leader, ISR, ELR and last known ELR of the one partition, as `kafka-topics --describe` prints them."""
    arguments = ["compat", "kafka-topics", "--describe", "--topic", topic, "--bootstrap-server", cluster.bootstrap]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    found = _LINE.search(result.stdout)
    assert found is not None, result.output
    leader, isr, elr, last = found.groups()
    return leader, isr, elr, last


def wait_sets(cluster: Cluster, topic: str, leader: object, isr: str, elr: set[int], last: str) -> None:
    def as_wanted() -> bool:
        found = sets(cluster, topic)
        return (found[0], found[1], found[3]) == (str(leader), isr, last) and {int(it) for it in found[2].split(",") if it} == elr

    wait_for(f"leader {leader}, ISR {isr}, ELR {elr}, last known {last}", as_wanted)


def test_el_05_el_06_el_07_el_10_clean_stops_lose_no_candidate(cluster: Cluster, topic: str) -> None:
    """EL-05, EL-06, EL-07, EL-10: the ISR empties, and an eligible replica that comes back first leads with all there is."""
    first, second, third = cluster.brokers[:3]
    cluster.create_topic(topic, assignment=[[first, second, third]], config=REPLICATED)
    assert cluster.produce(topic, ["a"]) == []
    for broker in (third, second):
        cluster.terminate(broker)
        cluster.wait_stopped(broker)
    wait_sets(cluster, topic, first, str(first), {second}, "")
    cluster.terminate(first)
    cluster.wait_stopped(first)
    cluster.restart(third)
    wait_sets(cluster, topic, "none", "", {first, second}, str(first))
    cluster.restart(second)
    assert cluster.wait_leader(topic) == second
    cluster.restart(first)
    cluster.wait_whole(topic)
    wait_sets(cluster, topic, second, f"{first},{second},{third}", set(), "")
    assert cluster.consume(topic, at_least=1) == ["a"]


def test_el_08_el_10_after_unclean_stops_only_the_last_leader_leads(cluster: Cluster, topic: str) -> None:
    """EL-08, EL-10, EL-12."""
    first, second, third = cluster.brokers[:3]
    cluster.create_topic(topic, assignment=[[first, second, third]], config=REPLICATED)
    assert cluster.produce(topic, ["a"]) == []
    cluster.kill(third)
    cluster.wait_isr(topic, {first, second})
    cluster.kill(second)
    wait_sets(cluster, topic, first, str(first), {second}, "")
    cluster.kill(first)
    cluster.restart(third)
    wait_sets(cluster, topic, "none", "", {first, second}, str(first))
    cluster.restart(second)
    wait_sets(cluster, topic, "none", "", {first}, str(first))
    cluster.restart(first)
    assert cluster.wait_leader(topic) == first
    cluster.wait_whole(topic)
    wait_sets(cluster, topic, first, f"{first},{second},{third}", set(), "")
    assert cluster.consume(topic, at_least=1) == ["a"]


def test_el_03_el_04_the_minimum_of_the_cluster(cluster: Cluster, topic: str) -> None:
    """EL-03, EL-04."""
    first, second = cluster.brokers[:2]
    cluster.create_topic(topic, assignment=[[first, second]], config=REPLICATED)
    cluster.kill(second)
    wait_sets(cluster, topic, first, str(first), {second}, "")
    alter = ["compat", "kafka-configs", "--alter", "--bootstrap-server", cluster.bootstrap]
    broker = ["--entity-type", "brokers", "--entity-name", str(first), "--add-config", "min.insync.replicas=2"]
    refused = CliRunner().invoke(cli, [*alter, *broker], catch_exceptions=False)
    assert refused.exit_code == 1
    assert "Broker-level min.insync.replicas cannot be altered while ELR is enabled." in refused.output
    topics = ["--entity-type", "topics", "--entity-name", topic, "--add-config", "min.insync.replicas=1"]
    assert CliRunner().invoke(cli, [*alter, *topics], catch_exceptions=False).exit_code == 0
    wait_sets(cluster, topic, first, str(first), set(), "")
    cluster.restart(second)
    cluster.wait_whole(topic)
