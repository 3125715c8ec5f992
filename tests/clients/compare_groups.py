"""Requests of groups that both clusters are sent: each API, in each state of a group, from whoever is right or wrong.

A case is a request that names a member, a generation and an instance, to a group of its own in some state. What is compared is
the answer, and how the group is described then. Nobody joins who would have to wait for others: when that ends depends on time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from tests.clients.compare_sides import Side
from tests.clients.compare_transactions import TOPIC, Talk, codes, prepared

COMMIT, OFFSETS, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, DELETE, OFFSET_DELETE = 8, 9, 11, 12, 13, 14, 15, 42, 47
TXN_COMMIT, BEAT, DESCRIBE_BOTH = 28, 68, 69
SESSION_MS: Final = 300_000
REBALANCE_MS: Final = 300_000
SUBSCRIPTION: Final = b"\0\0\0\0\0\x01\0\x0f" + TOPIC.encode() + b"\0\0\0\0"
_ROW: Final = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
PATIENCE_S: Final = 60
_NOBODYS: Final = UUID(int=9)
NO_TYPE: Final = "JoinGroup, no type"


class Member(NamedTuple):
    """A group, and what somebody says of itself to it."""

    group: str
    member: str = ""
    epoch: int = -1
    """Its generation, or its own epoch."""
    instance: str | None = None

    def values(self) -> dict[str, Any]:
        who = {"group_id": self.group, "member_id": self.member, "generation_id": self.epoch}
        return {**who, "group_instance_id": self.instance, "instance_id": self.instance, "member_epoch": self.epoch}


class Groups:
    """With one side: each request goes to who coordinates the group."""

    def __init__(self, side: Side, name: str) -> None:
        """`name`: of none of them before."""
        self.side, self._name = side, name
        self.talk = Talk(side)
        self.producer = self.talk.begun(5)
        self._places: dict[str, int] = {}
        self._made = 0

    def fresh(self) -> Member:
        self._made += 1
        return Member(f"{self._name}-{self._made}")

    def ask(self, of: Member, key: int, version: int, **values: Any) -> Any:
        if of.group not in self._places:
            self._places[of.group] = self.talk.found(of.group, 0) if of.group else 1
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self.side.call(key, version, {**of.values(), **values}, node=self._places[of.group])
            if not {"coordinator_load_in_progress", "coordinator_not_available"} & set(codes(answer)):
                return answer
            assert time.monotonic() < deadline, f"{self.side.name}: {answer}"
            time.sleep(0.1)


# --- the requests

Send = Callable[[Groups, Member], Any]


def join(groups: Groups, who: Member, *, version: int = 9, kind: str = "consumer", name: str = "range", **more: Any) -> Any:
    values = {"session_timeout": SESSION_MS, "rebalance_timeout": REBALANCE_MS, "reason": None, "protocol_type": kind, **more}
    return groups.ask(who, JOIN, version, **values, protocols=[{"name": name, "metadata": SUBSCRIPTION}])


def sync(groups: Groups, who: Member, *, kind: str | None = "consumer", name: str | None = "range", version: int = 5) -> Any:
    assigned = [{"member_id": who.member, "assignment": b"\0\0\0\0\0\0\0\0\0\0"}]
    return groups.ask(who, SYNC, version, protocol_type=kind, protocol_name=name, assignments=assigned)


def leave(groups: Groups, who: Member, *, version: int = 5) -> Any:
    return groups.ask(who, LEAVE, version, members=[{"member_id": who.member, "group_instance_id": who.instance, "reason": "so"}])


def commit(groups: Groups, who: Member, *, version: int = 9) -> Any:
    topics = [{"name": TOPIC, "partitions": [_ROW]}]
    return groups.ask(
        who, COMMIT, version, generation_id_or_member_epoch=who.epoch, retention_time=-1, retention_time_ms=-1, topics=topics
    )


def commit_in_transaction(groups: Groups, who: Member, *, version: int = 5) -> Any:
    topics = [{"name": TOPIC, "partitions": [_ROW]}]
    return groups.ask(who, TXN_COMMIT, version, **groups.producer.values(), topics=topics)


def fetch_offsets(groups: Groups, who: Member, *, stable: bool = False) -> Any:
    one = {**who.values(), "member_id": who.member or None, "topics": [{"name": TOPIC, "partition_indexes": (0,)}]}
    return groups.ask(who, OFFSETS, 9, groups=[one], require_stable=stable)


def beat(groups: Groups, who: Member, *, version: int = 1, full: bool = False, **more: Any) -> Any:
    """`full`: with all that a member says when it joins."""
    values: dict[str, Any] = {"rack_id": None, "rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    if full:
        values |= {"rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": (TOPIC,), "topic_partitions": ()}
    return groups.ask(who, BEAT, version, **{**values, "subscribed_topic_regex": None, "server_assignor": None, **more})


def beat_at(groups: Groups, who: Member, *, epoch: int, full: bool = False) -> Any:
    return beat(groups, who._replace(epoch=epoch), full=full)


def heartbeat(groups: Groups, who: Member, *, version: int) -> Any:
    return groups.ask(who, HEARTBEAT, version)


def requests() -> Iterator[tuple[str, Send]]:
    """In an order in which one does not spoil the state for the next when it is refused."""
    for version in (0, 3, 4):
        yield f"Heartbeat v{version}", partial(heartbeat, version=version)
    for version in (1, 3, 5):
        yield f"SyncGroup v{version}", partial(sync, version=version)
    yield "SyncGroup v5, another type", lambda of, who: sync(of, who, kind="connect")
    yield "SyncGroup v5, another protocol", lambda of, who: sync(of, who, name="other")
    yield "SyncGroup v5, no protocol", lambda of, who: sync(of, who, kind=None, name=None)
    for version in (2, 6, 7, 8, 9):
        yield f"OffsetCommit v{version}", partial(commit, version=version)
    for version in (0, 3, 5):
        yield f"TxnOffsetCommit v{version}", partial(commit_in_transaction, version=version)
    for stable in (False, True):
        yield f"OffsetFetch v9, stable {stable}", partial(fetch_offsets, stable=stable)
    gone = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    yield "OffsetDelete", lambda of, who: of.ask(who, OFFSET_DELETE, 0, topics=gone)
    for version in (0, 1):
        yield f"ConsumerGroupHeartbeat v{version}", partial(beat, version=version)
        yield f"ConsumerGroupHeartbeat v{version}, in full", partial(beat, version=version, full=True)
    owned = [{"topic_id": _NOBODYS, "partitions": (0,)}]
    yield "ConsumerGroupHeartbeat, owning what is not there", lambda of, who: beat(of, who, topic_partitions=owned)
    yield "ConsumerGroupHeartbeat, an unknown assignor", lambda of, who: beat(of, who, server_assignor="nobody")
    yield "ConsumerGroupHeartbeat, no topics", lambda of, who: beat(of, who, subscribed_topic_names=())
    yield "ConsumerGroupHeartbeat, a rack of no name", lambda of, who: beat(of, who, rack_id="")
    for epoch in (0, -1, -2, -3):
        yield f"ConsumerGroupHeartbeat, epoch {epoch}", partial(beat_at, epoch=epoch)
        if epoch:
            yield (
                f"ConsumerGroupHeartbeat, epoch {epoch}, in full",
                partial(beat_at, epoch=epoch, full=True),
            )
    for version in (1, 3, 5):
        yield f"LeaveGroup v{version}", partial(leave, version=version)
    yield "DeleteGroups", lambda of, who: of.ask(who, DELETE, 2, groups_names=(who.group,))


def joins() -> Iterator[tuple[str, Send]]:
    """Those that nobody has to wait for, when the one member of a group sends them, or somebody of an odd id."""
    for version in (1, 4, 5, 9):
        yield f"JoinGroup v{version}", partial(join, version=version)
    yield "JoinGroup, another type", lambda of, who: join(of, who, kind="connect")
    yield "JoinGroup, another protocol", lambda of, who: join(of, who, name="other")
    yield NO_TYPE, lambda of, who: join(of, who, kind="")
    yield "JoinGroup, no time for a session", lambda of, who: join(of, who, session_timeout=0)
    yield "JoinGroup, no time to rebalance", lambda of, who: join(of, who, rebalance_timeout=-1)


# --- the states


def _empty(groups: Groups) -> Member:
    """All have left."""
    who = _stable(groups)
    assert set(codes(leave(groups, who))) == {"none"}, groups.side.name
    return who


def _simple(groups: Groups) -> Member:
    """Somebody who is no member has committed."""
    who = groups.fresh()
    assert set(codes(commit(groups, who))) == {"none"}, groups.side.name
    return who


def _joined(groups: Groups, instance: str | None = None) -> Member:
    """Its leader has not said yet who gets what."""
    who = groups.fresh()._replace(instance=instance)
    answer = join(groups, who)
    if answer["error_code"] == "member_id_required":
        answer = join(groups, who := who._replace(member=answer["member_id"]))
    assert answer["error_code"] == "none", (groups.side.name, answer)
    return who._replace(member=answer["member_id"], epoch=answer["generation_id"])


def _stable(groups: Groups, instance: str | None = None) -> Member:
    who = _joined(groups, instance)
    assert set(codes(sync(groups, who))) == {"none"}, groups.side.name
    return who


def _replaced(groups: Groups) -> Member:
    """Its instance came again, and has another id now."""
    who = _stable(groups, "one")
    answer = join(groups, who._replace(member="", epoch=-1))
    assert answer["error_code"] == "none" and answer["member_id"] != who.member, (groups.side.name, answer)
    return who


def _modern(groups: Groups, instance: str | None = None) -> Member:
    who = groups.fresh()._replace(member="m-1", epoch=0, instance=instance)
    answer = beat(groups, who, full=True)
    assert answer["error_code"] == "none", (groups.side.name, answer)
    return who._replace(epoch=answer["member_epoch"])


def _modern_after(epoch: int, instance: str | None) -> Callable[[Groups], Member]:
    def prepare(groups: Groups) -> Member:
        who = _modern(groups, instance)
        answer = beat(groups, who._replace(epoch=epoch))
        assert answer["error_code"] == "none", (groups.side.name, answer)
        return who

    return prepare


STATES: Final[Mapping[str, Callable[[Groups], Member]]] = {
    "unknown": Groups.fresh,
    "empty": _empty,
    "simple": _simple,
    "joined": _joined,
    "stable": _stable,
    "stable, static": lambda groups: _stable(groups, "one"),
    "replaced": _replaced,
    "consumer": _modern,
    "consumer, static": lambda groups: _modern(groups, "one"),
    "consumer, left": _modern_after(-1, None),
    "consumer, static, left": _modern_after(-1, "one"),
    "consumer, static, away": _modern_after(-2, "one"),
}
RELATIONS: Final[Mapping[str, Callable[[Member], Member]]] = {
    "as it is": lambda who: who,
    "earlier": lambda who: who._replace(epoch=who.epoch - 1),
    "later": lambda who: who._replace(epoch=who.epoch + 1),
    "of no epoch": lambda who: who._replace(epoch=-1),
    "another member": lambda who: who._replace(member="nobody"),
    "no member": lambda who: who._replace(member=""),
    "nobody": lambda who: who._replace(member="", epoch=-1, instance=None),
    "another instance": lambda who: who._replace(instance="other"),
    "no instance": lambda who: who._replace(instance=None),
}
_EMPTY_OF_MEMBERS: Final = ("unknown", "empty", "simple", "consumer, left", "consumer, static, left")


def told_of(groups: Groups, who: Member, answer: Any) -> Any:
    """The codes of the answer, the epoch that it gives, and how the group is then."""
    if answer.get("closed"):
        return ["closed"]
    told = [codes(answer), answer.get("member_epoch"), answer.get("generation_id"), answer.get("assignment") is not None]
    asked = {"groups": (who.group,), "group_ids": (who.group,), "include_authorized_operations": False}
    for key, version in ((DESCRIBE, 6), (DESCRIBE_BOTH, 1)):
        (found,) = groups.ask(who, key, version, **asked)["groups"]
        members = [[it.get("member_epoch"), it.get("instance_id"), it.get("group_instance_id")] for it in found["members"]]
        told += [found["error_code"], found["group_state"], found.get("group_epoch"), members]
    return told


def cases(side: Side) -> Any:
    """A group serves for all that is refused; whatever is taken gets the next its own."""
    prepared(side)
    groups = Groups(side, "odd-group")
    told: dict[str, Any] = {}
    for state, prepare in STATES.items():
        for relation, as_seen in RELATIONS.items():
            who = prepare(groups)
            for name, send in requests():
                answer = send(groups, as_seen(who))
                told[f"{state}, {relation}: {name}"] = told_of(groups, who, answer)
                if "none" in codes(answer):
                    who = prepare(groups)
    return told


def _waits(state: str, who: Member, name: str) -> bool:
    """For those who are members: that is, who comes without an id where there is somebody."""
    return not who.member and state not in _EMPTY_OF_MEMBERS and (name == "JoinGroup v1" or who.instance is not None)


def comers(side: Side) -> Any:
    """JoinGroup in each state. How the group is then is not asked: Kafka describes what it has written, which is later."""
    prepared(side)
    groups = Groups(side, "odd-comers")
    told: dict[str, Any] = {}
    for state, prepare in STATES.items():
        for relation, as_seen in RELATIONS.items():
            for name, send in joins():
                who = prepare(groups)
                if _waits(state, as_seen(who), name):
                    continue
                told[f"{state}, {relation}: {name}"] = _joined_as(send(groups, as_seen(who)))
                if name == NO_TYPE:
                    told[f"{state}, {relation}: {name}, deleted"] = codes(groups.ask(who, DELETE, 2, groups_names=(who.group,)))
    return told


def _joined_as(answer: Any) -> Any:
    named = [answer.get("generation_id"), answer.get("protocol_type"), answer.get("protocol_name"), bool(answer.get("member_id"))]
    return [codes(answer), *named, answer.get("leader") == answer.get("member_id"), len(answer.get("members", ()))]


def refused(side: Side) -> Any:
    """A classic member that is refused, where all of the new protocol have left: what is left of the group shows in the
    epoch of who comes next."""
    prepared(side)
    groups = Groups(side, "refused")
    told: dict[str, Any] = {}
    for state in ("consumer, left", "consumer, static, left"):
        for relation in ("another member", "nobody"):
            for name, send in joins():
                who = STATES[state](groups)
                answer = send(groups, RELATIONS[relation](who))
                if "none" in codes(answer):
                    continue
                after = beat(groups, who._replace(member="m-2", epoch=0, instance=None), full=True)
                told[f"{state}, {relation}: {name}"] = [codes(answer), codes(after), after.get("member_epoch")]
    return told


STORIES: Final[Mapping[str, Callable[[Side], Any]]] = {
    "odd groups": cases,
    "odd comers to groups": comers,
    "groups that refuse a classic member": refused,
}
