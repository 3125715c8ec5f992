"""A member of a consumer group, as a value, and what may be said about its partitions.

Source: KIP-848, "Member" and "Member Assignment"; `ConsumerGroupMember` of Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from uuid import UUID

from kraftlite.coordinator.api import Protocol
from kraftlite.model.errors import ApiError, ErrorCode

Parts = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; a topic without any is not in it."""
NO_PARTS: Final[Parts] = {}
Epochs = Mapping[UUID, Mapping[int, int]]
"""The assignment epochs of partitions: the member epoch with which each was given (KIP-1251)."""
NO_EPOCHS: Final[Epochs] = {}

JOIN_EPOCH: Final = 0
"""The member epoch with which a member (re)joins."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that leaves to come back under its instance id."""


class MemberState(IntEnum):
    """Numbers as in the log. UNREVOKED: waits for the member to give partitions up, in its old epoch. UNRELEASED: is in the
    target epoch, and waits for others to give up what it is to get. UNKNOWN: written by software that knows more states."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMetadata:
    """The request with which a member that speaks the classic protocol joined."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member. `topics` sorted and unique; `regex` "" for none; `classic` None: it speaks the new protocol.

    `assigned` may be used in `epoch`; `revoking` is what it must give up before it leaves that epoch; `since` has the assignment
    epochs of both. `previous_epoch`: with which it may still come, when the answer that told the new one was lost.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Parts = field(default_factory=dict)
    revoking: Parts = field(default_factory=dict)
    since: Epochs = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def check_epoch(self, received: int, owned: Parts | None) -> None:
        """Raise ApiError(FENCED_MEMBER_EPOCH) unless it is the member's; or the one before, by a member that owns no more than
        it should: the answer that told it the new one may be lost."""
        if received in (JOIN_EPOCH, self.epoch):
            return
        retried = received == self.previous_epoch and owned is not None and is_subset(owned, self.assigned)
        if received > self.epoch or not retried:
            size = "greater" if received > self.epoch else "smaller"
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {size} member epoch ({received}) than the one known by the group coordinator "
                f"({self.epoch}). The member must abandon all its partitions and rejoin.",
            )

    def check_state(self, owned: Parts | None) -> None:
        """Raise ApiError(FENCED_MEMBER_EPOCH) in a state that this software does not know, until the member owns nothing."""
        if self.state is MemberState.UNKNOWN and (owned is None or owned):
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )

    @property
    def subscription(self) -> tuple[object, ...]:
        """The content of the member's metadata record."""
        return (
            self.instance_id, self.rack_id, self.client_id, self.client_host, self.topics, self.regex,
            self.rebalance_timeout_ms, self.server_assignor, self.classic,
        )  # fmt: skip

    @property
    def progress(self) -> tuple[object, ...]:
        """The content of the record of the member's current assignment."""
        return (self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking, self.since)

    def since_of(self, topic_id: UUID, partition: int) -> int | None:
        """The assignment epoch of a partition; None: the member does not have it, nor is it to give it up."""
        return self.since.get(topic_id, {}).get(partition)


def parts_of(topics: Iterable[tuple[UUID, Iterable[int]]]) -> Parts:
    """A topic that is named twice has the partitions of both."""
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in topics:
        indexes = frozenset(partitions)
        if indexes:
            found[topic_id] = found.get(topic_id, frozenset()) | indexes
    return found


def epochs_of(parts: Iterable[Parts], epoch: int) -> Epochs:
    """The same assignment epoch for all; those of a record that says none are of its member epoch, or 0 while the member is
    away."""
    found: dict[UUID, dict[int, int]] = {}
    for one in parts:
        for topic_id, indexes in one.items():
            found.setdefault(topic_id, {}).update(dict.fromkeys(indexes, max(epoch, 0)))
    return found


def is_subset(parts: Parts, of: Parts) -> bool:
    return all(indexes <= of.get(topic_id, frozenset()) for topic_id, indexes in parts.items())


def overlaps(parts: Parts, other: Parts) -> bool:
    return any(not indexes.isdisjoint(other.get(topic_id, ())) for topic_id, indexes in parts.items())


def united(parts: Parts, other: Parts) -> Parts:
    return parts_of((*parts.items(), *other.items()))
