"""Stories of logs and topics: what is cut off, what was damaged, and a topic from its creation to its end."""

from __future__ import annotations

from kraftlite.runtime.trace import log, node, partition
from tests.unit.obs.test_explain import TP, Trace


def test_a_follower_cuts_off_what_the_new_leader_does_not_have() -> None:
    trace = Trace()
    trace.created()
    trace.fenced()
    trace.follows(30.0, 2, 3, epoch=5, partition_epoch=1, record=1841, hw=110)
    trace.say(30.1, 2, log.LogTruncated(tp=TP, offset=100, old_leo=120, leo=100, hw=100))
    trace.say(30.1, 2, partition.Diverged(tp=TP, epoch=4, end_offset=100, old_leo=120, leo=100))
    story = trace.story("truncated")
    assert story.facts == {"partition": "orders-0", "broker": 2, "old_leo": 120, "leo": 100, "committed_lost": 10}
    assert story.title.endswith("from 120 to 100, and offsets 100 to 109 were committed: 10 records are lost")
    assert story.chain.endswith("broker 2 follows 3 ▸ logs differ ▸ broker 2 truncated 120→100")
    assert "PARTITION_CHANGE @1841" in story.chain and "they had been committed" in story.steps[-1].what


def test_a_damaged_log_after_a_crash() -> None:
    trace = Trace()
    trace.created()
    trace.first_produce(2.0, 2, epoch=4)
    trace.say(30.0, 2, node.NodeStarting(roles="broker", cluster_id="c", version="1"))
    recovered = log.LogRecovered(
        tp=TP, recovery_point=0, leo=90, checked_bytes=1000, dropped_bytes=77, dropped_segments=0, reason="bad CRC"
    )
    trace.say(30.1, 2, recovered)
    story = trace.story("log_damaged")
    assert story.chain == "node 2 started at 30.0 s ▸ damaged log cut off"
    assert "killed or crashed" in story.steps[0].what
    assert "the log ends at 90 after recovery; 77 bytes and 0 segments are dropped: bad CRC" in story.steps[-1].what
    clean = log.LogRecovered(
        tp=TP, recovery_point=0, leo=90, checked_bytes=1000, dropped_bytes=0, dropped_segments=0, reason=None
    )
    trace.say(40.0, 3, clean)
    assert trace.story("log_damaged") is not None, "a recovery that found nothing wrong is no damage"


def test_a_topic_from_its_creation_to_its_deletion() -> None:
    trace = Trace()
    trace.created()
    trace.record(2.0, 12, "Config", "resource_type=2 resource_name=orders name=retention.ms value=5", "incremental_alter_configs")
    trace.record(3.0, 13, "RemoveTopic", "orders", "delete_topics")
    trace.say(3.1, 2, partition.PartitionRemoved(tp=TP))
    assert trace.story("created").chain == "topic created ▸ TOPIC @10 ▸ PARTITION @11 leader 2 ▸ broker 2 led from 1.1 s"
    deleted = trace.story("deleted")
    assert deleted.chain == "topic deleted ▸ REMOVE_TOPIC @13" and deleted.steps[-1].node == 2
    assert trace.about().standing == "deleted"
    titles = [story.title for story in trace.about("topic", "orders").stories]
    assert titles == [
        "Topic name=orders",
        "Config resource_type=2 resource_name=orders name=retention.ms value=5",
        "RemoveTopic orders",
    ]
    record = trace.story("record", "record", "@10")
    assert [step.what for step in record.steps][2:] == ["of the same operation: Partition orders-0"]
