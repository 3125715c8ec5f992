"""Streaming queries: every offset once, from where the query was told to start, through restarts, growth, losses and failures.

The tests named `test_trap_…` hold what a naive source gets wrong without any error: offsets that move, offsets whose text
changes, offsets that go backwards.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kraftlite.testing import SyncCluster, other_than
from tests.harness import embedded
from tests.harness.spark_runs import Lane, Sent, batches_of, create, fill, numbered, stream, values, values_of

pytestmark = [pytest.mark.spark]

EARLIEST = {"startingOffsets": "earliest"}
Made = Callable[..., Lane]


@pytest.fixture
def lane(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> Made:
    def make(**options: object) -> Lane:
        return Lane(spark, cluster, topic, tmp_path, **options)

    return make


def admin(cluster: SyncCluster) -> Any:
    """One for all tests: its futures do not come when it is gone."""
    return _admin(cluster.bootstrap_servers)


@cache
def _admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, **embedded.QUICK})


def truncate(cluster: SyncCluster, topic: str, before: int) -> None:
    """As if what lies before had been aged out, in every partition."""
    from confluent_kafka import TopicPartition

    for future in admin(cluster).delete_records([TopicPartition(topic, it, before) for it in range(3)]).values():
        future.result(20)


def committed(cluster: SyncCluster, group: str) -> dict[int, int]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    (future,) = admin(cluster).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {it.partition: it.offset for it in future.result(20).topic_partitions}


def numbers(progress: list[Any]) -> list[int]:
    return [it.numInputRows for it in progress]


# --- traps


def test_trap_latest_moves_while_batch_0_is_planned(
    spark: Any, cluster: SyncCluster, topic: str, lane: Made, tmp_path: Path
) -> None:
    """Spark asks for the initial offset twice in batch 0 and stores it never. What comes after the first question is read, even
    when the driver goes away within batch 0 and the log moves meanwhile."""
    fill(cluster, topic, numbered(30))
    query = lane()
    assert numbers(query.run()) in ([], [0])
    assert json.loads(query.ends()[0])[topic] == {"0": 10, "1": 10, "2": 10}
    fill(cluster, topic, numbered(30, 30))
    # The driver was killed after batch 0 had its offsets and before it was committed.
    for path in (query.checkpoint / "commits").iterdir():
        path.unlink()
    shutil.rmtree(query.out, ignore_errors=True)
    query.run()
    assert query.values() == values(range(30, 60))


def test_trap_keys_in_another_order_would_be_batches_without_end(
    spark: Any, cluster: SyncCluster, lane: Made, tmp_path: Path
) -> None:
    """Eleven partitions, and topics that are subscribed to in another order: as text 10 comes before 9."""
    create(cluster, "order-b", 11)
    create(cluster, "order-a", 2)
    fill(cluster, "order-b", numbered(22, partitions=11))
    fill(cluster, "order-a", numbered(4, 22, partitions=2))
    query = Lane(spark, cluster, "", tmp_path, subscribe="order-b,order-a", **EARLIEST)
    running = query.start(available_now=False)
    try:
        running.processAllAvailable()
        before = len(query.ends())
        (end,) = {*query.ends()}
        for _ in range(3):
            running.processAllAvailable()  # waits for a trigger that finds nothing new
        assert len(query.ends()) == before == 1
    finally:
        running.stop()
    assert list(json.loads(end)) == ["order-a", "order-b"]
    assert list(json.loads(end)["order-b"]) == [str(it) for it in range(11)]
    assert numbers(query.run()) == [], "nor after a restart"


def test_trap_offsets_do_not_go_backwards_when_leaders_change(faults: SyncCluster, topic: str, lane: Made) -> None:
    cluster, query = faults, lane(**EARLIEST)
    for turn in range(2):
        fill(cluster, topic, numbered(30, turn * 30))
        query.run()
        leader = cluster.leader(topic, 0) or 0
        cluster.kill(leader)
        cluster.wait_for(topic=topic, partition=0, leader=other_than(leader))
        query.run()
        cluster.restart(leader)
    assert query.values() == values(range(60))
    ends = [json.loads(it)[topic] for it in query.ends()]
    assert all(a[number] <= b[number] for a, b in pairwise(ends) for number in a)


def test_trap_initial_offset_of_a_time_that_has_not_come(cluster: SyncCluster, topic: str, lane: Made) -> None:
    now = numbered(6)[-1].timestamp_ms or 0
    fill(cluster, topic, numbered(6))
    query = lane(startingTimestamp=now + 1, startingOffsetsByTimestampStrategy="latest")
    query.run()
    fill(cluster, topic, numbered(6, 6))
    query.run()
    assert query.values() == values(range(6, 12))


# --- how far a batch goes


def test_available_now_keeps_the_limit_and_reads_what_was_there(cluster: SyncCluster, topic: str, lane: Made) -> None:
    fill(cluster, topic, numbered(90))
    query = lane(maxOffsetsPerTrigger=30, **EARLIEST)
    done = query.run()
    assert numbers(done) == [30, 30, 30]
    assert query.values() == values(range(90))
    first = done[0].sources[0]
    assert json.loads(first.endOffset)[topic] == {"0": 10, "1": 10, "2": 10}
    assert json.loads(first.latestOffset)[topic] == {"0": 30, "1": 30, "2": 30}
    assert numbers(query.run()) == []
    fill(cluster, topic, numbered(10, 90))
    assert sum(numbers(query.run())) == 10
    assert query.values() == values(range(100))


def test_available_now_without_a_limit_is_one_batch(cluster: SyncCluster, topic: str, lane: Made) -> None:
    fill(cluster, topic, numbered(60))
    assert numbers(lane(**EARLIEST).run()) == [60]


def test_offsets_for_each_partition_to_start_from(cluster: SyncCluster, topic: str, lane: Made) -> None:
    """Record i is in partition i % 3 at offset i // 3."""
    fill(cluster, topic, numbered(30))
    query = lane(startingOffsets=json.dumps({topic: {"0": 8, "1": -1, "2": -2}}), minPartitions=6)
    query.run()
    assert query.values() == [f"v{it}" for it in sorted([24, 27, *range(2, 30, 3)])]


def test_a_running_query_sees_what_comes(spark: Any, cluster: SyncCluster, topic: str, tmp_path: Path) -> None:
    rows = stream(spark, cluster, topic, includeHeaders="true").writeStream.format("memory").queryName("seen")
    query = rows.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        for turn in range(3):
            sent = [it._replace(headers=(("turn", b"%d" % turn),)) for it in numbered(30, turn * 30)]
            fill(cluster, topic, sent)
            query.processAllAvailable()
            assert values_of(spark.table("seen")) == values(range(turn * 30 + 30))
        (found,) = (
            spark.table("seen").selectExpr("headers[0].key as key", "headers[0].value as value").where("value = '2'").take(1)
        )
        assert (found.key, bytes(found.value)) == ("turn", b"2")
    finally:
        query.stop()


def test_read_committed(cluster: SyncCluster, topic: str, lane: Made) -> None:
    """Without transactions the last stable offset is the high watermark."""
    fill(cluster, topic, numbered(30), **{"enable.idempotence": True})
    query = lane(**{"kafka.isolation.level": "read_committed"}, **EARLIEST)
    query.run()
    assert query.values() == values(range(30))


# --- topics and partitions that come and go


def test_partitions_that_come_under_the_query(cluster: SyncCluster, topic: str, lane: Made) -> None:
    from confluent_kafka.admin import NewPartitions

    query = lane()
    fill(cluster, topic, numbered(6))
    query.run()
    for future in admin(cluster).create_partitions([NewPartitions(topic, 5)]).values():
        future.result(20)
    for partition in (3, 4):
        cluster.wait_for(topic=topic, partition=partition, hw=0)
    fill(cluster, topic, numbered(50, 6, partitions=5))
    query.run()
    assert query.values() == values(range(6, 56)), "the new ones from 0, though the query started at latest"


def test_topics_that_come_under_a_pattern(spark: Any, cluster: SyncCluster, tmp_path: Path) -> None:
    create(cluster, "pattern-1")
    query = Lane(spark, cluster, "", tmp_path, subscribePattern="^pattern-[0-9]")
    query.run()
    create(cluster, "pattern-2")
    create(cluster, "other-pattern-2")
    for name, first in (("pattern-1", 0), ("pattern-2", 30), ("other-pattern-2", 60)):
        fill(cluster, name, numbered(30, first))
    query.run()
    assert query.values() == values(range(60))


def delete(cluster: SyncCluster, topic: str) -> None:
    for future in admin(cluster).delete_topics([topic]).values():
        future.result(20)


def test_a_topic_that_is_deleted_under_the_query(spark: Any, cluster: SyncCluster, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    for name in ("stays", "goes"):
        create(cluster, name)
    query = Lane(spark, cluster, "", tmp_path, subscribe="goes,stays", **EARLIEST)
    fill(cluster, "stays", numbered(6))
    fill(cluster, "goes", numbered(6, 6))
    query.run()
    delete(cluster, "goes")
    fill(cluster, "stays", numbered(6, 12))
    with pytest.raises(StreamingQueryException, match="goes-0, goes-1, goes-2 are gone") as caught:
        query.run()
    assert "failOnDataLoss" in str(caught.value)
    query.run(failOnDataLoss="false")
    assert query.values() == values(range(18))
    create(cluster, "goes")
    fill(cluster, "goes", numbered(6, 18))
    query.run(failOnDataLoss="false")
    assert query.values() == values(range(24)), "a new topic of that name is read from its start"


@pytest.mark.parametrize("more", [pytest.param(3, marks=pytest.mark.slow, id="fewer"), pytest.param(30, id="more")])
def test_a_topic_that_is_made_again_under_a_running_query(spark: Any, cluster: SyncCluster, tmp_path: Path, more: int) -> None:
    """Between two triggers, as a rule; when one of them finds no topic at all, the outcome is the same."""
    from pyspark.errors import StreamingQueryException

    name = f"again-{more}"
    for fail in ("false", "true"):
        create(cluster, name)
        fill(cluster, name, numbered(12))
        rows = stream(spark, cluster, name, failOnDataLoss=fail, **EARLIEST)
        writer = rows.writeStream.format("memory").queryName(f"again_{fail}").trigger(processingTime="1 second")
        query = writer.option("checkpointLocation", str(tmp_path / fail)).start()
        try:
            query.processAllAvailable()
            delete(cluster, name)
            create(cluster, name)
            fill(cluster, name, numbered(more, 12))
            if fail == "true":
                with pytest.raises(StreamingQueryException, match=r"was deleted and made again|are gone"):
                    query.processAllAvailable()
            else:
                query.processAllAvailable()
                assert values_of(spark.table("again_false")) == values(range(12 + more))
        finally:
            query.stop()
        delete(cluster, name)


def test_records_that_are_gone_before_they_were_read(cluster: SyncCluster, topic: str, lane: Made) -> None:
    from pyspark.errors import StreamingQueryException

    query = lane(**EARLIEST)
    fill(cluster, topic, numbered(30))
    query.run()
    fill(cluster, topic, numbered(30, 30))
    truncate(cluster, topic, 15)
    with pytest.raises(StreamingQueryException, match=r"offset 10 of .* cannot be read"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.values() == values(range(30), range(45, 60)), "what is left of the batch is read"


def test_everything_of_a_planned_batch_is_gone(cluster: SyncCluster, topic: str, lane: Made) -> None:
    """A batch is in the checkpoint, and when it runs again its offsets are behind the start of the log."""
    query = lane(failOnDataLoss="false", maxOffsetsPerTrigger=30, **EARLIEST)
    fill(cluster, topic, numbered(90))
    query.run()
    forget(query.checkpoint / "commits", 0)
    forget(query.checkpoint / "offsets", 1)
    forget(query.out / "_spark_metadata", 0)
    truncate(cluster, topic, 25)  # batch 1 was to read offsets 10 to 20
    query.run()
    assert query.values() == values(range(30), range(75, 90))


def forget(log: Path, last: int) -> None:
    """As if Spark had come no further than to this file of its log."""
    for path in log.iterdir():
        number = path.name.strip(".").split(".")[0]
        if number.isdigit() and int(number) > last:
            path.unlink()


# --- failures


def test_a_leader_and_the_controller_die_under_a_query(spark: Any, faults: SyncCluster, topic: str, tmp_path: Path) -> None:
    """They die in the middle of a batch: while its first rows are being written."""
    cluster, first = faults, Sent(0, None, b"")
    died = list[int]()
    sent = fill(cluster, topic, [first._replace(partition=it % 3, value=b"%d" % it + b"." * 500) for it in range(6_000)])
    small = {"kafka.max.partition.fetch.bytes": 32_768, "maxOffsetsPerTrigger": 3_000}
    counts: dict[int, int] = {}

    def write(batch: Any, batch_id: int) -> None:
        rows = batch.select("partition", "offset").toLocalIterator()
        seen = []
        for row in rows:
            seen.append((row.partition, row.offset))
            if len(seen) == 100 and len(died) < 2:
                died.append((cluster.leader(topic, 2) or 0) if not died else cluster.controllers[0])
                cluster.kill(died[-1])
                if died[-1] in cluster.controllers:
                    cluster.restart(died[-1])
        assert len(seen) == len({*seen})
        counts[batch_id] = len(seen)

    query = stream(spark, cluster, topic, **EARLIEST, **small).writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert [counts[it] for it in sorted(counts)] == [3_000, 3_000]
    assert sum(counts.values()) == len(sent)
    assert len(died) == 2


def test_no_leader_for_a_while_is_waited_for(faults: SyncCluster, topic: str, lane: Made) -> None:
    cluster, query = faults, lane(**EARLIEST)
    fill(cluster, topic, numbered(30))
    cluster.kill(*cluster.brokers)
    running = query.start()
    assert not running.awaitTermination(1)
    cluster.restart(*cluster.brokers)
    running.awaitTermination()
    assert query.values() == values(range(30))


# --- what consumer groups show


@pytest.mark.parametrize(
    ("options", "group"),
    [
        ({}, "kraftlite-spark-{}"),
        ({"groupIdPrefix": "mine"}, "mine-{}"),
        ({"kafka.group.id": "exactly-this"}, "exactly-this"),
    ],
)
def test_groups_show_progress_up_to_the_end(
    cluster: SyncCluster, topic: str, lane: Made, options: dict[str, str], group: str
) -> None:
    """One batch that starts at a symbol, after which nothing comes: whoever looks at lag must see none."""
    fill(cluster, topic, numbered(30))
    query = lane(**EARLIEST, **options)
    running = query.start()
    running.awaitTermination()
    assert numbers(batches_of(running)) == [30]
    name = group.format(running.id)
    assert committed(cluster, name) == {0: 10, 1: 10, 2: 10}
    if not options:
        fill(cluster, topic, numbered(30, 30))
        query.run()
        assert committed(cluster, name) == {0: 20, 1: 20, 2: 20}


def test_groups_are_left_alone_when_told(cluster: SyncCluster, topic: str, lane: Made) -> None:
    fill(cluster, topic, numbered(3))
    query = lane(commitOffsets="false", **EARLIEST)
    running = query.start()
    running.awaitTermination()
    names = {it.group_id for it in admin(cluster).list_consumer_groups().result(20).valid}
    assert f"kraftlite-spark-{running.id}" not in names


# --- what is told


def test_what_cannot_be_is_told(spark: Any, cluster: SyncCluster, topic: str, lane: Made) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="'endingOffsets' is for batch queries"):
        lane(endingOffsets="latest").run()
    with pytest.raises(PySparkException, match="did you mean 'maxOffsetsPerTrigger'"):
        lane(maxOffsetPerTrigger=5).run()
    with pytest.raises(PySparkException, match="there is no nowhere in the cluster"):
        lane(subscribe="nowhere").run()
