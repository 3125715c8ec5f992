"""An empty group whose tombstones the log does not take is not found again when the one that succeeded to it is gone."""

from __future__ import annotations

from kraftlite.coordinator.core.shards import Written
from kraftlite.coordinator.modern.records import decode_key
from kraftlite.model.errors import ErrorCode
from tests.harness.consumer_world import Client, ConsumerWorld, classic_protocols


def emptied() -> ConsumerWorld:
    """A group of the new protocol that nobody is in; a member of the classic one has joined, and the log has refused the
    tombstones."""
    w = ConsumerWorld()
    w.quit(w.enter("a"))
    w.hold = True
    joined(w)
    assert w.held
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    return w


def joined(w: ConsumerWorld) -> list[str]:
    request = w.join(protocols=classic_protocols("t"))
    w.advance(w.config.initial_rebalance_delay_ms)
    return [w.answers[request].member_id]


def left_of_the_new_protocol(w: ConsumerWorld) -> list[object]:
    """The keys of its records without a tombstone behind them."""
    last = {key: value for key, value, _ in w.log}
    return [decode_key(key) for key, value in last.items() if value is not None and decode_key(key) is not None]


def test_they_are_written_with_what_is_stored_of_the_classic_group() -> None:
    w = emptied()
    assert left_of_the_new_protocol(w)
    (member_id,) = w.group().members
    w.sync(member_id, 1, {})
    assert w.state() == "Stable"
    assert left_of_the_new_protocol(w) == []


def test_a_group_that_is_deleted_before_anything_of_it_is_stored_leaves_nothing() -> None:
    w = emptied()
    w.hold = True
    w.leave(*w.group().members)
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    w.delete_group()
    assert left_of_the_new_protocol(w) == []
    w.fail_over()
    assert not w.shard.knows("g")


def test_a_deletion_that_is_refused_owes_them_still() -> None:
    w = emptied()
    w.hold = True
    w.leave(*w.group().members)
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.delete_group()
    w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    w.hold = False
    w.delete_group()
    assert left_of_the_new_protocol(w) == []


def test_a_member_of_the_new_protocol_that_comes_next_finds_a_group_of_its_own() -> None:
    """What is owed goes before the records of the new group, and takes none of them."""
    w = emptied()
    w.leave(*w.group().members)
    b = w.enter("b")
    w.settle(b)
    before = [str(key) for key in left_of_the_new_protocol(w)]
    w.fail_over()
    w.beat(b)
    assert any("MemberKey" in it for it in before) and any(it.startswith("EpochKey") for it in before)
    assert list(w.consumers().members) == ["b"]


def test_a_refusal_that_is_told_late_takes_nothing_of_the_group_that_is_there_by_then() -> None:
    w = ConsumerWorld()
    w.quit(w.enter("a"))
    w.hold = True
    (classic,) = joined(w)
    w.leave(classic)
    request = w.ask_beat("b", 0, owned={}, rebalance_ms=60_000, topics=("t",))
    first = w.held.pop(0)
    assert all(value is None for _, value in first.records)
    w.step(Written(token=first.token, error=ErrorCode.NOT_ENOUGH_REPLICAS))
    w.hold = False
    w.commit_held()
    b = Client("b")
    b.take(w.result(request))
    w.clients["b"] = b
    w.change_topics(t=6)
    w.beat(b)
    epoch = w.consumers().epoch
    w.fail_over()
    assert (w.consumers().epoch, list(w.consumers().members)) == (epoch, ["b"])
    w.quit(b)
    w.delete_group()
    assert left_of_the_new_protocol(w) == []
