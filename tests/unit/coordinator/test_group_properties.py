"""Whatever members do, and whatever becomes of writes: invariant 35, and no request answered twice or never.

Clients are modelled with an eager assignor: they give up what they own before they join again, and own what the assignment of the
generation they are in says. The leader deals the partitions out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kraftlite.coordinator.api import JoinResult, SyncResult
from kraftlite.coordinator.classic.group import GroupState
from kraftlite.model.errors import ApiError, ErrorCode
from kraftlite.runtime.trace.group import GroupStateChanged
from tests.harness.group_world import GroupWorld

PARTITIONS = 6
SESSION_MS = 10_000


@dataclass
class Client:
    name: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    owned: tuple[int, ...] = ()
    joining: int | None = None
    syncing: int | None = None
    heard_ms: int = 0
    """When the coordinator last answered: without an answer for a session the client gives up what it owns."""
    result: JoinResult | None = None
    down: bool = False
    seen: list[int] = field(default_factory=list)

    def reset(self) -> None:
        self.member_id, self.generation, self.owned, self.result = "", -1, (), None


class Play:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = GroupWorld(
            seed, initial_rebalance_delay_ms=self.random.choice((0, 3_000)), max_size=self.random.choice((3, 100))
        )
        self.clients = [Client(f"c{n}", f"i{n}" if n % 3 == 0 else None) for n in range(5)]
        self.generation = 0
        """The largest that was answered since the last failover; a failover may lose one that was never completed."""

        self.completed = 0
        self.looked_at = 0

    # --- what a client does

    def join(self, client: Client) -> None:
        client.owned = ()
        client.syncing = None
        client.joining = self.world.join(
            client.member_id,
            instance_id=client.instance_id,
            client_id=client.name,
            session_ms=SESSION_MS,
            rebalance_ms=20_000,
            protocols={"eager": self.random.choice((b"x", b"x", b"y"))},
            require_id=self.random.random() < 0.8,
            can_skip=True,
        )

    def collect(self, client: Client) -> None:
        w = self.world
        if client.joining in w.answers:
            result = w.answers[client.joining]
            client.joining = None
            self.joined(client, result)
        if client.syncing in w.answers:
            result = w.answers[client.syncing]
            client.syncing = None
            self.synced(client, result)

    def joined(self, client: Client, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
        elif result.error is ErrorCode.NONE:
            assert result.generation >= self.generation, "the generation never falls"
            self.generation = result.generation
            client.member_id, client.generation, client.result = result.member_id, result.generation, result
            client.heard_ms = self.world.now_ms
        elif result.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            client.reset()

    def sync(self, client: Client) -> None:
        result = client.result
        assert result is not None
        assignments: dict[str, bytes] = {}
        if result.leader_id == client.member_id and result.members and not result.skip_assignment:
            ids = [member.member_id for member in result.members]
            for partition in range(PARTITIONS):
                owner = ids[partition % len(ids)]
                assignments[owner] = assignments.get(owner, b"") + bytes([partition])
        client.result = None
        client.syncing = self.world.sync(client.member_id, client.generation, assignments, instance_id=client.instance_id)

    def synced(self, client: Client, result: SyncResult | ApiError) -> None:
        if isinstance(result, SyncResult) and result.error is ErrorCode.NONE:
            client.owned = tuple(result.assignment)
            client.heard_ms = self.world.now_ms
        else:
            client.generation = -1

    def heartbeat(self, client: Client) -> None:
        error = self.world.heartbeat(client.member_id, client.generation, instance_id=client.instance_id)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            client.heard_ms = self.world.now_ms
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            client.generation, client.owned = -1, ()
        elif error is not ErrorCode.NONE:
            client.reset()

    def act(self, client: Client) -> None:
        """One move of a client that is up."""
        if client.joining is not None or client.syncing is not None:
            return
        if client.result is not None:
            self.sync(client)
        elif client.generation < 0:
            self.join(client)
        elif self.random.random() < 0.1:
            self.world.leave(client.member_id) if client.instance_id is None else None
            if client.instance_id is None:
                client.reset()
            else:
                client.owned, client.member_id, client.generation = (), "", -1  # restarts within its session
        elif self.random.random() < 0.1:
            client.generation, client.owned = -1, ()
        else:
            self.heartbeat(client)

    # --- what happens

    def turn(self) -> None:
        w, chance = self.world, self.random.random()
        client = self.random.choice(self.clients)
        if chance < 0.02:
            w.fail_over()
            self.check()
            self.generation = self.completed = w.group().generation if "g" in w.shard.groups.by_id else 0
        elif chance < 0.06:
            client.down = not client.down
        elif chance < 0.12:
            w.hold = not w.hold
            if not w.hold:
                self.random.choice((w.commit_held, lambda: w.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)))()
            elif self.random.random() < 0.5:
                w.be_late()
        elif chance < 0.35:
            w.advance(self.random.choice((1, 500, 3_000)))
        elif not client.down:
            self.act(client)
        for one in self.clients:
            self.collect(one)
            if w.now_ms - one.heard_ms >= SESSION_MS:
                one.owned = ()

    def check(self) -> None:
        for event in self.world.tracer.events[self.looked_at :]:
            if isinstance(event, GroupStateChanged) and event.previous == "PreparingRebalance":
                assert event.generation > self.completed, "every completed join is a generation of its own"
                self.completed = event.generation
        self.looked_at = len(self.world.tracer.events)
        group = self.world.shard.groups.by_id.get("g")
        if group is not None:
            if group.state is not GroupState.PREPARING_REBALANCE:  # which may wait for those who were given an id
                assert bool(group.members) == (group.state not in (GroupState.EMPTY, GroupState.DEAD)), group.state
            assert (group.leader_id in group.members) == bool(group.members)
            assert {i: m for m, member in group.members.items() if (i := member.instance_id)} == group.static
        owners: dict[int, str] = {}
        for client in self.clients:
            for partition in client.owned:
                assert partition not in owners, f"{partition} is owned by {owners[partition]} and {client.name}"
                owners[partition] = client.name


@pytest.mark.parametrize("seed", range(60))
def test_inv_35_nobody_shares_a_partition_and_generations_grow(seed: int) -> None:
    play = Play(seed)
    for _ in range(400):
        play.turn()
        play.check()
    # Liveness: everybody is up, writes succeed, and the group becomes stable with as many members as may be.
    w = play.world
    w.hold = False
    w.commit_held()
    for client in play.clients:
        client.down = False
    for _ in range(400):
        for client in play.clients:
            play.collect(client)
            if client.joining is None and client.syncing is None:
                if client.result is not None:
                    play.sync(client)
                elif client.generation < 0:
                    play.join(client)
                else:
                    play.heartbeat(client)
        w.advance(500)
        play.check()
    assert w.unanswered() == []
    room = min(len(play.clients), w.config.max_size)
    assert w.state() == "Stable"
    assert len(w.group().members) == room
    if room == len(play.clients):
        assert sorted(p for client in play.clients for p in client.owned) == list(range(PARTITIONS))


def test_the_same_seed_plays_the_same() -> None:
    def story(seed: int) -> list[str]:
        play = Play(seed)
        for _ in range(200):
            play.turn()
        return [f"{event.event} {event.facts()}" for event in play.world.tracer.events]

    assert story(3) == story(3) != story(4)
