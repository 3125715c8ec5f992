"""One step of a member towards its target assignment.

A member gives up first what it must, in its old epoch, and is told the new epoch only then; what it gets it gets in the new
epoch, as soon as nobody else holds it. So a partition is never in two hands. Source: KIP-848, "Assignment & Reconciliation
Process"; `CurrentAssignmentBuilder` of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from uuid import UUID

from kraftlite.coordinator.modern.member import Epochs, Member, MemberState, Parts, overlaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The place to which a member is to be led, and what is known of it. `is_held(topic_id, partition)`: by any member, this
    one included. `owned`: as the member says, None when it does not. `subscription_changed`: what it no longer subscribes to
    goes at once."""

    epoch: int
    target: Parts
    is_held: Callable[[UUID, int], bool]
    subscribed: Collection[UUID]
    subscription_changed: bool
    owned: Parts | None


def reconcile(member: Member, aim: Aim) -> Member:
    """The member after this step; the same object when nothing can be done yet. One in an unknown state begins anew: see
    `Member.check_state`."""
    if member.state is MemberState.STABLE:
        if member.epoch != aim.epoch:
            return _advance(member, aim)
        return _drop_unsubscribed(member, aim) if aim.subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(member.revoking, aim):
            return _drop_unsubscribed(member, aim) if aim.subscription_changed else member
        return _advance(member, aim)
    return _advance(member, aim)


def _still_owns(parts: Parts, aim: Aim) -> bool:
    """Return whether the member may still use any of them: it says so, or says nothing."""
    return aim.owned is None or overlaps(aim.owned, parts)


def _advance(member: Member, aim: Aim) -> Member:
    kept: dict[UUID, frozenset[int]] = {}
    revoking: dict[UUID, frozenset[int]] = {}
    gained: dict[UUID, frozenset[int]] = {}
    unreleased = False
    for topic_id in dict.fromkeys((*aim.target, *member.assigned)):
        target = aim.target.get(topic_id, frozenset()) if topic_id in aim.subscribed else frozenset()
        assigned = member.assigned.get(topic_id, frozenset())
        own = member.revoking.get(topic_id, frozenset())
        new = frozenset(index for index in target - assigned if index in own or not aim.is_held(topic_id, index))
        unreleased = unreleased or len(new) < len(target - assigned)
        _put(kept, topic_id, assigned & target)
        _put(revoking, topic_id, assigned - target)
        _put(gained, topic_id, new)
    if revoking and _still_owns(revoking, aim):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    for topic_id, indexes in gained.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | indexes
    return _moved(member, aim.epoch, MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE, kept, {})


def _drop_unsubscribed(member: Member, aim: Aim) -> Member:
    kept = {topic_id: indexes for topic_id, indexes in member.assigned.items() if topic_id in aim.subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoking = dict(member.revoking)
    for topic_id, indexes in member.assigned.items():
        if topic_id not in kept:
            revoking[topic_id] = revoking.get(topic_id, frozenset()) | indexes
    if _still_owns(revoking, aim):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return replace(member, previous_epoch=member.epoch, assigned=kept, since=_since(member, member.epoch, kept, member.revoking))


def _put(parts: dict[UUID, frozenset[int]], topic_id: UUID, indexes: frozenset[int]) -> None:
    if indexes:
        parts[topic_id] = indexes


def _moved(member: Member, epoch: int, state: MemberState, assigned: Parts, revoking: Parts) -> Member:
    since = _since(member, epoch, assigned, revoking)
    return replace(
        member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking, since=since
    )


def _since(member: Member, epoch: int, assigned: Parts, revoking: Parts) -> Epochs:
    """Partitions that the member had it has since then; one that it gets, or gets back, it has from this epoch on (KIP-1251)."""
    found: dict[UUID, dict[int, int]] = {}
    for parts, new in ((revoking, False), (assigned, True)):
        for topic_id, indexes in parts.items():
            had = member.assigned.get(topic_id, frozenset())
            before = member.since.get(topic_id, {})
            found.setdefault(topic_id, {}).update(
                (index, epoch if new and index not in had else before.get(index, max(member.epoch, 0))) for index in indexes
            )
    return found
