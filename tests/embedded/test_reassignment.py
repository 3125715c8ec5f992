"""Partitions move to other brokers while records flow and brokers die: nothing acknowledged is lost (CM-41, CM-42, CM-46)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlite.client.admin import alter_reassignments, list_reassignments
from kraftlite.local.client import cluster_at
from kraftlite.model.errors import ErrorCode
from tests.harness.embedded import embedded
from tests.harness.local import Cluster, wait_for
from tests.harness.writer import Writer

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("embedded")]


@pytest.fixture(scope="module")
def six() -> Iterator[Cluster]:
    with embedded(controllers=1, brokers=6) as cluster:
        yield cluster


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    ((code, message),) = alter_reassignments(cluster_at(cluster.bootstrap), {(topic, 0): replicas}).values()
    assert code is ErrorCode.NONE, message


def wait_moved(cluster: Cluster, topic: str) -> None:
    client = cluster_at(cluster.bootstrap)
    wait_for(f"{topic} has moved", lambda: not list_reassignments(client, [(topic, 0)]))


def test_cm_42_all_replicas_move_to_other_brokers_under_load(six: Cluster, topic: str) -> None:
    old, new = six.brokers[:3], six.brokers[3:]
    six.create_topic(topic, assignment=[old], config={"min.insync.replicas": "2"})
    six.wait_leader(topic)
    with Writer(six, topic) as writer:
        writer.wait_more(30)
        move(six, topic, new)
        wait_moved(six, topic)
        assert six.wait_leader(topic, not_in=tuple(old)) in new
        six.wait_isr(topic, set(new))
        writer.wait_more(30)
        move(six, topic, [*old[:2], new[2]])
        wait_moved(six, topic)
        six.wait_isr(topic, {*old[:2], new[2]})
        writer.wait_more(30)
    writer.verify(six)


def test_cm_42_the_leader_dies_during_the_move(six: Cluster, topic: str) -> None:
    old, new = six.brokers[:3], six.brokers[3:]
    six.create_topic(topic, assignment=[old], config={"min.insync.replicas": "2"})
    leader = six.wait_leader(topic)
    with Writer(six, topic) as writer:
        writer.wait_more(30)
        six.pause(new[0])  # it cannot catch up, so the move cannot end
        move(six, topic, new)
        six.kill(leader)
        six.wait_leader(topic, not_in=(leader,))
        writer.wait_more(30)
        six.resume(new[0])
        wait_moved(six, topic)
        six.wait_isr(topic, set(new))
        six.restart(leader)
        writer.wait_more(30)
    writer.verify(six)
