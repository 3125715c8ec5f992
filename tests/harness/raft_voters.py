"""A `RaftCluster` whose voters are in the log (KIP-853): formatted nodes, spare controllers, brokers, disks that are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from kraftlite.log.batch import iter_batches, iter_records
from kraftlite.log.control import ControlRecord, decode_control
from kraftlite.model.ids import Endpoint, NodeId, VoterEndpoint
from kraftlite.raft.config import QuorumConfig, Voter
from kraftlite.raft.membership import membership_records
from kraftlite.raft.snapshots import BOOTSTRAP_SNAPSHOT_ID, write_snapshot_file
from kraftlite.raft.voters import ReplicaKey, VoterSet, listening_voter
from tests.harness.raft_cluster import CLUSTER_ID, DIRECTORY, WALL_MS, Message, RaftCluster, SimNode, TextSerde

LISTENER = "CONTROLLER"


def directory_of(node_id: int, disk: int = 1) -> UUID:
    """The directory id of a node's `disk`th disk."""
    return UUID(int=(disk << 64) + 1_000 + node_id)


def endpoints_of(node_id: int) -> tuple[VoterEndpoint, ...]:
    return (VoterEndpoint(name=LISTENER, host=f"node{node_id}", port=9000 + node_id),)


def entry(node_id: int, disk: int = 1) -> Voter:
    """What the log says of this voter."""
    return listening_voter(NodeId(node_id), directory_of(node_id, disk), endpoints_of(node_id), (0, 1), LISTENER)


def voter_set(*node_ids: int) -> VoterSet:
    return VoterSet(tuple(entry(node_id) for node_id in node_ids))


class VoterCluster(RaftCluster):
    """`initial` controllers are formatted with --initial-controllers, `spares` with --no-initial-controllers; `brokers` never
    vote."""

    def __init__(
        self, initial: Sequence[int] = (1, 2, 3), spares: Sequence[int] = (), brokers: Sequence[int] = (), **options: Any
    ) -> None:
        self.brokers = frozenset(brokers)
        self.servers = tuple(Endpoint(f"node{i}", 9000 + i) for i in (*initial, *spares))
        self.disks: dict[int, int] = {}
        start = options.pop("start", True)
        super().__init__(initial, (*spares, *brokers), start=False, **options)
        for node_id in initial:
            self.format(node_id, voter_set(*initial))
        if start:
            for node in self.nodes.values():
                node.start()

    def config_of(self, node_id: NodeId, voters: tuple[Voter, ...], overrides: dict[str, Any]) -> QuorumConfig:
        controller = node_id not in self.brokers
        return QuorumConfig(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            directory_id=directory_of(node_id),
            voters=(),
            bootstrap_servers=self.servers,
            listeners=endpoints_of(node_id) if controller else (),
            listener_name=LISTENER,
            may_become_voter=controller,
            must_be_voter=controller,
            metadata_dir=DIRECTORY,
            **overrides,
        )

    def post(self, message: Message) -> None:
        """What goes to nobody in the cluster, an administrator, is only kept in `sent`."""
        if message.target in self.nodes:
            super().post(message)
        else:
            self.sent.append(message)

    def format(self, node_id: int, voters: VoterSet) -> None:
        """Write the 0-0 checkpoint that --standalone and --initial-controllers make."""
        disk = self[node_id].disk
        disk.makedirs(DIRECTORY)
        write_snapshot_file(disk, DIRECTORY, BOOTSTRAP_SNAPSHOT_ID, [], TextSerde(), WALL_MS, membership_records(1, voters))

    def replace_disk(self, node_id: int) -> None:
        """A new disk, formatted with --no-initial-controllers and thus with another directory id."""
        node = self[node_id]
        node.wipe()
        disk = self.disks[node_id] = self.disks.get(node_id, 1) + 1
        node.config = replace(node.config, directory_id=directory_of(node_id, disk))

    def key(self, node_id: int) -> ReplicaKey:
        """The node with the disk that it has now."""
        return ReplicaKey(NodeId(node_id), directory_of(node_id, self.disks.get(node_id, 1)))


class ConfiguredCluster(VoterCluster):
    """Controllers whose voters are those of the configuration, with directory ids and listeners: a quorum of kraft.version 0."""

    def config_of(self, node_id: NodeId, voters: tuple[Voter, ...], overrides: dict[str, Any]) -> QuorumConfig:
        found = super().config_of(node_id, voters, overrides)
        return replace(found, voters=voters, must_be_voter=node_id in {it.id for it in voters})

    def format(self, node_id: int, voters: VoterSet) -> None:
        """Nothing says who votes."""


def controls(node: SimNode, start: int = 0) -> list[tuple[int, ControlRecord | None]]:
    """(offset, record) of every control record in the node's log."""
    found: list[tuple[int, ControlRecord | None]] = []
    log, offset = node.core.metalog.log, max(start, node.core.metalog.log_start_offset)
    while offset < node.core.leo:
        for header, raw in iter_batches(log.read(offset, 1 << 20, up_to=node.core.leo)):
            if header.is_control:
                found += [(header.base_offset + it.offset_delta, decode_control(it)) for it in iter_records(raw)]
            offset = header.next_offset
    return found
