"""Every row of the table of deaths of the exactly-once sink, with the real client on a real cluster, and without Spark.

The rows are those of docs/spec/spark-sink.md. The judge is a reader of committed records.

Source: SX-01 to SX-04.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from kraftlite.client.admin import alter_configs
from kraftlite.client.cluster import ClusterClient
from kraftlite.client.errors import ClientError
from kraftlite.client.transactions import list_transactions
from kraftlite.exactly_once.protocol_core import CommitFailed, Overtaken, SplitChanged, TooLate
from kraftlite.exactly_once.reading import as_record
from kraftlite.exactly_once.records import DECISIONS_PARTITION, STATE_TOPIC, Decision, driver_id
from kraftlite.model.messages.choices import AlterConfigOp, ConfigResourceType
from kraftlite.model.topic_partition import TopicPartition
from kraftlite.testing import SyncCluster
from tests.harness.exactly_once import Died, Driver, Dying, values
from tests.harness.spark_runs import run_all_again

pytestmark = [pytest.mark.clients]

_NUMBERS = count(1)
SPLIT = (("a", "b", "c"), ("d", "e"), ("f",))
ROWS = [row for part in SPLIT for row in part]
COMMIT_CALLS = ["take_over", "last_decision", "record", "end", "end", "end"]


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[SyncCluster]:
    config = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
        "log.cleaner.backoff.ms": 100,
        "transaction.max.timeout.ms": 600_000,
    }
    with SyncCluster(controllers=1, brokers=3, config=config) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: SyncCluster) -> Iterator[SyncCluster]:
    yield shared_cluster
    run_all_again(shared_cluster)


@pytest.fixture
def driver(cluster: SyncCluster) -> Callable[..., Driver]:
    """Drivers of one query, which write to one topic."""
    number = next(_NUMBERS)
    cluster.create_topic(f"out-{number}", 2)

    def make(**more: int) -> Driver:
        return Driver(cluster.bootstrap_servers, f"out-{number}", f"q{number}", run=f"r{next(_NUMBERS)}", **more)

    return make


def seen(driver: Driver) -> list[str]:
    return values(",".join(driver.client.settings.bootstrap), driver.topic)


# --- tasks


def test_sx_03_row_1_and_2_an_attempt_that_dies_leaves_nothing(driver: Callable[..., Driver]) -> None:
    """While it writes, and when everything is written and nobody knows."""
    one = driver()
    half = one.staging(0)
    one.write(half, half.begin(), SPLIT[0][:1])
    one.stage(1, SPLIT[1])
    assert seen(one) == []
    again = driver()
    again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS


def test_sx_03_row_3_a_twin_that_comes_later_costs_a_run(driver: Callable[..., Driver]) -> None:
    one = driver()
    staged = one.stage_all(SPLIT)
    driver().stage(1, SPLIT[1])
    with pytest.raises(
        CommitFailed, match=r"what was staged by task 1 cannot be committed any more.*another attempt of the task"
    ):
        one.commit(staged)
    assert seen(one) == ["a", "b", "c", "f"], "what nobody has fenced is committed, and kept"
    again = driver()
    again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS


def test_sx_03_row_4_a_task_that_is_fenced_writes_nothing(driver: Callable[..., Driver]) -> None:
    one = driver()
    late = one.staging(1)
    producer = late.begin()
    again = driver()
    staged = again.stage_all(SPLIT)
    with pytest.raises(ClientError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        one.write(late, producer, ["zombie"])
    again.commit(staged)
    with pytest.raises(ClientError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        one.write(late, producer, ["zombie"])
    assert seen(again) == ROWS


def test_sx_03_row_16_an_attempt_that_comes_behind_the_commit_opens_nothing(
    cluster: SyncCluster, driver: Callable[..., Driver]
) -> None:
    """It would hold readers of committed records back until its timeout: nobody ends it. Be it of the run that has committed, or
    of one that was there before, and whose driver is dead."""
    dead = driver()
    mine = driver()
    mine.commit(mine.stage_all(SPLIT))
    for late in (mine, dead):
        with pytest.raises(TooLate, match=f"batch 0 of {mine.query}: it has been decided since this run of it began, .* task 1"):
            late.staging(1).begin()
    with ClusterClient(mine.client.settings) as client:
        found = list_transactions(client, states=("Ongoing",))
    assert [it for it in found if mine.query in it.transactional_id] == []
    assert values(cluster.bootstrap_servers, mine.topic) == ROWS
    again = driver()
    again.commit(again.stage_all(SPLIT))  # a decision that is older than the run does not stop it
    following = driver(batch=1)
    following.commit(following.stage_all([["x"]]))
    for late in (dead, again):
        with pytest.raises(TooLate):
            late.staging(1).begin()  # nor does a later batch let it pass


def test_sx_03_row_16_a_decision_that_was_aborted_stops_nobody(driver: Callable[..., Driver]) -> None:
    """Its driver was fenced before it had committed it, and the run that fenced it goes on, whose tasks may yet begin."""
    one, again = driver(), driver()
    producer = one.cluster.take_over(driver_id("p", one.query))
    entries = tuple(one.stage_all(SPLIT))
    decision = Decision(query=one.query, batch=0, run=one.run, entries=entries)
    one.cluster._write(driver_id("p", one.query), producer, TopicPartition(STATE_TOPIC, DECISIONS_PARTITION), as_record(decision))
    with pytest.raises(TooLate):
        again.staging(0).begin()  # it is under way, and may be committed
    again.cluster.take_over(driver_id("p", one.query))
    again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS


def test_sx_03_row_16_a_twin_beside_a_commit_that_keeps_everything(cluster: SyncCluster, driver: Callable[..., Driver]) -> None:
    """Nothing of its run is needed any more: neither what it has open when the batch is healed, nor what it begins behind it."""
    one = driver()
    one.commit(one.stage_all(SPLIT))
    again = driver()
    staged = again.stage_all(SPLIT)
    twin = again.staging(1)
    producer = twin.begin()
    again.write(twin, producer, ["twin"])
    again.commit(staged)
    with pytest.raises(ClientError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        again.write(twin, producer, ["twin"])
    for task in range(2):
        with pytest.raises(TooLate):
            again.staging(task).begin()
    with ClusterClient(again.client.settings) as client:
        found = list_transactions(client, states=("Ongoing",))
    assert [it for it in found if again.query in it.transactional_id] == []
    assert values(cluster.bootstrap_servers, again.topic) == ROWS


# --- drivers


@pytest.mark.parametrize(("at", "after"), [(0, False), *((at, True) for at in range(len(COMMIT_CALLS)))])
def test_sx_03_rows_5_to_9_a_driver_dies_at_every_call(driver: Callable[..., Driver], at: int, after: bool) -> None:
    """Before the decision, with its answer lost, behind it, and between the ends: nobody sees a row that is not decided, and the
    batch is complete when it has run again. It is written by that run, or was kept."""
    one = driver()
    dying = Dying(one.cluster, at, after=after)
    with pytest.raises(Died):
        one.commit(one.stage_all(SPLIT), dying)
    assert dying.calls == COMMIT_CALLS[: at + 1]
    ended = [rows for index, rows in enumerate(SPLIT) if at + after > 3 + index]
    assert seen(one) == [row for rows in ended for row in rows]
    again = driver()
    decision = again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS
    assert decision is not None and [it.task for it in decision.entries] == [0, 1, 2]
    once_more = driver()
    assert once_more.commit(once_more.stage_all(SPLIT)) is not None, "the commit log of Spark was lost"
    assert seen(once_more) == ROWS
    following = driver(batch=1)
    following.commit(following.stage_all((("x",),)))
    assert seen(following) == [*ROWS, "x"]
    old = driver()
    with pytest.raises(Overtaken, match="batch 1 has been decided already"):
        old.commit(old.stage_all(SPLIT))
    assert seen(again) == [*ROWS, "x"]


def test_sx_03_row_10_a_commit_that_is_under_way_is_waited_for(cluster: SyncCluster, driver: Callable[..., Driver]) -> None:
    """The leader of a partition is away when its task's transaction is committed: the next run stages when it is back, and keeps
    what was committed."""
    one = driver(partitions=1)
    name = one.staging(0).transactional_id
    one.staging(0).begin()
    coordinator = cluster.transaction_coordinator(name)
    leader = next(it for it in sorted(cluster.brokers) if it != coordinator)
    one.topic = f"{one.topic}-alone"
    cluster.create_topic(one.topic, config={"min.insync.replicas": 1}, assignment=[[leader]])
    one.commit([one.stage(0, SPLIT[0])], Dying(one.cluster, 3, then=lambda _name: cluster.kill(leader)))
    cluster.wait_for_transaction(name, state="PrepareCommit")
    again = driver(partitions=1)
    again.topic = one.topic
    with ThreadPoolExecutor(1) as pool:
        staged = pool.submit(again.stage, 0, SPLIT[0])
        cluster.wait_for_transaction(name, state="PrepareCommit")
        assert not staged.done()
        cluster.restart(leader)
        again.commit([staged.result(60)])
    assert seen(again) == sorted(SPLIT[0])


def test_sx_04_row_11_a_batch_that_takes_longer_than_its_timeout(cluster: SyncCluster, driver: Callable[..., Driver]) -> None:
    one = driver(timeout_ms=2_000)
    staged = one.stage_all(SPLIT)
    for entry in staged:
        cluster.wait_for_transaction(entry.transactional_id, state="CompleteAbort")
    with pytest.raises(CommitFailed, match=r"longer than kafka\.transaction\.timeout\.ms"):
        one.commit(staged)
    assert seen(one) == []
    again = driver()
    again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS


@pytest.mark.parametrize("at", range(2, len(COMMIT_CALLS)))
def test_sx_03_row_12_an_old_driver_goes_on_beside_the_new_one(driver: Callable[..., Driver], at: int) -> None:
    """It stops before a call, the new one does the whole batch, or a part of it, and the old one goes on."""
    old = driver()
    staged = old.stage_all(SPLIT)

    def between(_name: str) -> None:
        new = driver()
        new.commit(new.stage_all(SPLIT))
        assert seen(new) == ROWS

    with pytest.raises((CommitFailed, ClientError)):
        old.commit(staged, Dying(old.cluster, at, then=between))
    assert seen(old) == ROWS
    again = driver()
    again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS


@pytest.mark.parametrize("who", ["driver's coordinator", "task's coordinator", "decisions", "rows"])
def test_sx_03_row_13_a_broker_dies(cluster: SyncCluster, driver: Callable[..., Driver], who: str) -> None:
    """Before the decision is recorded."""
    one = driver()
    staged = one.stage_all(SPLIT)

    def victim() -> int:
        if who == "decisions":
            return cluster.leader(STATE_TOPIC, DECISIONS_PARTITION) or 0
        if who == "rows":
            return cluster.leader(one.topic, 0) or 0
        name = driver_id("p", one.query) if who.startswith("driver") else staged[0].transactional_id
        return cluster.transaction_coordinator(name) or 0

    one.commit(staged, Dying(one.cluster, 2, then=lambda _name: cluster.kill(victim())))
    assert seen(one) == ROWS


@pytest.mark.parametrize(
    "other", [(("a", "b"), ("c", "d"), ("e", "f")), (tuple(ROWS),), ((), *SPLIT)], ids=["moved", "one task", "shifted"]
)
def test_sx_03_row_14_a_split_that_changed_is_refused(driver: Callable[..., Driver], other: tuple[tuple[str, ...], ...]) -> None:
    one = driver()
    with pytest.raises(Died):
        one.commit(one.stage_all(SPLIT), Dying(one.cluster, 4))
    assert seen(one) == ["a", "b", "c"]
    for _ in range(2):
        changed = driver()
        staged = [changed.stage(task, rows) for task, rows in enumerate(other) if rows]
        with pytest.raises(SplitChanged, match=r"partly written, and its rows are others now, or split into tasks.*\(task 0\)"):
            changed.commit(staged)
        assert seen(changed) == ["a", "b", "c"]
    again = driver()
    again.commit(again.stage_all(SPLIT))
    assert seen(again) == ROWS


def test_sx_03_row_15_another_query_begins_anew(driver: Callable[..., Driver]) -> None:
    one = driver()
    one.commit(one.stage_all(SPLIT))
    other = driver()
    other.query += "-other"
    other.commit(other.stage_all(SPLIT))
    assert seen(one) == sorted([*ROWS, *ROWS])


def test_sx_01_a_batch_without_rows(driver: Callable[..., Driver]) -> None:
    one = driver()
    assert one.commit([]) is None
    one = driver(batch=1)
    one.commit(one.stage_all(SPLIT))
    assert seen(one) == ROWS
    with pytest.raises(SplitChanged):
        driver(batch=1).commit([])
    assert driver(batch=2).commit([]) is None


# --- the state topic, and what brokers refuse


def test_sx_01_the_state_topic_keeps_what_it_is_for(cluster: SyncCluster, driver: Callable[..., Driver]) -> None:
    one = driver()
    one.commit(one.stage_all(SPLIT))
    for name, config, partitions, said in (
        ("deleting", {"cleanup.policy": "delete"}, 9, "has cleanup.policy=delete: compact is needed"),
        ("unclean", {"cleanup.policy": "compact", "unclean.leader.election.enable": True}, 9, "false is needed"),
        ("single", {"cleanup.policy": "compact"}, 1, "has 1 partitions: at least 2 are needed"),
    ):
        name = f"{name}-{next(_NUMBERS)}"
        cluster.create_topic(name, partitions, config=config)
        other = driver(batch=5)
        other.cluster.topic = name
        with pytest.raises(ClientError, match=f"the sink's state topic {name} .*{said}.* Delete it if there is nothing in it"):
            other.stage(0, ["x"])


def test_sx_02_brokers_that_are_told_not_to_verify_are_refused(cluster: SyncCluster, driver: Callable[..., Driver]) -> None:
    one = driver()
    with ClusterClient(one.client.settings) as admin:
        name = "transaction.partition.verification.enable"
        alter_configs(admin, ConfigResourceType.BROKER, "", [(name, AlterConfigOp.SET, "false")])
        try:
            with pytest.raises(ClientError, match=rf"broker \d has {name}=false: .* exactly once needs true"):
                _until_refused(driver)
        finally:
            alter_configs(admin, ConfigResourceType.BROKER, "", [(name, AlterConfigOp.DELETE, None)])


def _until_refused(driver: Callable[..., Driver]) -> None:
    """Brokers learn of a configuration a little later than the controller; a client looks once."""
    for batch in range(100):
        driver(batch=batch).stage(0, ["x"])


def test_sx_01_a_timeout_that_the_brokers_do_not_allow(driver: Callable[..., Driver]) -> None:
    one = driver(timeout_ms=600_001)
    with pytest.raises(ClientError, match=r"kafka.transaction.timeout.ms=600001: the brokers allow at most 600000"):
        one.stage(0, ["x"])
    assert seen(one) == []
