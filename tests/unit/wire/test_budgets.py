"""Memory that connections share: who waits, who goes on, who is closed."""

from __future__ import annotations

from kraftlite.wire.budgets import (
    MIN_PROGRESS_BYTES,
    PATIENCE_MS,
    SMALL_BUFFER_BYTES,
    UNREAD_PATIENCE_MS,
    ReceiveBudget,
    ResponseBudget,
)

MIB = 1 << 20


class Clock:
    ms = 0

    def __call__(self) -> int:
        return self.ms


class Receiver:
    def __init__(self) -> None:
        self.received = 0
        self.grants = 0
        self.failed = ""

    def granted(self) -> None:
        self.grants += 1

    def shrink(self) -> None: ...

    def fail(self, reason: str) -> None:
        self.failed = reason


def test_small_buffers_need_no_leave_and_large_ones_wait_in_order() -> None:
    """CP-69."""
    budget = ReceiveBudget(4 * MIB, Clock())
    first, second, third, fourth, fifth = (Receiver() for _ in range(5))
    assert budget.may_hold(first, 4 * MIB, wait=True)
    assert budget.may_hold(second, SMALL_BUFFER_BYTES, wait=True)
    assert budget.may_hold(third, 3 * MIB, wait=True), "one may always go on"
    assert not budget.may_hold(fourth, MIB, wait=True)
    assert not budget.may_hold(fifth, 128 * 1024, wait=True), "first come, first served"
    assert not budget.may_hold(second, 128 * 1024, wait=False)
    assert budget.held_bytes <= 4 * MIB + 3 * MIB
    assert budget.may_hold(third, 6 * MIB, wait=True), "it may grow until its frame is there"
    budget.holds(third, SMALL_BUFFER_BYTES)
    assert fourth.grants == 1 and fifth.grants == 0
    budget.gone(first)
    assert fifth.grants == 1 and budget.waiting == 0
    for receiver in (second, third, fourth, fifth):
        budget.gone(receiver)
    assert budget.held_bytes == 0


def test_who_goes_while_it_waits_is_forgotten() -> None:
    budget = ReceiveBudget(MIB, Clock())
    receivers = [Receiver() for _ in range(4)]
    for receiver in receivers:
        budget.may_hold(receiver, MIB + SMALL_BUFFER_BYTES, wait=True)
    assert budget.waiting == 2
    budget.gone(receivers[2])
    budget.gone(receivers[0])
    budget.gone(receivers[1])
    assert receivers[2].grants == 0 and receivers[3].grants == 1
    budget.gone(receivers[3])
    assert budget.held_bytes == 0 and budget.waiting == 0


def test_a_stalled_sender_loses_what_others_wait_for() -> None:
    clock = Clock()
    budget = ReceiveBudget(MIB, clock)
    stalled, busy, waiting = Receiver(), Receiver(), Receiver()
    assert budget.may_hold(stalled, MIB, wait=True)
    clock.ms += 10 * PATIENCE_MS
    budget.sweep()
    assert not stalled.failed, "nobody waits for it"
    assert budget.may_hold(busy, MIB, wait=True)
    assert not budget.may_hold(waiting, MIB, wait=True)
    for _ in range(4):
        clock.ms += PATIENCE_MS // 2
        busy.received += MIN_PROGRESS_BYTES
        stalled.received += 1
        budget.sweep()
    assert "others wait" in stalled.failed and not busy.failed and not waiting.failed


class Sender:
    def __init__(self, budget: ResponseBudget) -> None:
        self.budget = budget
        self.sent_ms = 0
        self.reason = ""

    def abandon(self, reason: str) -> None:
        self.reason = reason
        self.budget.holds(self, 0)


def test_unread_answers_are_dropped_when_the_node_holds_too_many() -> None:
    """CP-69."""
    clock = Clock()
    budget = ResponseBudget(10 * MIB, clock)
    senders = [Sender(budget) for _ in range(30)]
    for sender in senders[:9]:
        budget.holds(sender, MIB)
    assert not budget.tight
    clock.ms += UNREAD_PATIENCE_MS
    budget.sweep()
    assert not any(sender.reason for sender in senders), "there is room"
    for sender in senders[9:]:
        clock.ms += 1
        budget.holds(sender, MIB)
    assert budget.held_bytes <= 20 * MIB
    assert [bool(sender.reason) for sender in senders[:11]] == [True] * 10 + [False], "who has taken nothing for longest"
    senders[29].sent_ms = clock.ms = clock.ms + UNREAD_PATIENCE_MS
    budget.sweep()
    assert budget.held_bytes <= 10 * MIB and not senders[29].reason
