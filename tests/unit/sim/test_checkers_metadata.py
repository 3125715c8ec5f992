"""Each checker of quorum, controller and metadata finds a violation made on the real objects, and none where all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kraftlite.controller.results import ControllerResult
from kraftlite.log.control import LeaderChange, control_batch
from kraftlite.log.validation import AppendOrigin
from kraftlite.metadata import records as r
from kraftlite.metadata.image import ProducerIdsImage
from kraftlite.model.ids import NodeId
from kraftlite.model.messages.controller import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionItem,
    AlterPartitionRequest,
    IsrMember,
)
from kraftlite.model.messages.methods import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, REGISTER_BROKER
from kraftlite.raft.states import Candidate, Leader
from kraftlite.runtime.trace.metadata import SnapshotFailed
from kraftlite.sim.checkers.base import CheckerFactory
from kraftlite.sim.checkers.catalog_membership import MEMBERSHIP
from kraftlite.sim.checkers.catalog_metadata import RAFT_AND_METADATA
from kraftlite.sim.checkers.check_quorum import CheckQuorum
from kraftlite.sim.checkers.facts import MetadataWatch
from kraftlite.sim.checkers.i01_election_safety import ElectionSafety
from kraftlite.sim.checkers.i02_epoch_monotonicity import EpochMonotonicity
from kraftlite.sim.checkers.i03_vote_uniqueness import VoteUniqueness
from kraftlite.sim.checkers.i04_log_matching import LogMatching
from kraftlite.sim.checkers.i05_leader_completeness import LeaderCompleteness
from kraftlite.sim.checkers.i06_durability import Durability
from kraftlite.sim.checkers.i07_hw_monotonic import HighWatermarkMonotonic
from kraftlite.sim.checkers.i08_no_truncation_below_hw import NoTruncationBelowHw
from kraftlite.sim.checkers.i09_own_epoch_commit import OwnEpochCommit
from kraftlite.sim.checkers.i10_role_consistency import RoleConsistency
from kraftlite.sim.checkers.i11_snapshot_at_log_start import SnapshotAtLogStart
from kraftlite.sim.checkers.i13_value_verdict import ValueVerdict
from kraftlite.sim.checkers.i14_no_illegal_state import NoIllegalState
from kraftlite.sim.checkers.i16_metadata_matching import MetadataMatching
from kraftlite.sim.checkers.i17_single_writer import SingleWriter
from kraftlite.sim.checkers.i18_ack_committed import AckCommitted
from kraftlite.sim.checkers.i19_fencing import Fencing
from kraftlite.sim.checkers.i20_isr_and_leader import IsrAndLeader
from kraftlite.sim.checkers.i21_partition_epochs import PartitionEpochs
from kraftlite.sim.checkers.i22_broker_epochs import BrokerEpochs
from kraftlite.sim.checkers.i23_producer_ids import ProducerIds
from kraftlite.sim.checkers.i37_fencing_liveness import FencingLiveness
from kraftlite.sim.checkers.self_checks import SelfCheckMetadata
from tests.harness.violations import Cases, assert_found
from tests.harness.watched_cluster import WatchedCluster, watched

Make = Callable[..., WatchedCluster]
CASES: Cases[WatchedCluster] = Cases()
TESTED_ELSEWHERE = (
    "EligibleLeaders",
    "FeatureLevels",
    "ControllersRegistered",
    *("RegisteredListeners", "OneIncarnation", "RefusedIncarnations", "ShutdownsEnd", "PreVotesDeserved", "VotersTold"),
    *("SnapshotsDue", "CaughtUpFirst", "QuorumEpochs", "AnswersWait", "WishesTold", "SnapshotsFetched", "MetadataActedOn"),
    *(it.__name__ for it in MEMBERSHIP),
)
METADATA_LOG = "/data/__cluster_metadata-0"


@pytest.fixture
def make() -> Iterator[Make]:
    with watched() as start:
        yield start


def take_role(cluster: WatchedCluster, node_id: int, **changes: Any) -> None:
    """The node's role with some fields changed, as a new one."""
    ctx = cluster.core(node_id)._ctx
    ctx.state = replace(ctx.state, **changes)
    cluster.go(1_500)


# --- the quorum


@CASES.breaks(ElectionSafety, "which node . has won")
def another_leader(cluster: WatchedCluster) -> None:
    one, other = cluster.follower_ids()
    take_role(cluster, one, leader_id=NodeId(other))


@CASES.breaks(ElectionSafety, "which nobody has won")
def a_leader_of_the_future(cluster: WatchedCluster) -> None:
    take_role(cluster, cluster.follower_ids()[0], epoch=77)


@CASES.breaks(EpochMonotonicity, "and was in")
def an_older_epoch(cluster: WatchedCluster) -> None:
    first = cluster.leader_id()
    cluster.kill(first)
    cluster.until(cluster.leader_id)
    take_role(cluster, cluster.leader_id(), epoch=0)


@CASES.breaks(VoteUniqueness, "its disk says")
def a_vote_that_is_not_persisted(cluster: WatchedCluster) -> None:
    for node_id in cluster.follower_ids():
        store = cluster.core(node_id)._ctx.store
        store.write = lambda state, store=store: setattr(store, "written", state)  # type: ignore[method-assign,misc]
    cluster.kill(cluster.leader_id())
    cluster.go(10_000)


@CASES.breaks(VoteUniqueness, "is said to have voted")
def a_vote_that_is_not_remembered(cluster: WatchedCluster) -> None:
    for node_id in cluster.follower_ids():
        ctx = cluster.core(node_id)._ctx
        become = ctx.become_unattached
        ctx.become_unattached = lambda epoch, *, voted=None, leader_id=None, become=become: become(epoch)  # type: ignore[method-assign]
    cluster.kill(cluster.leader_id())
    for node_id in cluster.follower_ids():
        elections = cluster.core(node_id)._elections
        respond = elections._vote_response
        elections._vote_response = lambda error, granted, respond=respond: respond(error, True)  # type: ignore[method-assign]
    cluster.go(10_000)


@CASES.breaks(LogMatching, "below its high watermark")
def other_bytes_below_the_hw(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    node = cluster.node(cluster.follower_ids()[0])
    node.disk.overwrite(f"{METADATA_LOG}/{0:020d}.log", 30, b"\xff")
    cluster.at_end()


def elect_without_votes(cluster: WatchedCluster, node_id: int) -> None:
    """The node misses what is committed, and takes an election for won."""
    cluster.cut_off(node_id)
    cluster.create_topic()
    core = cluster.core(node_id)
    core._elections._has_won = lambda granted: True  # type: ignore[method-assign]
    core.check = lambda: None  # type: ignore[method-assign]  # it would notice itself
    cluster.go(20_000)


@CASES.breaks(LeaderCompleteness, "is committed")
def a_leader_without_what_is_committed(cluster: WatchedCluster) -> None:
    elect_without_votes(cluster, cluster.follower_ids()[0])


@CASES.breaks(Durability, "on disk for good it is only at")
def followers_that_do_not_flush(cluster: WatchedCluster) -> None:
    for node_id in cluster.follower_ids():
        log = cluster.core(node_id).metalog.log

        async def lie(up_to: int | None = None, log: Any = log) -> int:
            log._ctx.recovery_point = log.leo
            return int(log.leo)

        log.flush = lie  # type: ignore[method-assign]
    cluster.create_topic()


@CASES.breaks(Durability, "restarted with")
def a_restart_that_loses_what_was_durable(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    node_id = cluster.follower_ids()[0]
    cluster.kill(node_id)
    disk, path = cluster.node(node_id).disk, f"{METADATA_LOG}/{0:020d}.log"
    half = len(disk.read_file(path)) // 2
    disk.open(path).truncate(half)
    cluster.boot(node_id)


@CASES.breaks(HighWatermarkMonotonic, "back to")
def a_high_watermark_that_goes_back(cluster: WatchedCluster) -> None:
    node_id = cluster.follower_ids()[0]
    cluster.cut_off(node_id)
    cluster.go(600)
    cluster.core(node_id)._ctx.hw = 1
    cluster.go(3_000)


@CASES.breaks(HighWatermarkMonotonic, "no leader has been further")
def a_high_watermark_that_nobody_published(cluster: WatchedCluster) -> None:
    leader = cluster.leader_id()
    cluster.core(leader)._leadership.update_hw = lambda state: False  # type: ignore[method-assign]
    cluster.go(1_000)
    core = cluster.core(cluster.follower_ids()[0])
    core._ctx.hw = core.leo
    cluster.go(600)


@CASES.breaks(HighWatermarkMonotonic, "its high watermark is")
def an_image_of_what_is_not_committed(cluster: WatchedCluster) -> None:
    node = cluster.node(4).node
    assert node is not None
    provenance = replace(node.loader.image.provenance, last_contained_offset=10_000)
    node.loader.image = replace(node.loader.image, provenance=provenance)
    cluster.go(600)


@CASES.breaks(NoTruncationBelowHw, "below its high watermark")
def a_truncation_below_the_hw(cluster: WatchedCluster) -> None:
    core = cluster.core(cluster.follower_ids()[0])
    core.metalog.log.truncate_to(core.leo - 1, allow_below_hw=True)
    cluster.go(600)


@CASES.breaks(NoTruncationBelowHw, "drops the committed")
def a_truncation_of_what_others_committed(cluster: WatchedCluster) -> None:
    node_id = cluster.follower_ids()[0]
    cluster.kill(node_id)
    cluster.cut_off(node_id)
    cluster.boot(node_id)
    core = cluster.core(node_id)
    core.metalog.log.truncate_to(core.leo - 1, allow_below_hw=True)
    cluster.go(600)


@CASES.breaks(OwnEpochCommit, "is committed")
def a_commit_of_an_earlier_epoch(cluster: WatchedCluster) -> None:
    state = cluster.core(cluster.leader_id()).state
    assert isinstance(state, Leader)
    state.hw = state.epoch_start_offset
    cluster.go(600)


@CASES.breaks(RoleConsistency, "observer 4 is candidate")
def an_observer_that_stands(cluster: WatchedCluster) -> None:
    cluster.cut_off(4)
    cluster.go(600)
    ctx = cluster.core(4)._ctx
    ctx.state = Candidate(epoch=ctx.epoch, voted=ctx.key, election_deadline_ms=10**9, retries=0, granted=set())
    cluster.go(600)


@CASES.breaks(RoleConsistency, "answers wait in it")
def answers_that_wait_in_a_standby(cluster: WatchedCluster) -> None:
    standby = cluster.controller(cluster.follower_ids()[0])
    standby.deferred.add(10**6, _Nobody())
    cluster.go(600)


class _Nobody:
    def complete(self, error: BaseException | None) -> None:
        return None


@CASES.breaks(CheckQuorum, "it should have resigned")
def a_leader_that_nobody_hears(cluster: WatchedCluster) -> None:
    state = cluster.core(cluster.leader_id()).state
    assert isinstance(state, Leader)
    state.check_quorum_deadline_ms = 10**9
    cluster.cut_off(cluster.leader_id())
    cluster.go(10_000)


@CASES.breaks(SnapshotAtLogStart, "has only the snapshots")
def a_log_start_without_a_snapshot(cluster: WatchedCluster) -> None:
    cluster.core(cluster.follower_ids()[0]).metalog.log._ctx.log_start_offset = 2
    cluster.go(600)


@CASES.breaks(SnapshotAtLogStart, r"cannot write a snapshot up to 2 in epoch 99 \(refused\)")
def a_snapshot_that_no_log_takes(cluster: WatchedCluster) -> None:
    cluster.core(cluster.leader_id())._ctx.tracer.emit(SnapshotFailed(end_offset=2, epoch=99, error="refused"))
    cluster.go(100)


@CASES.breaks(ValueVerdict, "at this offset is committed nothing")
def an_answer_before_the_commit(cluster: WatchedCluster) -> None:
    cluster.cut_off(cluster.leader_id())
    controller = cluster.controller()
    cluster.until(lambda: len(controller.deferred), "a NoOp that cannot be committed")
    controller.deferred.complete_up_to(10**6)
    cluster.go(600)


@CASES.breaks(NoIllegalState, "AssertionError: impossible")
def a_failed_assertion(cluster: WatchedCluster) -> None:
    cluster.node(4)._fault(AssertionError("impossible"), "test")
    cluster.go(10)


@CASES.breaks(NoIllegalState, "is inconsistent")
def an_index_that_is_wrong(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    cluster.go(600)
    for node_id in cluster.follower_ids():
        cluster.controller(node_id).state.replication.partition_count.set(9)
    cluster.kill(cluster.leader_id())
    cluster.go(10_000)


# --- the metadata


@CASES.breaks(MetadataMatching, "is not what was committed: next producer id 7")
def another_image(cluster: WatchedCluster) -> None:
    node = cluster.node(4).node
    assert node is not None
    node.loader.image = replace(node.loader.image, producer_ids=ProducerIdsImage(next_producer_id=7))
    cluster.go(10)
    cluster.go(600)


@CASES.breaks(MetadataMatching, "the standby controller")
def another_standby(cluster: WatchedCluster) -> None:
    cluster.controller(cluster.follower_ids()[0]).state.producer_ids.next_producer_id.set(7)
    cluster.create_topic()
    cluster.go(600)


@CASES.breaks(MetadataMatching, "the snapshot .* is not what was committed")
def a_snapshot_that_kept_a_deleted_topic(cluster: WatchedCluster) -> None:
    cluster.create_topic("kept")
    cluster.go(600)
    node = cluster.node(4).node
    assert node is not None
    records = list(node.loader.image.write())
    topic_id = next(it.topic_id for it in records if isinstance(it, r.TopicRecord))
    cluster.write(r.RemoveTopicRecord(topic_id=topic_id))
    cluster.go(600)
    provenance = node.loader.image.provenance

    async def snapshot() -> None:
        writer = node.raft.create_snapshot(provenance.snapshot_id, 0)
        assert writer is not None
        writer.append(records)
        await writer.freeze()

    cluster.do(snapshot())
    cluster.go(600)


@CASES.breaks(MetadataMatching, "inside a metadata transaction")
def an_image_inside_a_transaction(cluster: WatchedCluster) -> None:
    cluster.write(r.BeginTransactionRecord(), r.NoOpRecord())
    node = cluster.node(4).node
    assert node is not None
    end = node.raft.core.committed_offset
    assert end is not None
    node.loader.image = replace(
        node.loader.image, provenance=replace(node.loader.image.provenance, last_contained_offset=end - 1)
    )
    cluster.go(600)


@CASES.breaks(SingleWriter, "the leader of epoch . wrote .+ there")
def a_follower_that_writes(cluster: WatchedCluster) -> None:
    write_as_leader(cluster.core(cluster.follower_ids()[0]))
    cluster.go(600)


def write_as_leader(core: Any) -> None:
    change = LeaderChange(leader_id=core.config.node_id, voters=core.voters.ids, granting_voters=())
    raw = bytearray(control_batch([change], timestamp_ms=0, leader_epoch=core.epoch, base_offset=core.leo))
    core.metalog.log.append_as_leader(raw, leader_epoch=core.epoch, wall_ms=0, origin=AppendOrigin.RAFT_LEADER)


@CASES.breaks(SingleWriter, "was won by")
def a_restarted_leader_that_goes_on(cluster: WatchedCluster) -> None:
    leader_id = cluster.leader_id()
    state = cluster.core(leader_id).state
    cluster.kill(leader_id)
    cluster.cut_off(leader_id)
    cluster.boot(leader_id)
    core = cluster.core(leader_id)
    core._ctx.state = state
    write_as_leader(core)
    cluster.go(600)


@CASES.breaks(AckCommitted, "no record has this effect")
def an_acknowledgement_before_the_commit(cluster: WatchedCluster) -> None:
    for node_id in cluster.follower_ids():
        cluster.cut_off(node_id)
    cluster.controller()._park = lambda on_done, response, last_offset: on_done(response)  # type: ignore[method-assign]
    cluster.create_topic()


@CASES.breaks(AckCommitted, "kept what was not committed")
def a_renounce_that_does_not_revert(cluster: WatchedCluster) -> None:
    controller = cluster.controller()
    controller.state.registry.revert_to = lambda epoch: None  # type: ignore[method-assign]
    for node_id in cluster.follower_ids():
        cluster.cut_off(node_id)
    cluster.submit(r.ProducerIdsRecord(broker_id=NodeId(4), broker_epoch=0, next_producer_id=5_000))
    cluster.go(10_000)


@CASES.breaks(AckCommitted, "lets reads see")
def reads_of_uncommitted_state(cluster: WatchedCluster) -> None:
    controller = cluster.controller()
    controller.state.registry.floor = lambda epoch: None  # type: ignore[method-assign]
    cluster.go(600)


@CASES.breaks(FencingLiveness, "keeps broker 5 unfenced, of whose epoch .* no heartbeat has come for")
def a_session_that_is_forgotten(cluster: WatchedCluster) -> None:
    tracker = cluster.controller().state.cluster.tracker
    assert tracker is not None
    cluster.kill(5)
    tracker.remove(NodeId(5), cluster.controller().state.cluster.brokers[NodeId(5)].broker_epoch)
    cluster.go(10_000)


@CASES.breaks(Fencing, "broker 5 says that it is at offset .* and wants work, but of orders-0 it has no such replica")
def a_broker_that_says_what_it_has_not_applied(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    node = cluster.node(5).node
    assert node is not None and node.broker is not None
    cluster.until(lambda: node.broker is not None and node.broker.replicas._table.by_tp)
    node.broker.replicas._table.by_tp.clear()
    cluster.go(5_000)


@CASES.breaks(Fencing, "takes these brokers for fenced")
def soft_state_that_differs(cluster: WatchedCluster) -> None:
    heartbeats = cluster.controller().state.cluster.heartbeats
    assert heartbeats is not None
    heartbeats.brokers[NodeId(4)].fenced = True
    cluster.submit(r.NoOpRecord())


@CASES.breaks(Fencing, "is led by a broker that is not active")
def fencing_that_moves_no_leader(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    cluster.go(600)
    cluster.controller().state.elections.leader_and_isr_updates = lambda *args, **options: iter(())  # type: ignore[method-assign]
    cluster.kill(4)
    cluster.kill(5)
    cluster.go(10_000)


@CASES.breaks(Fencing, "and has said at most")
def unfenced_before_it_caught_up(cluster: WatchedCluster) -> None:
    """Brokers that have applied nothing of the log say so, and are unfenced nevertheless."""
    for node_id in (1, 2, 3):
        cluster.controller(node_id).state.cluster.registration_offset = lambda broker_id: -1  # type: ignore[method-assign]
    cluster.kill(4)
    cluster.go(5_000)
    node = cluster.node(4)
    made = node.on_built

    def built(it: Any) -> None:
        made(it)
        it.node.broker.lifecycle._metadata_offset = lambda: -1
        it.node.broker.lifecycle.wait_caught_up = lambda: _done()
        it.node.broker.publisher.wait_first_publish = lambda: _done()

    node.on_built = built
    cluster.boot(4)


async def _done() -> None:
    return None


def some_partition(cluster: WatchedCluster) -> tuple[Any, int, Any]:
    (info,) = cluster.controller().state.replication.topics.values()
    return info.topic_id, 0, info.partitions[0]


@CASES.breaks(IsrAndLeader, "not some of its replicas")
def an_isr_of_strangers(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    topic_id, index, _ = some_partition(cluster)
    cluster.write(r.PartitionChangeRecord(topic_id=topic_id, partition=index, isr=(NodeId(9),)))


@CASES.breaks(IsrAndLeader, "without saying so")
def a_leader_from_outside_the_isr(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    topic_id, index, partition = some_partition(cluster)
    one, other = partition.replicas
    cluster.write(
        r.PartitionChangeRecord(topic_id=topic_id, partition=index, isr=(one,)),
        r.PartitionChangeRecord(topic_id=topic_id, partition=index, isr=(other,), leader=other),
    )


@CASES.breaks(IsrAndLeader, "an unclean election is not allowed")
def an_unclean_election(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    topic_id, index, partition = some_partition(cluster)
    one, other = partition.replicas
    cluster.write(
        r.PartitionChangeRecord(topic_id=topic_id, partition=index, isr=(one,)),
        r.PartitionChangeRecord(topic_id=topic_id, partition=index, isr=(other,), leader=other, recovering=True),
    )


@CASES.breaks(PartitionEpochs, "becomes")
def epochs_that_go_back(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    topic_id, index, partition = some_partition(cluster)
    cluster.write(replace(partition, leader_epoch=0, partition_epoch=0).to_record(topic_id, index))


@CASES.breaks(PartitionEpochs, "came when the partition was in epoch . already")
def a_change_of_an_old_partition_epoch(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    topic_id, index, partition = some_partition(cluster)
    cluster.write(r.PartitionChangeRecord(topic_id=topic_id, partition=index, isr=(partition.leader,)))
    alter(cluster, partition_epoch=0)


@CASES.breaks(PartitionEpochs, "the broker was")
def a_change_of_an_old_broker_epoch(cluster: WatchedCluster) -> None:
    cluster.create_topic()
    cluster_control = cluster.controller().state.cluster
    cluster_control.check_epoch = lambda broker_id, epoch: cluster_control.brokers[broker_id]  # type: ignore[method-assign]
    alter(cluster, broker_epoch=0)


def alter(cluster: WatchedCluster, *, partition_epoch: int | None = None, broker_epoch: int | None = None) -> None:
    """An AlterPartition that the controller takes, whatever it says."""
    controller = cluster.controller()
    controller.state.isr._refusal = lambda broker_id, partition, item: None  # type: ignore[method-assign]
    topic_id, index, partition = some_partition(cluster)
    isr = partition.replicas if len(partition.isr) == 1 else (partition.leader,)
    item = AlterPartitionItem(
        topic_id=topic_id,
        partition=index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch if partition_epoch is None else partition_epoch,
        new_isr=tuple(IsrMember(broker_id=it, broker_epoch=None) for it in isr),
        recovering=False,
    )
    registered = controller.state.cluster.brokers[partition.leader].broker_epoch
    epoch = registered if broker_epoch is None else broker_epoch
    request = AlterPartitionRequest(broker_id=partition.leader, broker_epoch=epoch, partitions=(item,))
    cluster.call(cluster.leader_id(), ALTER_PARTITION, request)


@CASES.breaks(BrokerEpochs, "never asked for it")
def a_registration_of_nobody(cluster: WatchedCluster) -> None:
    known = cluster.controller().state.cluster.brokers[NodeId(4)]
    cluster.write(replace(known, incarnation_id=known.log_dirs[0], broker_epoch=0, fenced=True).to_record())


@CASES.breaks(BrokerEpochs, "incarnation 2, after incarnation 3 was registered")
def an_old_incarnation_comes_back(cluster: WatchedCluster) -> None:
    """A registration request that was on its way all the time, and a controller that lets it pass."""
    asked: list[Any] = []
    seen = cluster.cluster.network.on_call

    def note(source: Any, target: Any, method: Any, request: Any) -> None:
        if method is REGISTER_BROKER:
            asked.append(request)
        assert seen is not None
        seen(source, target, method, request)

    cluster.cluster.network.on_call = note
    cluster.kill(4)
    cluster.boot(4)
    cluster.kill(4)
    cluster.boot(4)
    cluster.go(2_000)
    control = cluster.controller().state.cluster
    control.check_registration = lambda request, now_ms: control.brokers[request.broker_id]  # type: ignore[method-assign]
    second = asked[0]
    third = asked[-1]
    assert second.incarnation_id != third.incarnation_id
    cluster.world.notes["metadata facts"].views[NodeId(4)].here.number = 2
    cluster.call(cluster.leader_id(), REGISTER_BROKER, second)


@CASES.breaks(ProducerIds, "committed are those below")
def a_block_that_is_not_persisted(cluster: WatchedCluster) -> None:
    response = AllocateProducerIdsResponse(first_producer_id=0, count=1_000)
    allocate = lambda request: ControllerResult(records=[], response=response)  # noqa: E731
    cluster.controller().state.producer_ids.allocate = allocate  # type: ignore[method-assign]
    cluster.call(cluster.leader_id(), ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(broker_id=NodeId(4), broker_epoch=0))


@CASES.breaks(ProducerIds, "were given before")
def a_block_that_is_given_twice(cluster: WatchedCluster) -> None:
    controller = cluster.controller()
    epoch = controller.state.cluster.brokers[NodeId(4)].broker_epoch
    request = AllocateProducerIdsRequest(broker_id=NodeId(4), broker_epoch=epoch)
    response = cluster.call(cluster.leader_id(), ALLOCATE_PRODUCER_IDS, request)
    controller.state.producer_ids.allocate = lambda request: ControllerResult(records=[], response=response)  # type: ignore[method-assign]
    cluster.call(cluster.leader_id(), ALLOCATE_PRODUCER_IDS, request)


@CASES.breaks(SelfCheckMetadata, "raft of node .*: the disk says")
def a_role_that_is_not_on_the_disk(cluster: WatchedCluster) -> None:
    cluster.core(cluster.follower_ids()[0])._ctx.store.written = None
    cluster.create_topic()


@CASES.breaks(SelfCheckMetadata, "the controller's state on node .*: 7 partitions are counted, there are")
def a_count_that_is_wrong(cluster: WatchedCluster) -> None:
    cluster.controller().state.replication.partition_count.set(6)
    cluster.create_topic()


@pytest.mark.parametrize(("checker", "violate", "words"), CASES, ids=CASES.ids)
def test_a_violation_is_found(make: Make, checker: CheckerFactory, violate: Callable[[WatchedCluster], Any], words: str) -> None:
    assert_found(make(checker), checker, violate, words)


def test_every_checker_can_fail() -> None:
    assert RAFT_AND_METADATA[0] is MetadataWatch
    assert {case[0] for case in CASES} == {it for it in RAFT_AND_METADATA[1:] if it.__name__ not in TESTED_ELSEWHERE}
