"""Commits of a member epoch that is over count for the partitions that the member has had since then.

Source: KIP-1251; CG-07, TG-02.
"""

from __future__ import annotations

from uuid import UUID

from kraftlite.coordinator.modern.member import NO_PARTS, Member, MemberState
from kraftlite.coordinator.modern.reconcile import Aim, reconcile
from kraftlite.model.errors import ErrorCode
from kraftlite.model.producer import Producer
from tests.harness.consumer_world import Client, ConsumerWorld, topic_id

STALE, ILLEGAL = ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION
T = topic_id("t")
PRODUCER = Producer(9, 0)


def shared() -> tuple[ConsumerWorld, Client, Client]:
    """`a` had all four partitions in epoch 2; since epoch 3 `b` has two of them."""
    w = ConsumerWorld()
    a = w.enter("a")
    b = w.enter("b")
    w.settle()
    assert (a.epoch, b.epoch) == (3, 3)
    return w, a, b


def committed(w: ConsumerWorld, member: str, epoch: int, *partitions: int, producer: Producer | None = None) -> object:
    """What a commit for these partitions is answered: one code if it is the same for all."""
    found = w.error(w.commit({("t", index): 7 for index in partitions}, member_id=member, generation=epoch, producer=producer))
    return found[0] if isinstance(found, tuple) and len(set(found)) == 1 else found


def test_cg_07_an_older_epoch_counts_for_what_was_assigned_by_then() -> None:
    w, a, b = shared()
    (kept, _), (given, _) = sorted(a.owned[T]), sorted(b.owned[T])
    assert committed(w, "a", 2, kept) is ErrorCode.NONE
    assert committed(w, "a", 1, kept) is STALE, "older than the assignment"
    assert committed(w, "a", 2, given) is STALE, "it has given that up"
    assert committed(w, "a", 2, kept, given) is STALE, "all or nothing"
    assert committed(w, "b", 2, given) is STALE
    assert committed(w, "a", 4, kept) is STALE, "nobody is there yet"
    assert committed(w, "b", 3, given) is ErrorCode.NONE
    assert committed(w, "b", 3, kept) is ErrorCode.NONE, "in the present epoch nobody looks at partitions"


def test_tg_02_the_same_in_a_transaction_with_the_error_that_producers_know() -> None:
    w, a, b = shared()
    (kept, _), (given, _) = sorted(a.owned[T]), sorted(b.owned[T])
    assert committed(w, "a", 2, kept, producer=PRODUCER) is ErrorCode.NONE
    assert committed(w, "a", 2, given, producer=PRODUCER) is ILLEGAL
    assert committed(w, "a", -1, kept, producer=PRODUCER) is ILLEGAL


def test_a_partition_that_is_to_be_given_up_counts_until_it_is() -> None:
    w = ConsumerWorld()
    a = w.enter("a")
    a.holds_on = True
    w.enter("b")
    w.beat(a)
    assert (w.member("a").state, a.epoch) == (MemberState.UNREVOKED_PARTITIONS, 2)
    w.topics["u"] = 1
    assert committed(w, "a", 2, 0, 1, 2, 3) is ErrorCode.NONE
    assert w.member("a").since == {T: dict.fromkeys(range(4), 2)}


def test_another_coordinator_knows_the_epochs() -> None:
    w, a, _ = shared()
    (kept, _) = sorted(a.owned[T])
    w.fail_over()
    assert w.member("a").since == {T: dict.fromkeys(a.owned[T], 2)}
    assert committed(w, "a", 2, kept) is ErrorCode.NONE


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    w, a, _ = shared()
    (kept, _) = sorted(a.owned[T])
    w.topics = {}
    w.change_topics(t=0)
    assert committed(w, "a", 2, kept) is STALE


def test_a_static_member_that_comes_back_has_its_partitions_from_the_beginning() -> None:
    w = ConsumerWorld()
    a = w.enter("a", instance_id="one")
    w.quit(a, for_a_while=True)
    assert w.member("a").since == {T: dict.fromkeys(range(4), 0)}
    again = w.enter("a2", instance_id="one")
    w.settle(again)
    assert w.member("a2").since == {T: dict.fromkeys(range(4), 0)}
    assert committed(w, "a2", 1, 0) is ErrorCode.NONE
    assert committed(w, "a", 2, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def aim(epoch: int, target: dict[UUID, frozenset[int]], owned: dict[UUID, frozenset[int]] | None) -> Aim:
    return Aim(
        epoch=epoch, target=target, is_held=lambda *_: False, subscribed=(T,), subscription_changed=False, owned=owned
    )  # fmt: skip


def test_a_partition_that_was_given_up_and_comes_back_is_a_new_one() -> None:
    member = Member(member_id="a", epoch=2, assigned={T: frozenset({0, 1})}, since={T: {0: 1, 1: 2}})
    revoking = reconcile(member, aim(3, {T: frozenset({0})}, None))
    assert (revoking.state, revoking.since) == (MemberState.UNREVOKED_PARTITIONS, {T: {0: 1, 1: 2}})
    back = reconcile(revoking, aim(4, {T: frozenset({0, 1})}, {T: frozenset({0})}))
    assert (back.epoch, back.assigned, back.since) == (4, {T: frozenset({0, 1})}, {T: {0: 1, 1: 4}})
    less = reconcile(back, aim(5, {}, NO_PARTS))  # type: ignore[arg-type]
    assert (less.assigned, less.since) == ({}, {})
