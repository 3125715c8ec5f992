"""The simulation of `test_raft_sim` for quorums whose voters are in the log: voters are added and removed, disks are replaced,
and controllers join by themselves, amid the same faults. Beside its invariants: committed sets of voters are one sequence for
everybody, and each differs by one step from the set before it.

    KRAFTLITE_RAFT_SEEDS=5000 pytest tests/sim/raft          more seeds
    KRAFTLITE_VOTERS_SEED=4711 pytest tests/sim/raft         one seed, with its trace
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest

from kraftlite.log.control import KRaftVoters
from kraftlite.model.errors import ErrorCode
from kraftlite.model.messages.raft import OffsetAndEpoch
from kraftlite.raft.states import Leader
from kraftlite.raft.voters import voters_of_record
from tests.harness.raft_changes import Call, add, remove
from tests.harness.raft_cluster import SimNode
from tests.harness.raft_voters import LISTENER, VoterCluster, controls
from tests.sim.raft.test_raft_sim import SEEDS as ALL_SEEDS
from tests.sim.raft.test_raft_sim import Simulation

SEEDS = max(1, ALL_SEEDS // 4)
CHUNK = 10
ONE_SEED = os.environ.get("KRAFTLITE_VOTERS_SEED")


class VoterSimulation(Simulation):
    """One run. Its faults and changes are drawn from the seed too."""

    cluster: VoterCluster

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.hostile_rate = 0.0
        self.change_rate = self.rng.choice((0.005, 0.02))
        self.sets: list[tuple[int, KRaftVoters]] = []
        """Every committed set with its offset."""
        self.calls: list[Call] = []
        self.out_of_office: dict[tuple[int, int, int], int] = {}
        """The time at which a leader, in an incarnation and an epoch, was first seen without being a voter any more."""
        self.outlived = 0
        """Leaders that were lost amid an addition when all else had healed."""
        self.looked_at: dict[tuple[int, int], OffsetAndEpoch] = {}
        """The latest snapshot of each incarnation that was compared with its log."""

    def make_cluster(self, voters: Sequence[int], observers: Sequence[int], **options: Any) -> VoterCluster:
        rng = self.rng
        initial = rng.choice(((1,), (1, 2, 3), (1, 2, 3), (1, 2, 3, 4)))
        spares = range(len(initial) + 1, len(initial) + rng.randint(1, 2) + 1)
        broker = len(initial) + len(spares) + 1
        return VoterCluster(initial, spares, (broker,), auto_join=rng.random() < 0.3, **options)

    def may_wipe(self, node: SimNode) -> bool:
        """Every controller may have become a voter. What happens to one that loses its disk, `replace_a_disk` shows."""
        return node.id in self.cluster.brokers

    def step(self) -> None:
        if self.rng.random() < self.change_rate:
            self.change()
        super().step()
        self.check_sets()

    def change(self) -> None:
        rng, cluster = self.rng, self.cluster
        leaders = [node for node in self.nodes if node.alive and isinstance(node.core.state, Leader)]
        draw = rng.random()
        if draw < 0.15:
            self.replace_a_disk()
        elif leaders:
            leader = rng.choice(leaders)
            voters = leader.core.voters
            if draw < 0.6:
                node_id = rng.choice([node.id for node in self.nodes if node.id not in cluster.brokers])
                request: Any = add(node_id, directory=cluster.key(node_id).directory_id, wait=rng.random() < 0.7)
            else:
                # While a voter has lost its disk, a sane administrator removes nobody else: a majority must be left.
                lost = [voter for voter in voters.voters if voter.key != cluster.key(voter.id)]
                if not lost and self.lost_somewhere():
                    return
                gone = rng.choice(lost or voters.voters)
                request = remove(gone.id, directory=gone.directory_id)
            self.calls.append(Call(cluster, leader, request))

    def replace_a_disk(self) -> None:
        """Only while no other disk that counts somewhere is gone: a majority of each set keeps what it has promised."""
        cluster = self.cluster
        live = [node.core.voters for node in self.nodes if node.alive]
        if len(live) < len(self.nodes) or any(0 < len(voters) < 3 for voters in live) or self.lost_somewhere():
            return
        node = self.rng.choice([node for node in self.nodes if node.id not in cluster.brokers])
        node.crash()
        cluster.replace_disk(node.id)
        self.checker.forget(node)
        node.start()

    def lost_somewhere(self) -> bool:
        """Return whether a set that counts at some node, running or not, has an entry whose disk is gone."""
        sets = [node.core.voters for node in self.nodes if node.alive]
        return len(sets) < len(self.nodes) or any(key != self.cluster.key(key.id) for voters in sets for key in voters.keys)

    def check_sets(self) -> None:
        for node in self.nodes:
            if node.alive:
                self.check_sets_of(node)
                self.check_snapshot_of(node)
                self.check_office_of(node)

    def check_sets_of(self, node: SimNode) -> None:
        """The committed sets are one sequence."""
        committed, membership = node.core.committed_offset, node.core.metalog.membership
        offset = membership.voters_offset
        if committed is None or offset is None or offset < 0 or offset >= committed or not membership.voters.voters:
            return
        said = membership.voters.to_record()
        known = dict(self.sets)
        if offset not in known:
            self.sets.append((offset, said))
            self.sets.sort(key=lambda it: it[0])
        else:
            assert known[offset] == said, f"12: node {node.id} has another set at offset {offset}"

    def check_office_of(self, node: SimNode) -> None:
        """A leader whose removal it knows to be committed leaves its office within a request timeout."""
        core, state = node.core, node.core.state
        removed_at = core.metalog.membership.voters_offset
        stays = isinstance(state, Leader) and not core.voters.contains(node.config.key) and removed_at is not None
        key = (node.id, node.incarnation, state.epoch)
        if stays and isinstance(state, Leader) and state.hw is not None and state.hw > (removed_at or 0):
            since = self.out_of_office.setdefault(key, node.now_ms)
            late_ms = node.now_ms - since
            assert late_ms <= node.config.request_timeout_ms, f"12: node {node.id} leads {late_ms} ms after its removal"

    def check_snapshot_of(self, node: SimNode) -> None:
        """A snapshot has the voters that the log says last before its end, where the log still says any there."""
        snapshots, key = node.core.metalog.snapshots, (node.id, node.incarnation)
        latest = snapshots.latest
        if latest is None or self.looked_at.get(key) == latest:
            return
        self.looked_at[key] = latest
        said = [it for at, it in controls(node) if isinstance(it, KRaftVoters) and at < latest.offset]
        with node.core.metalog.open_reader(latest) as reader:
            told = [it for it in reader.controls() if isinstance(it, KRaftVoters)]
        assert not said or told == said[-1:], f"12: the snapshot {latest} of node {node.id} has {told}, the log {said[-1:]}"

    def converge(self) -> None:
        super().converge()
        leader = self.cluster.leader()
        found = [(at, said) for at, said in controls(leader) if isinstance(said, KRaftVoters)]
        for (_, before), (at, after) in itertools.pairwise(found):
            one, other = voters_of_record(before, LISTENER), voters_of_record(after, LISTENER)
            assert other.is_one_step_from(one), f"12: {one} is followed by {other} at offset {at}"
        for call in self.calls:
            assert call.answer is None or call.answer.error in ANSWERS, f"{call.answer}"
        self.lose_the_leader_of_an_addition()

    def lose_the_leader_of_an_addition(self) -> None:
        """Liveness: a leader dies for good when the others have committed its addition of a voter that has not read so (15)."""
        cluster, leader = self.cluster, self.cluster.leader()
        spares = [node for node in self.nodes if node.id not in cluster.brokers and node.id not in leader.core.voters.ids]
        if not spares or len(leader.core.voters) < 2 or not leader.core.voters.contains(leader.config.key):
            return
        new = self.rng.choice(spares)
        Call(cluster, leader, add(new.id, directory=cluster.key(new.id).directory_id))
        for _ in range(2_000):
            if new.id in leader.core.voters.ids or not isinstance(leader.core.state, Leader):
                break
            if cluster.network:
                cluster.deliver(cluster.network[0])
            else:
                cluster.run(5)
        if new.id not in leader.core.voters.ids:
            return  # it had not caught up
        cluster.cut(leader.id, new.id)
        appended_at = leader.core.metalog.membership.voters_offset or 0
        if cluster.run(1_000, until=lambda: (leader.core.high_watermark or 0) > appended_at):
            leader.crash()
            cluster.heal()
            self.outlived += 1
            assert cluster.run(30_000, step_ms=20, until=cluster.has_leader), (
                f"15: no leader after node {leader.id}: {[(n.id, n.core.state_name) for n in self.nodes if n.alive]}"
            )


ANSWERS = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
    )
)


def run_seed(seed: int, verbose: bool = False) -> VoterSimulation:
    simulation = VoterSimulation(seed)
    if verbose:
        simulation.cluster.on_event = lambda node, event: print(node.now_ms, node.id, event.event, event.facts())
    try:
        simulation.run()
    except BaseException:
        print(f"reproduce with KRAFTLITE_VOTERS_SEED={seed} pytest tests/sim/raft")
        raise
    return simulation


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK) if ONE_SEED is None else [int(ONE_SEED)])
def test_invariants_hold_while_voters_change(first: int) -> None:
    if ONE_SEED is not None:
        run_seed(first, verbose=True)
        return
    for seed in range(first, min(first + CHUNK, SEEDS)):
        run_seed(seed)


def test_voters_really_change() -> None:
    simulations = [run_seed(seed) for seed in range(12)]
    assert sum(len(simulation.sets) for simulation in simulations) > 24
    answered = [call.answer.error for simulation in simulations for call in simulation.calls if call.answer is not None]
    assert {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND} <= set(answered)
    assert any(simulation.cluster.disks for simulation in simulations), "a disk was replaced"
    assert sum(simulation.outlived for simulation in simulations) > 2
