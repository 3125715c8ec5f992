"""Groups of the new protocol in a shard with a clock moved by hand: members, topics, and what must always hold."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from kraftlite.coordinator.api import ConsumerHeartbeatRequest, ConsumerHeartbeatResult
from kraftlite.coordinator.consumer_protocol import Subscription, build_subscription, parse_assignment
from kraftlite.coordinator.modern.group import ConsumerGroup
from kraftlite.coordinator.modern.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Member
from kraftlite.coordinator.shard_core import GroupShard, MetadataChanged
from kraftlite.metadata.image import ConfigurationsImage, MetadataImage, MetadataProvenance, TopicImage, TopicsImage
from kraftlite.metadata.pmap import PMap
from kraftlite.model.errors import ApiError, ErrorCode
from tests.harness.group_world import GroupWorld
from tests.harness.wire_fakes import partition

_IMAGE = MetadataImage.EMPTY


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().rjust(16, b"\x01")[:16])


def image_of(topics: Mapping[str, int], *, offset: int, configs: Mapping[str, Mapping[str, str]] | None = None) -> MetadataImage:
    """Topics by name with their number of partitions; configs by group."""
    found = {
        name: TopicImage(name=name, topic_id=topic_id(name), partitions=PMap(dict(enumerate([partition([1])] * topics[name]))))
        for name in sorted(topics)
    }
    return replace(
        _IMAGE,
        provenance=MetadataProvenance(
            last_contained_offset=offset, last_contained_epoch=1, last_contained_log_time_ms=0, is_offset_batch_aligned=True
        ),
        topics=TopicsImage(by_id=PMap({topic.topic_id: topic for topic in found.values()}), by_name=PMap(found)),
        configs=ConfigurationsImage(resources=PMap({(32, name): PMap(dict(own)) for name, own in (configs or {}).items()})),
    )


@dataclass(slots=True)
class Client:
    """A member as its client sees it: `owned` is what it uses now; it takes and gives up at once unless `holds_on`."""

    member_id: str
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    told: dict[UUID, frozenset[int]] = field(default_factory=dict)
    holds_on: bool = False
    joined: dict[str, Any] = field(default_factory=dict)

    def take(self, result: ConsumerHeartbeatResult) -> None:
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.told = {topic: frozenset(indexes) for topic, indexes in result.assignment}
            if not self.holds_on:
                self.owned = dict(self.told)

    @property
    def names(self) -> list[str]:
        """`t0`, `t1`… of what it uses."""
        return sorted(f"{topic.bytes.strip(bytes([1])).decode()}{i}" for topic, indexes in self.owned.items() for i in indexes)


class ConsumerWorld(GroupWorld):
    """`beat` sends a heartbeat of a client and gives its answer or raises. Assignments are made at once.

    After each step the group in memory must be the one in the log, and no partition may be used by two clients.
    """

    def __init__(self, topics: Mapping[str, int] | None = None, **config: Any) -> None:
        self.topics = dict(topics or {"t": 4})
        self.configs: dict[str, dict[str, str]] = {}
        self.metadata_offset = 100
        self.clients: dict[str, Client] = {}
        super().__init__(**{"consumer_assignment_interval_ms": 0, **config})

    def _load(self) -> GroupShard:
        self.seed += 1
        shard = GroupShard(self.config, self.tracer, random.Random(self.seed), self.image())
        for key, value, producer_id in self.log:
            shard.replay(key, value, producer_id=producer_id, wall_ms=self.wall_ms)
        list(shard.settle(self.now_ms, self.wall_ms))
        self._take(shard.loaded(self.now_ms, self.wall_ms))
        return shard

    def image(self) -> MetadataImage:
        return image_of(self.topics, offset=self.metadata_offset, configs=self.configs)

    def change_topics(self, **sizes: int) -> None:
        """Create a topic, give it partitions, or delete it (0)."""
        created = any(size and name not in self.topics for name, size in sizes.items())
        self.topics = {name: size for name, size in {**self.topics, **sizes}.items() if size}
        self.metadata_offset += 1
        self.step(MetadataChanged(image=self.image(), topics=tuple(sizes), created=created))

    def configure(self, group_id: str, **values: str) -> None:
        self.configs[group_id] = {name.replace("_", "."): value for name, value in values.items()}
        self.step(MetadataChanged(image=self.image(), topics=(), created=False))

    # --- members ------------------------------------------------------------------------------------------------------

    def ask_beat(self, member_id: str, epoch: int, *, group_id: str = "g", **said: Any) -> int:
        owned = said.get("owned")
        return self.ask(
            ConsumerHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=said.get("instance_id"),
                rack_id=said.get("rack_id"),
                rebalance_timeout_ms=said.get("rebalance_ms"),
                topics=said.get("topics"),
                regex=said.get("regex"),
                sees=said.get("sees"),
                server_assignor=said.get("assignor"),
                owned=None if owned is None else tuple((topic, tuple(indexes)) for topic, indexes in owned.items()),
                client_id=said.get("client_id", "c"),
                client_host="/127.0.0.1",
            )
        )

    def result(self, request_id: int) -> ConsumerHeartbeatResult:
        answer = self.answers[request_id]
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, ConsumerHeartbeatResult)
        return answer

    def enter(self, member_id: str, **said: Any) -> Client:
        """A member of the new protocol joins; `join` is for those of the classic one."""
        client = Client(member_id)
        said = {"rebalance_ms": 60_000, "topics": None if "regex" in said else ("t",), **said}
        client.take(self.result(self.ask_beat(member_id, JOIN_EPOCH, owned={}, **said)))
        client.joined = said
        self.clients[member_id] = client
        self.check()
        return client

    def beat(self, client: Client, **said: Any) -> ConsumerHeartbeatResult:
        """Says what it owns; `owned=None` to say nothing."""
        known = {key: client.joined[key] for key in ("instance_id", "group_id") if key in client.joined}
        said = {"owned": client.owned, **known, **said}
        result = self.result(self.ask_beat(client.member_id, client.epoch, **said))
        client.take(result)
        self.check()
        return result

    def quit(self, client: Client, *, for_a_while: bool = False) -> None:
        epoch = STATIC_LEAVE_EPOCH if for_a_while else LEAVE_EPOCH
        known = {key: client.joined[key] for key in ("instance_id", "group_id") if key in client.joined}
        self.result(self.ask_beat(client.member_id, epoch, **known))
        self.clients.pop(client.member_id, None)
        self.check()

    def settle(self, *clients: Client, rounds: int = 10) -> None:
        """Everybody beats until nothing moves."""
        everybody = list(clients) or list(self.clients.values())
        for _ in range(rounds):
            before = [(client.epoch, dict(client.owned)) for client in everybody]
            for client in everybody:
                self.beat(client)
            if before == [(client.epoch, dict(client.owned)) for client in everybody]:
                return
        raise AssertionError(f"not settled after {rounds} rounds: {everybody}")

    def refused(self, member_id: str, epoch: int, **said: Any) -> ErrorCode:
        answer = self.answers[self.ask_beat(member_id, epoch, **said)]
        assert isinstance(answer, ApiError), answer
        return answer.code

    # --- looking ------------------------------------------------------------------------------------------------------

    def consumers(self, group_id: str = "g") -> ConsumerGroup:
        return self.shard.consumers.by_id[group_id]

    def member(self, member_id: str, group_id: str = "g") -> Member:
        return self.consumers(group_id).members[member_id]

    def kinds(self) -> list[int]:
        """Of the keys in the log."""
        return [int.from_bytes(key[:2], "big") for key, _, _ in self.log]

    def check(self) -> None:
        """No partition is used by two; members hold what they use; the log says what memory says."""
        used: dict[tuple[str, UUID, int], str] = {}
        for client in self.clients.values():
            group = client.joined.get("group_id", "g")
            for topic, indexes in client.owned.items():
                for index in indexes:
                    other = used.setdefault((group, topic, index), client.member_id)
                    assert other == client.member_id, f"{topic}-{index} is used by {other} and {client.member_id}"
        if self.hold or self.held:
            return
        other = GroupShard(self.config, self.tracer, random.Random(0), self.image())
        for key, value, producer_id in self.log:
            other.replay(key, value, producer_id=producer_id, wall_ms=self.wall_ms)
        assert sorted(other.consumers.by_id) == sorted(self.shard.consumers.by_id)
        for group_id, group in self.shard.consumers.by_id.items():
            assert_same(group, other.consumers.by_id[group_id])


def assert_same(one: ConsumerGroup, other: ConsumerGroup) -> None:
    assert one.members == other.members
    assert one.static == other.static
    assert (one.epoch, one.metadata_hash, one.target_epoch) == (other.epoch, other.metadata_hash, other.target_epoch)
    assert one.target == other.target
    assert one.regexes == other.regexes
    for member in one.members.values():
        for topic, indexes in (*member.assigned.items(), *member.revoking.items()):
            assert all(one.is_held(topic, index) and other.is_held(topic, index) for index in indexes)


def classic_metadata(*topics: str, owned: Iterable[tuple[str, tuple[int, ...]]] = ()) -> bytes:
    return build_subscription(Subscription(1, topics, tuple(owned)))


def classic_protocols(*topics: str, owned: Iterable[tuple[str, tuple[int, ...]]] = ()) -> dict[str, bytes]:
    """As a consumer of the classic protocol offers them."""
    metadata = classic_metadata(*topics, owned=owned)
    return {"range": metadata, "cooperative-sticky": metadata}


def assigned_partitions(data: bytes) -> dict[str, tuple[int, ...]]:
    found = parse_assignment(data)
    assert found is not None
    return dict(found.topics)
