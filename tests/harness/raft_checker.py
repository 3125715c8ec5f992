"""The raft invariants of a cluster, checked after every step. Numbers are those of docs/spec/invariants.md."""

from __future__ import annotations

from kraftlite.log.batch import iter_batches
from kraftlite.model.ids import NodeId
from kraftlite.raft.quorum_state import parse
from kraftlite.raft.states import Candidate, Leader, Prospective, Unattached
from kraftlite.raft.voters import Voter
from tests.harness.raft_cluster import DIRECTORY, RaftCluster, SimNode


class InvariantChecker:
    """Attach with `cluster.on_step = checker.check`. Raises AssertionError with the invariant's number."""

    def __init__(self, cluster: RaftCluster) -> None:
        self.cluster = cluster
        self.leaders: dict[int, NodeId] = {}
        self.votes: dict[tuple[object, int], tuple[int, object]] = {}
        self.epochs: dict[NodeId, int] = {}
        self.hw: dict[tuple[NodeId, int], int] = {}
        self.durable: dict[NodeId, int] = {}
        self.committed: dict[int, tuple[int, bytes]] = {}
        """Batches by base offset: (epoch, bytes behind the base offset and epoch)."""
        self.committed_end = 0
        self.checked: dict[tuple[NodeId, int], int] = {}
        self.led: set[tuple[NodeId, int]] = set()
        self.led_hw: dict[tuple[NodeId, int], int] = {}
        self.applied: list[str] = []
        self.checks = 0

    def forget(self, node: SimNode) -> None:
        """The node has lost its disk."""
        self.epochs.pop(node.id, None)
        self.durable.pop(node.id, None)

    def check(self, node: SimNode) -> None:
        self.checks += 1
        core, state = node.core, node.core.state
        election = state.election()
        if election.leader_id is not None:
            known = self.leaders.setdefault(state.epoch, election.leader_id)
            assert known == election.leader_id, f"1: two leaders in epoch {state.epoch}: {known}, {election.leader_id}"
        assert core.epoch >= self.epochs.get(node.id, 0), "2: epoch went back"
        self.epochs[node.id] = core.epoch
        if election.voted is not None:
            vote = self.votes.setdefault((node.config.key, state.epoch), election.voted)
            assert vote == election.voted, f"3: node {node.id} voted twice in epoch {state.epoch}: {vote}, {election.voted}"
        if not core.voters.contains(node.config.key):
            stands = isinstance(state, Candidate | Prospective) and not core._ctx.may_stand
            assert not stands, f"10: observer {node.id} is {state.name}"
            if isinstance(state, Leader):
                assert not core.metalog.membership.is_static, f"10: observer {node.id} leads"
        if isinstance(state, Unattached):
            assert core.state_name in ("unattached", "observer"), "10: unattached"
        self._check_log(node)
        if isinstance(state, Leader):
            self._check_leader(node, state)
        self.durable[node.id] = min(core.metalog.log.recovery_point, core.leo)

    def _check_log(self, node: SimNode) -> None:
        core = node.core
        start = core.metalog.log_start_offset
        assert start == 0 or any(s.offset >= start for s in core.metalog.snapshots.ids), f"11: node {node.id} starts at {start}"
        hw = core.committed_offset
        if hw is None:
            return
        assert hw <= core.leo, "7: HW above LEO"
        key = (node.id, node.incarnation)
        assert hw >= self.hw.get(key, 0), "7: HW went back"
        self.hw[key] = hw
        self._check_prefix(node, max(self.checked.get(key, 0), start), hw)
        self.checked[key] = hw

    def _check_prefix(self, node: SimNode, start: int, end: int) -> None:
        offset = start
        while offset < end:
            data = node.core.metalog.log.read(offset, 1 << 20, up_to=end)
            assert data, f"4: node {node.id} has no batch at {offset}, its HW is {end}"
            for header, raw in iter_batches(data):
                entry = (header.partition_leader_epoch, bytes(raw[16:]))
                known = self.committed.setdefault(header.base_offset, entry)
                assert known == entry, f"4: node {node.id} differs at offset {header.base_offset}: {known} {entry}"
                offset = header.next_offset
        self.committed_end = max(self.committed_end, end)

    def _check_leader(self, node: SimNode, state: Leader) -> None:
        core = node.core
        if (node.id, state.epoch) not in self.led:
            self.led.add((node.id, state.epoch))
            assert core.leo >= self.committed_end, (
                f"5: leader {node.id} lacks committed offsets: {core.leo} < {self.committed_end}"
            )
            self._check_prefix(node, core.metalog.log_start_offset, self.committed_end)
            stored = parse(node.disk.read_file(f"{DIRECTORY}/quorum-state"), "quorum-state")
            assert stored.leader_id == node.id and stored.epoch == state.epoch, f"1: disk says {stored}"
        if state.hw is not None and self.led_hw.get((node.id, state.epoch)) != state.hw:
            # Those who count are the voters of the moment in which it moved; a later set has to catch up with it.
            self.led_hw[node.id, state.epoch] = state.hw
            assert state.hw > state.epoch_start_offset, "9: HW without anything of its own epoch"
            self.durable[node.id] = min(core.metalog.log.recovery_point, core.leo)
            holders = [it.id for it in core.voters.voters if self._holds(it) and self.durable.get(it.id, 0) >= state.hw]
            assert len(holders) >= core.voters.majority, f"6: HW {state.hw} is durable only on {holders}: {self.durable}"

    def _holds(self, voter: Voter) -> bool:
        """Return whether the disk that this node has now is the one that votes."""
        return voter.directory_id in (None, self.cluster[voter.id].config.directory_id)

    def check_applied(self) -> None:
        """All state machines have applied a prefix of one sequence, no value twice (13)."""
        for node in self.cluster.nodes.values():
            records = node.recorder.records
            assert len(set(records)) == len(records), "13: a value was applied twice"
            shorter = min(len(records), len(self.applied))
            assert records[:shorter] == self.applied[:shorter], f"4: node {node.id} applied another sequence"
            if len(records) > len(self.applied):
                self.applied = list(records)
