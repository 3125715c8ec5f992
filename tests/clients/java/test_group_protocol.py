"""The new group protocol, question by question, against a real Apache Kafka: what it answers, kraftlite answers (KIP-848).

Which of several equal partitions a member gets may differ, as it does in Kafka from run to run; how many, in which epoch, with
which error and in which words may not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from kraftlite.coordinator.consumer_protocol import Subscription, build_assignment, build_subscription, parse_assignment
from kraftlite.protocol.kio_codec import build_entity
from kraftlite.testing import SyncCluster
from tests.clients.java.apache import apache_kafka
from tests.clients.raw import Connection
from tests.harness.local import PATIENCE_S

# isort: split
from kio.index import load_request_schema

pytestmark = [pytest.mark.clients, pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("clients")]

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.max.size": "4",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000",
}
PARTITIONS = 12
"""Of each of two topics: up to four members have equal shares."""
TOPICS = ("t", "u")
JOIN = {"rebalance_timeout": 60_000, "subscribed_topic_names": list(TOPICS), "topic_partitions": []}
WALKS, STEPS = 25, 40

Answer = tuple[Any, ...]


@dataclass
class Member:
    """As its client sees it."""

    epoch: int = 0
    owned: dict[UUID, tuple[int, ...]] = field(default_factory=dict)
    told: dict[UUID, tuple[int, ...]] = field(default_factory=dict)
    instance_id: str | None = None


class Side:
    """One of the two, and what its members know."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._connection = Connection(bootstrap_servers.split(",")[0])
        self.members: dict[str, Member] = {}
        self._retry(lambda: self.call(10, 4, {"key_type": 0, "coordinator_keys": ["g"]}).coordinators[0].error_code.value)
        for topic in TOPICS:
            wanted = {"name": topic, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
            self.call(19, 7, {"topics": [wanted], "timeout": 10_000, "validate_only": False})
        self._retry(self._unassigned)

    def _unassigned(self) -> int:
        """How many topics are missing for a member of a group of its own: all while the coordinator still loads."""
        assignment = self.beat("warm", "m", 0, **JOIN).assignment
        return len(TOPICS) - (0 if assignment is None else len(assignment.topic_partitions))

    @staticmethod
    def _retry(error: Callable[[], int]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while error():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def call(self, key: int, version: int, values: dict[str, Any]) -> Any:
        return self._connection.ask(build_entity(load_request_schema(key, version), values))

    def close(self) -> None:
        self._connection.close()

    def beat(self, group: str, member_id: str, epoch: int, **said: Any) -> Any:
        silent = dict.fromkeys(
            ("instance_id", "rack_id", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor", "topic_partitions")
        )
        head = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "rebalance_timeout": -1}
        return self.call(68, 1, {**head, **silent, **said})

    def told(self, group: str, member_id: str, epoch: int, **said: Any) -> Answer:
        """What a heartbeat is answered, without what may differ; the member takes it."""
        answer = self.beat(group, member_id, epoch, **said)
        assignment = None if answer.assignment is None else answer.assignment.topic_partitions
        if answer.error_code.value == 0:
            self._take(member_id, epoch, answer, said.get("instance_id"))
        total = None if assignment is None else sum(len(one.partitions) for one in assignment)
        return (answer.error_code.name, answer.error_message, answer.member_id, answer.member_epoch, total)

    def _take(self, member_id: str, epoch: int, answer: Any, instance_id: str | None) -> None:
        if epoch == -1:
            self.members.pop(member_id, None)
            return
        member = self.members.setdefault(member_id, Member())
        if epoch == 0:
            former = [one for one, it in self.members.items() if one != member_id and it.instance_id == instance_id]
            for one in former if instance_id is not None else ():
                del self.members[one]
            member.owned, member.instance_id = {}, instance_id or member.instance_id
        member.epoch = answer.member_epoch
        if answer.assignment is not None:
            member.told = {one.topic_id: tuple(one.partitions) for one in answer.assignment.topic_partitions}

    def described(self, group: str) -> Answer:
        (new,) = self.call(69, 1, {"group_ids": [group], "include_authorized_operations": False}).groups
        (old,) = self.call(15, 6, {"groups": [group], "include_authorized_operations": False}).groups
        listed = [one for one in self.call(16, 5, {"states_filter": [], "types_filter": []}).groups if one.group_id == group]
        members = sorted(
            (m.member_epoch, m.instance_id or "", m.subscribed_topic_regex, m.member_type, *shares(m))
            for m in new.members
        )  # fmt: skip
        return (
            (new.error_code.name, new.error_message, new.group_state, new.group_epoch, new.assignment_epoch, new.assignor_name),
            members,
            (old.error_code.name, old.error_message, old.group_state, old.protocol_type, len(old.members)),
            [(one.group_state, one.group_type, one.protocol_type) for one in listed],
        )

    def commit(self, group: str, member_id: str, epoch: int, version: int = 9) -> str:
        partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        asked = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": "t", "partitions": [partition]}],
        }
        return str(self.call(8, version, asked).topics[0].partitions[0].error_code.name)

    def fetch(self, group: str, member_id: str | None, epoch: int) -> str:
        asked = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": None}
        return str(self.call(9, 9, {"groups": [asked], "require_stable": True}).groups[0].error_code.name)


def shares(member: Any) -> tuple[int, int]:
    """How many partitions it has, and is meant to have."""
    has, meant = member.assignment.topic_partitions, member.target_assignment.topic_partitions
    return sum(len(one.partitions) for one in has), sum(len(one.partitions) for one in meant)


@pytest.fixture(scope="module")
def sides(java: None) -> Iterator[tuple[Side, Side]]:
    with (
        apache_kafka(nodes=1, config=CONFIG) as apache,
        SyncCluster(controllers=1, brokers=1, combined=True, config=CONFIG) as ours,
    ):
        found = Side(apache.bootstrap_servers), Side(ours.bootstrap_servers)
        yield found
        for side in found:
            side.close()


def agreed(sides: tuple[Side, Side], what: str, ask: Callable[[Side], Answer], so_far: list[str]) -> Answer:
    apache, ours = (ask(side) for side in sides)
    so_far.append(f"{what}: {apache}")
    assert ours == apache, "\n".join(so_far[-8:])
    return apache


# --- members of the new protocol -----------------------------------------------------------------------------------------


def settle(sides: tuple[Side, Side], group: str) -> None:
    """Everybody takes what it is told and says so, until nothing moves: then it matters not who has which of equal partitions."""
    for side in sides:
        for _ in range(3):
            for name, member in list(side.members.items()):
                member.owned = dict(member.told)
                owned = [{"topic_id": topic, "partitions": indexes} for topic, indexes in member.owned.items()]
                side.told(group, name, member.epoch, topic_partitions=owned, instance_id=member.instance_id)


def step(sides: tuple[Side, Side], group: str, rng: random.Random, number: int, so_far: list[str]) -> None:
    """A random move, put to both. Between two that change the assignment the group settles."""
    known = sides[0].members
    move = rng.choice(["join", "join", "beat", "beat", "beat", "beat", "leave", "back", "wrong", "rejoin", "describe", "commit"])
    if move == "describe":
        agreed(sides, move, lambda side: side.described(group), so_far)
        return
    if move in ("join", "leave", "back", "rejoin"):
        settle(sides, group)
    if move == "join" or not known:
        instance = rng.choice([None, None, f"i{rng.randint(1, 3)}"])
        agreed(sides, f"m{number} joins", lambda side: side.told(group, f"m{number}", 0, **JOIN, instance_id=instance), so_far)
        return
    name, ahead, hold = rng.choice(list(known)), rng.choice([0, 0, 1]), rng.random() < 0.3
    if move == "commit":
        agreed(sides, move, lambda s: (s.commit(group, name, s.members[name].epoch + ahead),), so_far)
        agreed(sides, "fetch", lambda s: (s.fetch(group, name, s.members[name].epoch + ahead),), so_far)
        return
    instance = known[name].instance_id
    if move == "back":
        agreed(sides, f"{name} leaves for a while", lambda s: s.told(group, name, -2, instance_id=instance), so_far)
        if instance is not None:
            agreed(sides, "and is back", lambda s: s.told(group, f"m{number}", 0, **JOIN, instance_id=instance), so_far)
        return
    said: dict[str, Any] = {"instance_id": instance}
    epoch = {"leave": -1, "rejoin": 0}.get(move)
    if move == "rejoin":
        said |= JOIN
    elif move == "wrong":
        name, epoch, more = rng.choice(
            [
                ("nobody", 1, {}), (name, -3, {}), (name, 99, {"topic_partitions": []}), (name, 0, {"topic_partitions": []}),
                (name, 0, {"rebalance_timeout": 1_000, "topic_partitions": []}), (name, None, {"server_assignor": "best"}),
            ]
        )  # fmt: skip
        said |= more

    def ask(side: Side) -> Answer:
        own = dict(said)
        if move == "beat" and not (hold and number % 2):
            member = side.members[name]
            member.owned = member.owned if hold else dict(member.told)
            own["topic_partitions"] = [{"topic_id": topic, "partitions": indexes} for topic, indexes in member.owned.items()]
        return side.told(group, name, side.members[name].epoch if epoch is None else epoch, **own)

    agreed(sides, f"{name}: {move} {said}", ask, so_far)


@pytest.mark.parametrize("seed", range(WALKS))
def test_members_come_hold_on_fail_and_go(sides: tuple[Side, Side], seed: int) -> None:
    rng, so_far = random.Random(seed), [f"seed {seed}"]
    for side in sides:
        side.members = {}
    for number in range(STEPS):
        step(sides, f"walk-{seed}", rng, number, so_far)


# --- both protocols in a group -------------------------------------------------------------------------------------------


def test_classic_members_are_upgraded_and_downgraded(sides: tuple[Side, Side]) -> None:
    logs: list[list[Any]] = []
    for side in sides:
        logs.append([])
        migrate(side, logs[-1].append)
    assert logs[1] == logs[0]


def migrate(side: Side, note: Callable[[Any], None]) -> None:
    """The life of a group with a classic and a new member; everything that either is told."""
    everything = [(topic, tuple(range(PARTITIONS))) for topic in TOPICS]

    def join(member_id: str, owned: Any = (), instance: str | None = None) -> tuple[str, int]:
        metadata = build_subscription(Subscription(1, TOPICS, tuple(owned)))
        head = {"group_id": "mixed", "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": member_id}
        protocol = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": metadata}], "reason": None}
        answer = side.call(11, 7, {**head, "group_instance_id": instance, **protocol})
        leads = answer.leader == answer.member_id
        note(("join", answer.error_code.name, answer.generation_id, answer.protocol_name, leads, len(answer.members)))
        return answer.member_id, answer.generation_id

    def sync(member_id: str, generation: int, assignments: Any = ()) -> Any:
        answer = side.call(
            14,
            5,
            {
                "group_id": "mixed",
                "generation_id": generation,
                "member_id": member_id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": member_id, "assignment": build_assignment(1, one)} for one in assignments],
            },
        )
        found = parse_assignment(answer.assignment)
        topics = () if found is None else found.topics
        note(("sync", answer.error_code.name, answer.protocol_type, answer.protocol_name, sum(len(one) for _, one in topics)))
        return topics

    def beat(member_id: str, generation: int) -> None:
        asked = {"group_id": "mixed", "generation_id": generation, "member_id": member_id, "group_instance_id": None}
        note(("heartbeat", side.call(12, 4, asked).error_code.name))

    def leave(*members: tuple[str, str | None]) -> None:
        leaving = [{"member_id": member, "group_instance_id": instance, "reason": None} for member, instance in members]
        answer = side.call(13, 5, {"group_id": "mixed", "members": leaving})
        note(("leave", answer.error_code.name, [one.error_code.name for one in answer.members]))

    def new(member_id: str, epoch: int, **said: Any) -> None:
        note(("new", side.told("mixed", member_id, epoch, **said)))

    x, _ = join("")
    x, generation = join(x)
    sync(x, generation, [everything])
    note(side.commit("mixed", x, 1, version=8))
    new("a", 3, topic_partitions=[])
    new("a", 0, **JOIN)
    note(side.described("mixed"))
    beat(x, 1)
    sync(x, 1)
    _, generation = join(x, everything)
    mine = sync(x, generation)
    beat(x, generation)
    new("a", 2)
    _, generation = join(x, mine)
    mine = sync(x, generation)
    beat(x, generation)
    new("a", 2)
    note(side.described("mixed"))
    for wrong in ((x, 99), ("nobody", 2), ("a", 2)):
        beat(*wrong)
    note(side.commit("mixed", x, generation + 5, version=8))
    join("", instance="static")
    beat(x, generation)
    leave(("", "static"), ("nobody", None), ("", "other"))
    _, generation = join(x, mine)
    sync(x, generation)
    new("a", 4)
    new("a", 2)
    note(side.described("mixed"))
    new("a", -1)
    note(side.described("mixed"))
    beat(x, generation)
    _, generation = join(x, mine)
    sync(x, generation, [everything])
    note(side.fetch("mixed", None, -1))
    leave((x, None))
    note(side.described("mixed"))
    new("b", 0, **JOIN)
    new("b", -1)
    note(side.described("mixed"))
