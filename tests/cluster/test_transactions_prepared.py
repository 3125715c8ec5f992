"""Transactions whose coordinator dies when the outcome is decided and not yet told to every partition, on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kraftlite.coordinator.core.placement import partition_for
from tests.cluster.test_transactions import STEP_S, described, not_open, producer, read, write
from tests.harness.local import Cluster, running, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

STATE = "__transaction_state"
PARTITIONS = 6
CONFIG = {
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
"""Each partition of the coordinators' log leaves out one of three brokers, which can stand still without holding it up."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(controllers=1, brokers=3, config=CONFIG) as found:
        yield found


@pytest.mark.parametrize(("outcome", "killed"), [("commit", "the coordinator"), ("abort", "every broker")])
def test_tx_60_the_coordinator_is_killed_between_prepare_and_complete(cluster: Cluster, outcome: str, killed: str) -> None:
    """The next one tells the outcome that was decided to the leader that had stood still, and to nobody another one."""
    name = f"prepared-{outcome}-{killed.split()[-1]}"
    made = producer(cluster, name)
    coordinators = cluster.partitions(STATE)[partition_for(name, PARTITIONS)].replicas
    (still,) = set(cluster.brokers) - set(coordinators)
    first = described(cluster, name).coordinator
    second = next(it for it in coordinators if it != first)
    cluster.create_topic(name, assignment=[[still], [second]])
    write(made, name, "a", "b")

    cluster.pause(still)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(made.commit_transaction if outcome == "commit" else made.abort_transaction, STEP_S)
        wait_for("it is decided", lambda: described(cluster, name).state.startswith("Prepare"))
        dead = (first,) if killed == "the coordinator" else tuple(cluster.brokers)
        cluster.kill(*dead)
        if killed == "the coordinator":
            wait_for("another broker has the transaction", lambda: described(cluster, name).coordinator == second)
            assert described(cluster, name).state.startswith("Prepare"), "the partition that stands still has not been told"
            cluster.resume(still)
        cluster.restart(*dead)
        ended.result(STEP_S)
    wait_for("the outcome is everywhere", lambda: not_open(cluster, name))
    assert described(cluster, name).state == ("CompleteCommit" if outcome == "commit" else "CompleteAbort")
    assert read(cluster, name) == (["a", "b"] if outcome == "commit" else [])

    write(made, name, "c", "d")
    made.commit_transaction(STEP_S)
    expected = ["a", "c", "b", "d"] if outcome == "commit" else ["c", "d"]
    wait_for("its producer goes on", lambda: read(cluster, name) == expected)
    cluster.wait_brokers()
