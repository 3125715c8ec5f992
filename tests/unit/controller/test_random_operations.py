"""Random operations on a quorum of cores, with slow commits, lost leaders and reverts: invariants 18 to 23 after each event."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraftlite.model.errors import ErrorCode
from kraftlite.model.ids import NodeId
from kraftlite.model.messages import controller as m
from tests.harness.controller_world import Answer, Node, World, check_invariants


class Run:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(
            3, max_idle_interval_ms=3_000, preferred_election_interval_ms=7_000, unclean_election_interval_ms=11_000
        )
        self.world.commit_at_once = False
        self.incarnation: dict[int, int] = {}
        self.names = 0
        self.pending: list[tuple[Answer, int]] = []
        self.blocks: list[tuple[int, int]] = []
        self.epochs_seen: dict[tuple[int, Any, int], tuple[int, int]] = {}
        self.last_hash: dict[int, str] = {}

    def active(self) -> Node | None:
        return next((node for node in self.world.nodes.values() if node.core.active and node.core.activated), None)

    def topics(self) -> list[str]:
        return list(self.world.state.replication.topic_ids)

    def step(self) -> None:
        rng, world = self.rng, self.world
        if self.active() is None:
            world.quorum.elect(rng.choice([100, 101, 102]))
            world.settle()
            return
        broker = rng.randrange(1, 6)
        choices = [
            "register",
            "beat",
            "beat",
            "beat",
            "beat",
            "create",
            "delete",
            "isr",
            "isr",
            "isr",
            "isr",
            "elect",
            "config",
            "ids",
        ]
        choices += ["commit", "commit", "commit", "time", "time", "failover", "grow", "unregister"]
        choice = rng.choice(choices)
        getattr(self, f"do_{choice}")(broker)

    def note(self, answer: Answer) -> None:
        if answer.done:
            assert answer.code is not ErrorCode.UNKNOWN_SERVER_ERROR, answer.error

    def do_register(self, broker: int) -> None:
        incarnation = self.incarnation.get(broker, 1) + self.rng.randrange(2)
        self.incarnation[broker] = incarnation
        self.note(self.world.register(broker, incarnation=incarnation, rack=f"r{broker % 2}"))
        registration = self.world.state.cluster.brokers.get(NodeId(broker))
        if registration is not None:
            self.world.epochs[broker] = registration.broker_epoch

    def do_beat(self, broker: int) -> None:
        offset = self.rng.choice([0, self.world.quorum.leo])
        want = self.rng.random()
        self.note(self.world.heartbeat(broker, offset=offset, want_fence=want < 0.1, want_shut_down=want > 0.85))

    def do_create(self, _broker: int) -> None:
        self.names += 1
        configs = {"unclean.leader.election.enable": "true"} if self.rng.random() < 0.3 else {}
        topic = self.world.topic(f"t{self.names}", self.rng.randrange(1, 5), self.rng.randrange(1, 4), configs=configs)  # type: ignore[arg-type]
        self.note(self.world.create_many(topic))

    def do_delete(self, _broker: int) -> None:
        if self.topics():
            self.note(self.world.delete(self.rng.choice(self.topics())))

    def do_grow(self, _broker: int) -> None:
        if self.topics():
            topic = m.CreatePartitionsTopic(name=self.rng.choice(self.topics()), count=self.rng.randrange(1, 7), assignments=None)
            request = m.CreatePartitionsRequest(topics=(topic,), validate_only=False, timeout_ms=1)
            state = self.world.state
            self.note(self.world.submit("grow", lambda _now: state.topics.create_partitions(request)))

    def do_isr(self, _broker: int) -> None:
        if self.topics():
            name = self.rng.choice(self.topics())
            info = self.world.state.replication.topic(name)
            index = self.rng.choice(list(info.partitions))
            partition = info.partitions[index]
            if partition.leader is None:
                return
            members = [r for r in partition.replicas if r == partition.leader or self.rng.random() < 0.6]
            self.rng.shuffle(members)
            recovering = partition.recovering and self.rng.random() < 0.5
            self.note(self.world.alter_partition(members, topic=name, index=index, recovering=recovering))

    def do_elect(self, _broker: int) -> None:
        self.note(self.world.elect(self.rng.randrange(2), everything=True))

    def do_config(self, _broker: int) -> None:
        change = ("unclean.leader.election.enable", 0, self.rng.choice(["true", "false"]))
        if self.topics():
            self.note(self.world.set_config(2, self.rng.choice(self.topics()), change))

    def do_ids(self, broker: int) -> None:
        state = self.world.state
        request = m.AllocateProducerIdsRequest(broker_id=NodeId(broker), broker_epoch=self.world.epochs.get(broker, -1))
        answer = self.world.submit("ids", lambda _now: state.producer_ids.allocate(request))
        self.pending.append((answer, 0))

    def do_commit(self, _broker: int) -> None:
        self.world.quorum.commit(self.rng.choice([1, 2, None]))
        self.world.settle()

    def do_time(self, _broker: int) -> None:
        self.world.now_ms += self.rng.choice([100, 1_500, 3_000])
        self.world.settle()

    def do_failover(self, _broker: int) -> None:
        if self.rng.random() < 0.2:
            self.world.quorum.elect(self.rng.choice([100, 101, 102, None]))
            self.world.settle()

    def do_unregister(self, broker: int) -> None:
        if self.rng.random() < 0.1:
            state = self.world.state
            self.note(self.world.submit("unregister", lambda _now: state.elections.unregister(NodeId(broker))))

    def check(self) -> None:
        """Invariants 18 to 23."""
        for answer, _ in [pair for pair in self.pending if pair[0].done]:
            if answer.error is None:
                self.blocks.append((answer.response.first_producer_id, answer.response.count))
        self.pending = [pair for pair in self.pending if not pair[0].done]
        starts = [first for first, _ in self.blocks]
        assert len(set(starts)) == len(starts), "overlapping producer id blocks"
        hashes: dict[int, str] = {}
        for node in self.world.nodes.values():
            core = node.core
            check_invariants(core)
            assert core.offsets.stable_offset <= core.offsets.committed_offset
            for broker in core.state.cluster.brokers.values():
                assert broker.broker_epoch <= core.state.cluster.registration_offsets[broker.broker_id]
            if not core.active and core.offsets.committed_offset == self.world.quorum.high_watermark - 1:
                hashes.setdefault(core.offsets.committed_offset, core.state_hash())
                assert core.state_hash() == hashes[core.offsets.committed_offset], "standbys differ"

    def check_committed_history(self) -> None:
        """Invariant 21 and 22 on the committed log: replay it record by record and watch the epochs."""
        watcher = World(1, elect=False)
        state = watcher.nodes[100].core.state
        epochs: dict[tuple[Any, int], tuple[int, int]] = {}
        broker_epochs: dict[int, int] = {}
        for batch in self.world.quorum.batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                state.replay(record, offset)
                index = getattr(record, "partition", None)
                if index is not None:
                    partition = state.replication.topics[record.topic_id].partitions[index]
                    before = epochs.get((record.topic_id, index))
                    now = (partition.leader_epoch, partition.partition_epoch)
                    if before is not None:
                        assert now[0] in (before[0], before[0] + 1)
                        assert now[1] == before[1] + 1
                    epochs[record.topic_id, index] = now
                if type(record).__name__ == "RegisterBrokerRecord":
                    assert record.broker_epoch >= broker_epochs.get(record.broker_id, -1)
                    broker_epochs[record.broker_id] = record.broker_epoch
        assert state.hash() == next(iter(self.world.nodes.values())).core.state_hash()


@pytest.mark.parametrize("seed", range(30))
def test_invariants_hold_on_random_histories(seed: int) -> None:
    run = Run(seed)
    for _ in range(500):
        run.step()
        run.check()
    world = run.world
    world.commit_at_once = True
    world.quorum.elect(100)
    world.settle()
    assert len({node.core.state_hash() for node in world.nodes.values()}) == 1
    run.check_committed_history()


def test_same_seed_same_trace() -> None:
    traces = []
    for _ in range(2):
        run = Run(7)
        for _ in range(150):
            run.step()
        traces.append([str(event) for node in run.world.nodes.values() for event in node.tracer.events])
    assert traces[0] == traces[1]
